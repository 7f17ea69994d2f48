"""LZ4 blocks, through pyarrow: quick to read, for bytes and text."""

from __future__ import annotations

from kedge.codec.arrow import compressor
from kedge.codec.encoded import Bytes
from kedge.jit import jit


@jit
def _inflated(body: Bytes) -> int:
    """The size that a block inflates to: the sum of its literals and matches; -1 when it ends early."""
    size = body.shape[0]
    at = 0
    total = 0
    while at < size:
        token = int(body[at])
        at += 1
        literals = token >> 4
        if literals == 15:
            more = 255
            while more == 255:
                if at >= size:
                    return -1
                more = int(body[at])
                literals += more
                at += 1
        at += literals
        total += literals
        if at >= size:
            break  # the last sequence has no match
        at += 2
        match = (token & 15) + 4
        if match == 19:
            more = 255
            while more == 255:
                if at >= size:
                    return -1
                more = int(body[at])
                match += more
                at += 1
        total += match
    return total if at == size else -1


CODEC = compressor(11, "lz4", "lz4_raw", measure=_inflated)
