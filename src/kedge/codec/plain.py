"""Plain: the values as they are. Decoding is a view of the body, not a copy."""

from __future__ import annotations

from typing import Any

import numpy as np

from kedge.codec.encoded import Codec, Encoded, Values, corrupt, raw, readable, target


def _encode(values: Values, _inner: str = "", /) -> Encoded:
    return Encoded(CODEC.code, (0, 0, 0), raw(values))


def _decode(encoded: Encoded, dtype: np.dtype[Any], rows: int, out: Values | None, /) -> Values:
    if encoded.body.size != rows * dtype.itemsize:
        raise corrupt(
            "plain", f"{rows} x {dtype} need {rows * dtype.itemsize} bytes, there are {encoded.body.size}"
        )
    values = readable(encoded.body).view(dtype)
    if out is None:
        return values
    target(dtype, rows, out)[:] = values
    return out


CODEC = Codec(0, "plain", _encode, _decode)
