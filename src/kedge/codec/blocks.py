"""Packed blocks: the body that frame, delta, delta-of-delta, XOR and base-delta share.

Body: bases (8 bytes per block), width and shift (1 byte each per block, padded to 8), rows of packed words.
Base-delta has one base and one width for all, in `params`, and no header. Little-endian throughout.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kedge.codec import kernels, scratch
from kedge.codec.encoded import Bytes, Encoded, Values, corrupt, readable
from kedge.codec.items import decode_items, items

BLOCK = 1024  # values
ROW_BYTES = 128
Parts = tuple[NDArray[np.int64], Bytes, NDArray[np.uint64]]


def encode(values: Values, code: int, mode: int, params: tuple[int, int, int]) -> Encoded | None:
    """Pack a column by a mode of the kernels; None when FIXED does not hold it."""
    rows = values.size
    start = _header_bytes(rows, mode)
    whole = -(-rows // BLOCK) * BLOCK * 8
    buffer = scratch.take("body", start + whole)
    data, item = items(values)
    bounds = np.array([(1 << 63) - 1, -(1 << 63)], np.int64)
    depth = kernels.pack(data, item, rows, mode, np.array(params, np.int64), bounds, *_split(buffer, rows, mode))
    if depth < 0:
        return None
    body = buffer[: start + depth * ROW_BYTES]
    low, high = bounds.tolist()
    return Encoded(code, params, body if scratch.lent() else body.copy(), (low, high) if low <= high else None)


def decode(encoded: Encoded, mode: int, name: str, dtype: np.dtype[Any], rows: int, out: Values | None) -> Values:
    """The inverse of `encode`."""
    body = readable(encoded.body)
    if body.size < _header_bytes(rows, mode):
        raise corrupt(
            name, f"{rows} rows need a header of {_header_bytes(rows, mode)} bytes, there are {body.size}"
        )
    params = np.array(encoded.params, np.int64)

    def fill(data: Bytes, item: int) -> None:
        bad = kernels.unpack(data, item, rows, mode, params, *_split(body, rows, mode))
        if bad:
            raise corrupt(name, f"block {bad - 1} of {-(-rows // BLOCK)} ends outside the {body.size} bytes")

    return decode_items(dtype, rows, out, fill)


def room(rows: int) -> int:
    """The most bytes that packing so many values touches."""
    return _header_bytes(rows, kernels.FRAME) + -(-rows // BLOCK) * BLOCK * 8


def _header_bytes(rows: int, mode: int) -> int:
    """Bytes before the packed words."""
    blocks = 0 if mode == kernels.FIXED else -(-rows // BLOCK)
    return blocks * 8 + -(-blocks // 4) * 8


def _split(body: Bytes, rows: int, mode: int) -> Parts:
    """Bases, sizes and whole rows of packed words of a body that is at least as long as its header."""
    blocks = 0 if mode == kernels.FIXED else -(-rows // BLOCK)
    start = _header_bytes(rows, mode)
    words = body[start : start + (body.size - start) // ROW_BYTES * ROW_BYTES]
    return (
        body[: blocks * 8].view(np.int64),
        body[blocks * 8 : blocks * 10].reshape(blocks, 2),
        words.view(np.uint64).reshape(-1, 16),
    )
