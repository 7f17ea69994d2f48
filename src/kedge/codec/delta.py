"""Delta: what is packed are the steps from value to value, block by block.

`params` are the first value and the first step, so that the first row of an even sequence widens nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kedge.codec import blocks, kernels
from kedge.codec.encoded import Codec, Encoded, Values
from kedge.codec.items import widen


def _encode(values: Values, _inner: str = "", /) -> Encoded:
    first, step = start(values)
    encoded = blocks.encode(values, CODEC.code, kernels.DELTA, (first - step, 0, 0))
    assert encoded is not None
    return encoded


def _decode(encoded: Encoded, dtype: np.dtype[Any], rows: int, out: Values | None, /) -> Values:
    return blocks.decode(encoded, kernels.DELTA, CODEC.name, dtype, rows, out)


def start(values: Values) -> tuple[int, int]:
    """The first value and the first step; a step that would leave 63 bits counts as none."""
    head = [int(value) for value in widen(values[:2])]
    first = head[0] if head else 0
    step = head[1] - first if len(head) == 2 else 0
    return (first, step) if abs(step) < 1 << 62 and abs(first) < 1 << 61 else (first, 0)


CODEC = Codec(2, "delta", _encode, _decode)
