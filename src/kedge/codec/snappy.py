"""Snappy, through pyarrow: the default of the Scabbard paper for data that nothing is known about."""

from __future__ import annotations

from kedge.codec.arrow import compressor
from kedge.codec.encoded import Bytes


def _inflated(body: Bytes) -> int:
    """The size that a body says it inflates to (its first number, seven bits per byte); snappy itself checks it."""
    size = 0
    for place, byte in enumerate(body[:5].tolist()):
        size |= (byte & 127) << (7 * place)
        if byte < 128:
            return size
    return -1


CODEC = compressor(13, "snappy", "snappy", measure=_inflated)
