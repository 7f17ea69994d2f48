"""From dtypes to what kernels take: 64-bit items, 32-bit items, and nothing else.

One compiled signature serves all dtypes: kernels get bytes and an item code (8, 4, or -4 for unsigned). Items of 8
and 16 bits and bools are rare in rows of streams; they are widened to 32 bits on the way in and narrowed on the way
out. Floats travel as the integers that share their bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from kedge.codec import scratch
from kedge.codec.encoded import Bytes, Values, raw, target

T = TypeVar("T")


def items(values: Values) -> tuple[Bytes, int]:
    """The bytes of a column and their item code."""
    if values.itemsize < 4:
        return raw(_bits(values).astype(np.int32)), 4
    return raw(values), -4 if values.dtype == np.uint32 else values.itemsize


def decode_items(dtype: np.dtype[Any], rows: int, out: Values | None, fill: Callable[[Bytes, int], None]) -> Values:
    """Call `fill` with the bytes to write to and their item code; returns the column."""
    out = target(dtype, rows, out)
    if dtype.itemsize >= 4:
        fill(out.view(np.uint8), dtype.itemsize)
        return out
    wide = scratch.array("items", np.int32, rows)
    fill(wide.view(np.uint8), 4)
    return narrow(wide, out)


def widen(values: Values) -> NDArray[np.int64]:
    """A column as 64-bit integers: the values of integers, the bits of floats."""
    return np.ascontiguousarray(_bits(values)).astype(np.int64, copy=False)


def narrow(wide: Values, out: Values) -> Values:
    """The inverse of `widen`, into `out`."""
    if out.dtype.kind == "b":
        np.not_equal(wide, 0, out=out)
    else:
        _bits(out)[:] = wide
    return out


def _bits(values: Values) -> Values:
    return values.view(f"i{values.itemsize}") if values.dtype.kind == "f" else values
