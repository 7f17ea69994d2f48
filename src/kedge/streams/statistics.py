"""Minimum and maximum of a column of a unit, for pruning.

Sixteen bytes each: int64 or uint64 or float64 in the first eight, a decimal in all, the first sixteen bytes of a
string. A statistic is a bound, never a promise that a value exists. A column with a NaN has none, since engines
order NaN differently; an all-null column has none.
"""

from __future__ import annotations

import struct
from math import isnan
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as _pc

from kedge.streams.columns import fixed_values, np_type

pc: Any = _pc  # its functions are made at import; type checkers do not see them

HAS_MIN, HAS_MAX = 1, 2
_I64, _U64, _F64 = struct.Struct("<q"), struct.Struct("<Q"), struct.Struct("<d")
Bounds = tuple[int, bytes, bytes]
NONE: Bounds = (0, b"", b"")


def of(array: pa.Array, bounds: tuple[int, int] | None = None) -> Bounds:
    """(flags, min, max) of a column; `bounds` are those of its values, if the codec has seen them."""
    if bounds is not None and not array.null_count:
        known = _of_seen(np_type(array.type), *bounds)
        if known is not None:
            return known
    if array.null_count == len(array):
        return NONE
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _of_bytes(array)
    if pa.types.is_boolean(kind) or pa.types.is_decimal128(kind):
        found = pc.min_max(array)
        low, high = found["min"].as_py(), found["max"].as_py()
        if pa.types.is_boolean(kind):
            return 3, _I64.pack(low), _I64.pack(high)
        return 3, _decimal(low, kind), _decimal(high, kind)
    values = fixed_values(array.drop_null() if array.null_count else array)
    low, high = values.min(), values.max()
    if values.dtype.kind == "f":
        return NONE if np.isnan(low) else (3, _F64.pack(low), _F64.pack(high))
    packer = _U64 if values.dtype.kind == "u" else _I64
    return 3, packer.pack(int(low)), packer.pack(int(high))


def _of_seen(kind: np.dtype[Any], low: int, high: int) -> Bounds | None:
    """Of what a codec saw as signed integers; None where their order is not that of the values."""
    if kind.kind == "i" or low >= 0:  # floats that are not negative are in the order of their bits, NaN above all
        if kind.kind != "f":
            packer = _U64 if kind.kind == "u" else _I64
            return 3, packer.pack(low), packer.pack(high)
        first, last = np.array([low, high], f"i{kind.itemsize}").view(kind).tolist()
        return NONE if isnan(last) else (3, _F64.pack(first), _F64.pack(last))
    return None


def _decimal(value: Any, kind: pa.DataType) -> bytes:
    return int(value.scaleb(kind.scale)).to_bytes(16, "little", signed=True)


def _of_bytes(array: pa.Array) -> Bounds:
    found = pc.min_max(array.cast(pa.binary()))
    low, high = found["min"].as_py(), found["max"].as_py()
    # A cut minimum is still a lower bound; a cut maximum is not an upper bound.
    return HAS_MIN | (HAS_MAX if len(high) < 16 and b"\0" not in high else 0), low[:16], high[:16]


def read(kind: pa.DataType, flags: int, low: bytes, high: bytes) -> tuple[Any, Any]:
    """(min, max) as Python numbers or bytes; None where there is no bound. Times are microseconds, dates days."""
    return (_read(kind, low) if flags & HAS_MIN else None, _read(kind, high) if flags & HAS_MAX else None)


def _read(kind: pa.DataType, raw: bytes) -> Any:
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return raw.rstrip(b"\0")
    if pa.types.is_decimal128(kind):
        return int.from_bytes(raw, "little", signed=True)
    if pa.types.is_floating(kind):
        return _F64.unpack_from(raw)[0]
    return (_U64 if pa.types.is_unsigned_integer(kind) else _I64).unpack_from(raw)[0]
