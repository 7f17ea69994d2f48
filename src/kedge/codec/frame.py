"""Frame of reference: each block of 1,024 values as distances from its smallest, in as few bits as they need.

This is also null suppression: leading zeros are not written. Floats are packed as the integers that share their
bits, so every bit pattern survives.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kedge.codec import blocks, kernels
from kedge.codec.encoded import Codec, Encoded, Values


def _encode(values: Values, _inner: str = "", /) -> Encoded:
    encoded = blocks.encode(values, CODEC.code, kernels.FRAME, (0, 0, 0))
    assert encoded is not None
    return encoded


def _decode(encoded: Encoded, dtype: np.dtype[Any], rows: int, out: Values | None, /) -> Values:
    return blocks.decode(encoded, kernels.FRAME, CODEC.name, dtype, rows, out)


CODEC = Codec(1, "frame", _encode, _decode)
