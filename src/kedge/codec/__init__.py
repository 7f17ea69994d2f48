"""Column codecs, one file each; statistics; the chooser.

>>> import numpy as np
>>> encoded = encode(np.arange(1000))
>>> bool((decode(encoded, np.dtype(np.int64), 1000) == np.arange(1000)).all())
True
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kedge.codec import (
    base_delta,
    decimal,
    delta,
    delta2,
    dictionary,
    frame,
    lz4,
    parts,
    plain,
    runs,
    simple8b,
    snappy,
    varbyte,
    xor,
    zstd,
)
from kedge.codec.blocks import room
from kedge.codec.choose import Chooser, Choosers
from kedge.codec.decimal import encode_within
from kedge.codec.encoded import Codec, Encoded, Values, check, corrupt
from kedge.errors import UsageError

__all__ = [
    "BY_CODE",
    "BY_NAME",
    "Chooser",
    "Choosers",
    "Codec",
    "Encoded",
    "decode",
    "encode",
    "encode_within",
    "room",
]

CODECS: tuple[Codec, ...] = (
    plain.CODEC,
    frame.CODEC,
    delta.CODEC,
    delta2.CODEC,
    xor.CODEC,
    base_delta.CODEC,
    simple8b.CODEC,
    varbyte.CODEC,
    runs.CODEC,
    dictionary.CODEC,
    decimal.CODEC,
    lz4.CODEC,
    zstd.CODEC,
    snappy.CODEC,
)
BY_NAME = parts.by_name
BY_CODE = parts.by_code
BY_NAME.update({codec.name: codec for codec in CODECS})
BY_CODE.update({codec.code: codec for codec in CODECS})


def encode(values: Values, codec: str | None = None) -> Encoded:
    """Encode a column by the codec of this name ("decimal>delta": with the codec inside), or by a chosen one."""
    check(values)
    if codec is None:
        return Chooser().encode(values)
    name, _, inner = codec.partition(">")
    if name not in BY_NAME:
        raise UsageError(f"There is no codec {name!r}. There are: {', '.join(BY_NAME)}.")
    if values.dtype.kind not in BY_NAME[name].kinds:
        raise UsageError(
            f"The codec {name} does not take {values.dtype}. Leave the choice to Kedge with codec=None."
        )
    return BY_NAME[name].encode(values, inner)


def decode(encoded: Encoded, dtype: np.dtype[Any], rows: int, out: Values | None = None) -> Values:
    """The `rows` values of a column; what can't be decoded raises CorruptError."""
    codec = BY_CODE.get(encoded.codec)
    if codec is None:
        raise corrupt(f"number {encoded.codec}", "this version of Kedge does not know it")
    return codec.decode(encoded, np.dtype(dtype), rows, out)
