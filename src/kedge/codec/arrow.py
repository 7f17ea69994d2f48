"""General compressors through pyarrow: what LZ4, zstd and snappy share. They take bytes of any kind.

Invariant: pyarrow hands out a buffer of the size it is told, filled or not. So the size that a body inflates to is
known before it is inflated: zstd checks it itself, LZ4 and snappy bodies are measured first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from kedge.codec.encoded import Bytes, Codec, Encoded, Values, corrupt, raw, readable, target


def compressor(
    code: int,
    name: str,
    arrow_name: str,
    *,
    level: int | None = None,
    measure: Callable[[Bytes], int] | None = None,
) -> Codec:
    """A codec that hands the bytes of a column to pyarrow; `measure` gives the size that a body inflates to."""
    press = pa.Codec(arrow_name, compression_level=level)

    def encode(values: Values, _inner: str = "", /) -> Encoded:
        body = press.compress(raw(values)) if values.size else b""
        return Encoded(code, (0, 0, 0), np.frombuffer(body, np.uint8))

    def decode(encoded: Encoded, dtype: np.dtype[Any], rows: int, out: Values | None, /) -> Values:
        size = rows * dtype.itemsize
        body = readable(encoded.body)
        if not size:
            inflated = b""
        elif measure is not None and measure(body) != size:
            raise corrupt(name, f"{body.size} bytes do not inflate to {size}")
        else:
            try:
                inflated = press.decompress(body, size)
            except (OSError, pa.ArrowException) as broken:
                raise corrupt(name, str(broken)) from broken
        values = np.frombuffer(inflated, dtype)
        if out is None:
            return values
        target(dtype, rows, out)[:] = values
        return out

    return Codec(code, name, encode, decode)
