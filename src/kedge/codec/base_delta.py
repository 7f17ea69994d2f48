"""Base-delta: one base and one width for the whole column, in `params`; the body is nothing but packed distances.

Every block is as long as the others, so block k begins at k * width * 128 bytes: a reader can start anywhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kedge.codec import blocks, kernels
from kedge.codec.encoded import Codec, Encoded, Values
from kedge.errors import InternalError


def _encode(values: Values, _inner: str = "", /) -> Encoded:
    base, top = extremes(values)
    return encode_at(values, base, (top - base).bit_length())


def encode_at(values: Values, base: int, width: int) -> Encoded:
    """Encode with a base and a width that are known to hold; the kernel checks every value against them."""
    encoded = blocks.encode(values, CODEC.code, kernels.FIXED, (base, width, 0))
    if encoded is None:
        raise InternalError(
            f"A value is outside of base {base} and width {width}, which were taken from the column."
        )
    return encoded


def extremes(values: Values) -> tuple[int, int]:
    """Smallest and largest as the kernels see them: signed, floats by their bits."""
    if not values.size:
        return 0, 0
    if values.dtype.kind == "f" or values.dtype == np.uint64:
        values = values.view(f"i{values.itemsize}")
    return int(values.min()), int(values.max())


def _decode(encoded: Encoded, dtype: np.dtype[Any], rows: int, out: Values | None, /) -> Values:
    return blocks.decode(encoded, kernels.FIXED, CODEC.name, dtype, rows, out)


CODEC = Codec(5, "base_delta", _encode, _decode)
