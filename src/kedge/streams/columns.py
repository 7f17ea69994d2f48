"""One Arrow column to buffers and back.

A column is `Buffers`: a layout and, in order, the buffers that the layout wants. A null's value is written as zero
and the bits after the last row as zeros, so equal columns are equal bytes.

| layout  | buffers                                       | used for                                     |
|---------|-----------------------------------------------|----------------------------------------------|
| NULLS   | none                                          | a column of nulls only                       |
| FIXED   | [validity] values                             | numbers, dates, times                        |
| BITS    | [validity] bits                               | bool                                         |
| BYTES   | [validity] lengths, bytes                     | string, binary                               |
| DICT    | [validity] codes, lengths, bytes (dictionary) | string, binary with few distinct values      |
| DECIMAL | [validity] low [high]                         | decimal128; high only where low is not all   |

Reading checks what it is given: a count, a length or a code that does not fit is a CorruptError, never a read
outside. A plain FIXED column is a view of the bytes that were read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kedge.errors import CorruptError

NULLS, FIXED, BITS, BYTES, DICT, DECIMAL = range(6)
VALIDITY, VALUES, LENGTHS, RAW, CODES, HIGH = range(6)  # the roles of buffers

DTYPES = {
    code: np.dtype(name)
    for code, name in enumerate(("i1", "<i2", "<i4", "<i8", "u1", "<u2", "<u4", "<u8", "<f4", "<f8"), start=1)
}
DTYPE_CODES = {kind: code for code, kind in DTYPES.items()}
U8, I32, I64 = DTYPES[5], DTYPES[3], DTYPES[4]

_DICTIONARY_MAX = 1 << 16
_SAMPLE = 4096
BYTES_MAX = (1 << 31) - 1  # of one string column of a unit: Arrow's offsets are int32

Read = Callable[[int, np.dtype[Any], int], NDArray[Any]]  # (buffer's place in the column, dtype, count) -> values


@dataclass(frozen=True, slots=True)
class Buffers:
    """A column ready for the codecs."""

    layout: int
    parts: tuple[tuple[int, NDArray[Any]], ...]  # (role, values)
    nulls: int


def split(array: pa.Array) -> Buffers:
    """The buffers of a column."""
    nulls = array.null_count
    if nulls == len(array) and nulls:
        return Buffers(NULLS, (), nulls)
    head = ((VALIDITY, _bits(array.buffers()[0], array.offset, len(array))),) if nulls else ()
    kind = array.type
    if pa.types.is_boolean(kind):
        filled = array.fill_null(False) if nulls else array
        return Buffers(BITS, (*head, (VALUES, _bits(filled.buffers()[1], filled.offset, len(filled)))), nulls)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        layout, parts = _split_bytes(array)
        return Buffers(layout, (*head, *parts), nulls)
    if pa.types.is_decimal128(kind):
        return Buffers(DECIMAL, (*head, *_split_decimal(array)), nulls)
    return Buffers(FIXED, (*head, (VALUES, fixed_values(array))), nulls)


def fixed_values(array: pa.Array) -> NDArray[Any]:
    """The values of a fixed-width column, nulls as zeros; a view where there are none."""
    kind = np_type(array.type)
    if array.null_count:
        array = array.view(pa.from_numpy_dtype(kind)).fill_null(0)
    return _view(array.buffers()[1], kind, len(array), array.offset)


def np_type(kind: pa.DataType) -> np.dtype[Any]:
    """The numpy type of a fixed-width Arrow type."""
    if pa.types.is_date32(kind):
        return I32
    return I64 if pa.types.is_timestamp(kind) else np.dtype(kind.to_pandas_dtype())


def _view(buffer: pa.Buffer | None, kind: np.dtype[Any], count: int, offset: int) -> NDArray[Any]:
    if buffer is None or not count:
        return np.empty(0, kind)
    return np.frombuffer(buffer, kind, count, offset * kind.itemsize)


def _bits(buffer: pa.Buffer, offset: int, count: int) -> NDArray[np.uint8]:
    raw = np.frombuffer(buffer, np.uint8)
    if offset % 8:
        return np.packbits(np.unpackbits(raw, bitorder="little")[offset : offset + count], bitorder="little")
    bits = raw[offset // 8 : offset // 8 + -(-count // 8)]
    if count % 8:
        bits = bits.copy()
        bits[-1] &= (1 << count % 8) - 1
    return bits


def _split_bytes(array: pa.Array) -> tuple[int, tuple[tuple[int, NDArray[Any]], ...]]:
    if _few_distinct(array):
        coded = array.dictionary_encode()
        if len(coded.dictionary) <= min(_DICTIONARY_MAX, max(1, len(array) // 4)):
            codes = coded.indices.fill_null(0) if coded.null_count else coded.indices
            small = np.uint8 if len(coded.dictionary) <= 256 else np.uint16
            values = _view(codes.buffers()[1], I32, len(codes), codes.offset).astype(small)
            return DICT, ((CODES, values), *_lengths_and_bytes(coded.dictionary))
    return BYTES, _lengths_and_bytes(array)


def _few_distinct(array: pa.Array) -> bool:
    step = max(1, len(array) // _SAMPLE)
    sample = array.slice(0, _SAMPLE) if step == 1 else array.take(pa.array(np.arange(0, len(array), step)))
    return len(sample) >= 16 and len(sample.unique()) <= len(sample) // 2


def _lengths_and_bytes(array: pa.Array) -> tuple[tuple[int, NDArray[Any]], ...]:
    if array.null_count:
        array = array.fill_null(b"" if pa.types.is_binary(array.type) else "")
    offsets = _view(array.buffers()[1], I32, len(array) + 1, array.offset) if len(array) else np.zeros(1, I32)
    raw = _view(array.buffers()[2], U8, int(offsets[-1]), 0)[int(offsets[0]) :]
    return (LENGTHS, np.diff(offsets)), (RAW, raw)


def _split_decimal(array: pa.Array) -> tuple[tuple[int, NDArray[Any]], ...]:
    words = _view(array.buffers()[1], I64, 2 * len(array), 2 * array.offset).reshape(-1, 2)
    low, high = words[:, 0].copy(), words[:, 1].copy()
    if array.null_count:
        absent = np.asarray(array.is_null().to_numpy(zero_copy_only=False))
        low[absent] = high[absent] = 0
    parts: tuple[tuple[int, NDArray[Any]], ...] = ((VALUES, low),)
    return parts if np.array_equal(high, low >> 63) else (*parts, (HIGH, high))


# ---- and back ----------------------------------------------------------------------------------------------


def join(
    kind: pa.DataType, layout: int, nulls: int, rows: int, roles: list[int], counts: list[int], read: Read
) -> pa.Array:
    """The Arrow column of the buffers that `read` gives."""
    if layout == NULLS:
        _want(nulls == rows and not roles, "a column of nulls has values")
        return pa.nulls(rows, kind)
    validity = None
    first = 0
    if nulls:
        _want(nulls <= rows and roles[:1] == [VALIDITY], "nulls without a bitmap")
        bits = read(0, U8, -(-rows // 8))
        _want(not rows % 8 or not bits[-1] >> rows % 8, "its bitmap goes on after the last row")
        _want(int(np.bitwise_count(bits).sum()) == rows - nulls, "its bitmap has another number of nulls")
        validity = pa.py_buffer(bits)
        first = 1
    want = _WANTED.get(layout, {})
    _want(tuple(roles[first:]) in want, "its buffers are not those of its layout")
    return want[tuple(roles[first:])](kind, nulls, rows, validity, first, counts, read)


def _want(condition: bool, what: str) -> None:
    if not condition:
        raise CorruptError(what, code="unit-column")


def _join_fixed(
    kind: pa.DataType, nulls: int, rows: int, validity: pa.Buffer | None, first: int, _counts: list[int], read: Read
) -> pa.Array:
    _want(not pa.types.is_boolean(kind) and kind.num_buffers == 2, "its layout is not for its type")
    values = read(first, np_type(kind), rows)
    return pa.Array.from_buffers(kind, rows, [validity, pa.py_buffer(values)], nulls)


def _join_bits(
    kind: pa.DataType, nulls: int, rows: int, validity: pa.Buffer | None, first: int, _counts: list[int], read: Read
) -> pa.Array:
    _want(pa.types.is_boolean(kind), "its layout is not for its type")
    return pa.Array.from_buffers(kind, rows, [validity, pa.py_buffer(read(first, U8, -(-rows // 8)))], nulls)


def _join_bytes(
    kind: pa.DataType, nulls: int, rows: int, validity: pa.Buffer | None, first: int, counts: list[int], read: Read
) -> pa.Array:
    _want(pa.types.is_string(kind) or pa.types.is_binary(kind), "its layout is not for its type")
    lengths = read(first, I32, rows)
    _want(not rows or int(lengths.min()) >= 0, "a string's length is negative")
    offsets = np.zeros(rows + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    total = int(offsets[-1])
    _want(total <= BYTES_MAX and total == counts[first + 1], "its strings do not add up to its bytes")
    raw = read(first + 1, U8, total)
    buffers = [validity, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(raw)]
    array = pa.Array.from_buffers(kind, rows, buffers, nulls)
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        raise CorruptError(str(error), code="unit-column") from error
    return array


def _join_dict(
    kind: pa.DataType, nulls: int, rows: int, validity: pa.Buffer | None, first: int, counts: list[int], read: Read
) -> pa.Array:
    entries = counts[first + 1]
    _want(entries <= _DICTIONARY_MAX, "its dictionary is too large")
    dictionary = _join_bytes(kind, 0, entries, None, first + 1, counts, read)
    codes = read(first, U8 if entries <= 256 else DTYPES[6], rows)
    _want(not rows or int(codes.max()) < entries, "a code is not in its dictionary")
    indices = pa.Array.from_buffers(pa.from_numpy_dtype(codes.dtype), rows, [validity, pa.py_buffer(codes)], nulls)
    return dictionary.take(indices)


def _join_decimal(
    kind: pa.DataType, nulls: int, rows: int, validity: pa.Buffer | None, first: int, counts: list[int], read: Read
) -> pa.Array:
    _want(pa.types.is_decimal128(kind), "its layout is not for its type")
    words = np.empty((rows, 2), np.int64)
    words[:, 0] = read(first, I64, rows)
    words[:, 1] = read(first + 1, I64, rows) if len(counts) > first + 1 else words[:, 0] >> 63
    return pa.Array.from_buffers(kind, rows, [validity, pa.py_buffer(words)], nulls)


_WANTED: dict[int, dict[tuple[int, ...], Callable[..., pa.Array]]] = {
    FIXED: {(VALUES,): _join_fixed},
    BITS: {(VALUES,): _join_bits},
    BYTES: {(LENGTHS, RAW): _join_bytes},
    DICT: {(CODES, LENGTHS, RAW): _join_dict},
    DECIMAL: {(VALUES,): _join_decimal, (VALUES, HIGH): _join_decimal},
}
