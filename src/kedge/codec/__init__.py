"""Column codecs, one file each; statistics; the chooser.

>>> import numpy as np
>>> encoded = encode(np.arange(1000))
>>> bool((decode(encoded, np.dtype(np.int64), 1000) == np.arange(1000)).all())
True
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kedge.codec import frame, plain
from kedge.codec.encoded import Codec, Encoded, Values, corrupt
from kedge.errors import UsageError

__all__ = ["BY_CODE", "BY_NAME", "Codec", "Encoded", "decode", "encode"]

CODECS: tuple[Codec, ...] = (plain.CODEC, frame.CODEC)
BY_NAME = {codec.name: codec for codec in CODECS}
BY_CODE = {codec.code: codec for codec in CODECS}


def encode(values: Values, codec: str | None = None) -> Encoded:
    """Encode a column by the codec of this name; without a name by the one that is smaller."""
    if codec is None:
        packed = frame.CODEC.encode(values)
        return packed if packed.body.size < values.nbytes else plain.CODEC.encode(values)
    if codec not in BY_NAME:
        raise UsageError(f"There is no codec {codec!r}. There are: {', '.join(BY_NAME)}.")
    return BY_NAME[codec].encode(values)


def decode(encoded: Encoded, dtype: np.dtype[Any], rows: int, out: Values | None = None) -> Values:
    """The `rows` values of a column; what can't be decoded raises CorruptError."""
    dtype = np.dtype(dtype)
    codec = BY_CODE.get(encoded.codec)
    if codec is None:
        raise corrupt(f"number {encoded.codec}", "this version of Kedge does not know it")
    return codec.decode(encoded, dtype, rows, out)
