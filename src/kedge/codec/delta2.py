"""Delta of delta: what is packed are the changes of the step; an even sequence costs ten bytes per 1,024 values."""

from __future__ import annotations

from typing import Any

import numpy as np

from kedge.codec import blocks, kernels
from kedge.codec.delta import start
from kedge.codec.encoded import Codec, Encoded, Values


def _encode(values: Values, _inner: str = "", /) -> Encoded:
    first, step = start(values)
    encoded = blocks.encode(values, CODEC.code, kernels.DELTA2, (first - step, step, 0))
    assert encoded is not None
    return encoded


def _decode(encoded: Encoded, dtype: np.dtype[Any], rows: int, out: Values | None, /) -> Values:
    return blocks.decode(encoded, kernels.DELTA2, CODEC.name, dtype, rows, out)


CODEC = Codec(3, "delta2", _encode, _decode)
