"""Frame of reference: each block of 1,024 values as distances from its smallest, in as few bits as they need.

This is also null suppression: leading zeros are not written. Floats are packed as the integers that share their
bits, so every bit pattern survives.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kedge.codec import blocks
from kedge.codec.encoded import Codec, Encoded, Values, corrupt, layout, raw, readable, target


def _encode(values: Values) -> Encoded:
    rows = values.size
    body = np.empty(blocks.bound(rows), np.uint8)
    bases, widths, words = blocks.split(body, rows)
    depth = blocks.encode(raw(values), layout(values.dtype), rows, bases, widths, words)
    return Encoded(CODEC.code, (0, 0, 0), body[: blocks.header_bytes(rows) + depth * blocks.ROW_BYTES])


def _decode(encoded: Encoded, dtype: np.dtype[Any], rows: int, out: Values | None) -> Values:
    body = readable(encoded.body)
    if body.size < blocks.header_bytes(rows):
        raise corrupt(
            "frame", f"{rows} rows need a header of {blocks.header_bytes(rows)} bytes, there are {body.size}"
        )
    out = target(dtype, rows, out)
    bad = blocks.decode(out.view(np.uint8), layout(dtype), rows, *blocks.split(body, rows))
    if bad:
        raise corrupt("frame", f"block {bad - 1} of {-(-rows // blocks.BLOCK)} ends outside the {body.size} bytes")
    return out


CODEC = Codec(1, "frame", _encode, _decode)
