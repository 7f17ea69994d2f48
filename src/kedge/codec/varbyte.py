"""Var-byte: seven bits of a number per byte; the eighth says that more follow.

Numbers are distances from the smallest value, which is in `params`. Rarely the smallest, and slow when lengths
are mixed: it is here because the paper measures it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kedge.codec import scratch
from kedge.codec.base_delta import extremes
from kedge.codec.encoded import Bytes, Codec, Encoded, Values, corrupt, readable, target
from kedge.codec.items import narrow, widen
from kedge.jit import jit


@jit
def _pack(values: Values, base: int, body: Bytes) -> int:
    used = 0
    for value in values:
        left = np.uint64(value - base)
        while left >= np.uint64(128):
            body[used] = np.uint8(left | np.uint64(128))
            left >>= np.uint64(7)
            used += 1
        body[used] = np.uint8(left)
        used += 1
    return used


@jit
def _unpack(values: Values, base: int, body: Bytes) -> int:
    """Fills `values`; returns the bytes used, or -1 when they end early or a number is longer than 64 bits."""
    used = 0
    size = body.shape[0]
    for i in range(values.shape[0]):
        number = np.uint64(0)
        shift = np.uint64(0)
        while True:
            if used >= size or shift > np.uint64(63):
                return -1
            byte = np.uint64(body[used])
            used += 1
            number |= (byte & np.uint64(127)) << shift
            if byte < np.uint64(128):
                break
            shift += np.uint64(7)
        values[i] = np.int64(number) + base
    return used


def _encode(values: Values, _inner: str = "", /) -> Encoded:
    base, top = extremes(values)
    body = scratch.take("body", values.size * max(1, -(-(top - base).bit_length() // 7)))
    used = _pack(widen(values), base, body)
    return Encoded(CODEC.code, (base, 0, 0), body[:used].copy())


def _decode(encoded: Encoded, dtype: np.dtype[Any], rows: int, out: Values | None, /) -> Values:
    out = target(dtype, rows, out)
    wide = scratch.array("varbyte", np.int64, rows)
    if _unpack(wide, encoded.params[0], readable(encoded.body)) != encoded.body.size:
        raise corrupt(CODEC.name, f"{encoded.body.size} bytes do not hold {rows} numbers")
    return narrow(wide, out)


CODEC = Codec(7, "varbyte", _encode, _decode)
