"""A unit: the block of rows that is written, read, checked and discarded whole.

`encode` makes its bytes of an Arrow record batch, `header` checks what the bytes say of themselves, `decode`
gives the batch back: whole, or only some columns, of which plain fixed-width ones are views of the bytes.

It does not know where units are kept; the caller's `seed` ties a unit to its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kedge import codec
from kedge.codec import scratch
from kedge.errors import CorruptError, UsageError
from kedge.streams import columns as cols
from kedge.streams import nested, statistics
from kedge.streams import schema as schemas
from kedge.streams.layout import (
    ALIGN,
    ATOMIC,
    BUFFER,
    COLUMN,
    MORE,
    ROWS_MAX,
    Header,
    Lineage,
    aligned,
    checksum,
    header_size,
    pack,
    parse,
    place,
    seed,
)

__all__ = ["ROWS_MAX", "Header", "Lineage", "bounds", "decode", "encode", "field", "header", "place", "seed"]

PAGE = 4096


def encode(
    batch: pa.RecordBatch | pa.Table,
    *,
    first_offset: int,
    seed: int,
    lineage: Lineage | None = None,
    event_time: str | None = None,
    epoch: int = 0,
    more: bool = False,
    atomic: bool = False,
    producer: str | None = None,
    sequence: int | None = None,
    choosers: codec.Choosers | None = None,
    whole_pages: bool = False,
) -> NDArray[np.uint8]:
    """The bytes of a unit, in memory that begins at a page: what direct writes want.

    The chunks of a table are put together column by column, while they are in the cache. `choosers` remember from unit
    to unit which codec suits which column; with `whole_pages` zeros follow the unit, up to the end of its last page.
    """
    batch = nested.flatten(batch)
    rows = batch.num_rows
    if rows > ROWS_MAX:
        raise UsageError(f"A unit has at most {ROWS_MAX:,} rows, this batch has {rows:,}. Cut it into slices.")
    choosers = choosers or codec.Choosers()
    columns = [_whole(column) for column in batch.columns]
    split = [cols.split(column) for column in columns]
    column_table = np.zeros(len(columns), COLUMN)
    buffer_table = np.zeros(sum(len(one.parts) for one in split), BUFFER)
    header_bytes = size = header_size(len(column_table), len(buffer_table), lineage, producer)
    room = scratch.pages(aligned(size + _room(split), PAGE))
    first = 0
    for index, (column, buffers) in enumerate(zip(columns, split, strict=True)):
        table = buffer_table[first : first + len(buffers.parts)]
        size, bounds = _encode_buffers(index, buffers, choosers, table, room, size)
        _describe(column, buffers, first, bounds, column_table[index : index + 1])
        first += len(table)
    min_us, max_us = _event_times(batch, column_table, event_time)
    flags = (MORE if more else 0) | (ATOMIC if atomic else 0)
    head = Header(
        rows, first_offset, min_us, max_us, size, header_bytes, epoch, flags, lineage, producer, sequence, seed,
        column_table, buffer_table,
    )  # fmt: skip
    room[:header_bytes] = np.frombuffer(pack(head), np.uint8)
    end = aligned(size, PAGE) if whole_pages else size
    room[size:end] = 0
    scratch.keep(room, end)
    return room[:end]


def _room(split: Sequence[cols.Buffers]) -> int:
    """More bytes than all bodies can take; pages of it that are not written cost nothing."""
    values = [part for buffers in split for _, part in buffers.parts]
    longest = max((part.size for part in values), default=0)
    return sum(aligned(part.nbytes) + ALIGN for part in values) + codec.room(longest)


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column in one piece. A table releases the interpreter's lock while it copies, `concat_arrays` does not."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return pa.Table.from_arrays([column], ["c"]).combine_chunks().column(0).chunk(0)


def _encode_buffers(
    index: int,
    buffers: cols.Buffers,
    choosers: codec.Choosers,
    table: NDArray[Any],
    room: NDArray[np.uint8],
    size: int,
) -> tuple[int, tuple[int, int] | None]:
    """Encode a column's buffers to `room` from byte `size` on; the end, and the bounds of the last buffer's values."""
    bounds = None
    for part, (role, values) in enumerate(buffers.parts):
        with scratch.lend(room[size:]):
            encoded = choosers.encode((index, buffers.layout, role), np.ascontiguousarray(values))
        body = room[size : size + encoded.body.size]
        if encoded.body.ctypes.data != body.ctypes.data:
            body[:] = encoded.body
        kind = cols.DTYPE_CODES[values.dtype]
        table[part] = (role, kind, encoded.codec, 0, encoded.params, values.size, size, body.size, checksum(body))
        end = aligned(size + body.size)
        room[size + body.size : end] = 0
        size, bounds = end, encoded.bounds
    return size, bounds


def _describe(
    array: pa.Array, buffers: cols.Buffers, first: int, bounds: tuple[int, int] | None, row: NDArray[Any]
) -> None:
    """A column's entry in the header."""
    flags, low, high = statistics.of(array, bounds if buffers.layout == cols.FIXED else None)
    row["type"], row["layout"], row["stats"] = schemas.type_code(array.type), buffers.layout, flags
    row["nulls"], row["first_buffer"], row["buffers"] = buffers.nulls, first, len(buffers.parts)
    row["min"], row["max"] = np.void(low.ljust(16, b"\0")), np.void(high.ljust(16, b"\0"))


def _event_times(batch: pa.RecordBatch, column_table: NDArray[Any], event_time: str | None) -> tuple[Any, Any]:
    """(min, max) of the event time: the statistics of its column."""
    if event_time is None:
        return None, None
    index = batch.schema.get_field_index(event_time)
    row = column_table[index]
    kind = batch.schema.field(index).type
    return statistics.read(kind, int(row["stats"]), bytes(row["min"]), bytes(row["max"]))


def header(buf: Any, *, seed: int, start: int = 0) -> Header:
    """The checked header of the unit at `start` of `buf`; CorruptError names the byte."""
    return parse(memoryview(buf).cast("B"), start, seed)


def decode(
    buf: Any, header: Header, schema: pa.Schema, columns: Sequence[str] | None = None, *, start: int = 0
) -> pa.RecordBatch:
    """The rows of the unit at `start` of `buf`: all columns of `schema`, or those named, in the order named."""
    if header.lost:
        raise CorruptError(
            f"byte {start}: rows {header.first_offset} to {header.end} were lost before a repair. Skip them.",
            code="rows-lost",
        )
    kept = nested.leaves(schema)
    if len(header.columns) != len(kept):
        raise CorruptError(f"byte {start}: {len(header.columns)} columns where the stream has {len(kept)}.")
    whole = np.frombuffer(buf, np.uint8, header.bytes, start)
    picked = pa.schema([field(schema, name) for name in (schema.names if columns is None else columns)])
    leaves = (
        _decode_column(whole, header, kept.get_field_index(leaf.name), leaf, start)
        for column in picked
        for leaf in nested.leaves_of(column)
    )
    arrays = [nested.nest(leaves, column) for column in picked]
    if not arrays:  # rows without columns: count(*)
        return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), header.rows, [None]))
    return pa.RecordBatch.from_arrays(arrays, schema=picked)


def places(schema: pa.Schema, columns: Sequence[str]) -> list[int]:
    """Where a unit keeps what these columns are made of."""
    kept = nested.leaves(schema)
    return [kept.get_field_index(leaf.name) for name in columns for leaf in nested.leaves_of(field(schema, name))]


def field(schema: pa.Schema, name: str) -> pa.Field:
    """A column by its name; UsageError when there is none."""
    index = schema.get_field_index(name)
    if index < 0:
        raise UsageError(f"There is no column {name!r}; there are {', '.join(schema.names)}.")
    return schema.field(index)


def _decode_column(whole: NDArray[np.uint8], header: Header, index: int, field: pa.Field, start: int) -> pa.Array:
    row = header.columns[index]
    first, count = int(row["first_buffer"]), int(row["buffers"])
    table = header.buffers[first : first + count]

    def read(part: int, kind: np.dtype[Any], rows: int) -> NDArray[Any]:
        return _decode_buffer(whole, table[part], kind, rows)

    try:
        if int(row["type"]) != schemas.type_code(field.type):
            raise CorruptError(f"its type code is {int(row['type'])}, not that of {field.type}", code="unit-column")
        return cols.join(
            field.type, int(row["layout"]), int(row["nulls"]), header.rows, table["role"].tolist(),
            table["count"].tolist(), read,
        )  # fmt: skip
    except CorruptError as error:
        byte = start + (int(table["start"][0]) if count else 0)
        raise CorruptError(f"byte {byte}: column {field.name!r}: {error}", code=error.code) from error


def _decode_buffer(whole: NDArray[np.uint8], entry: Any, kind: np.dtype[Any], rows: int) -> NDArray[Any]:
    _, code, number, _, params, count, at, size, sum_ = entry.item()
    if cols.DTYPES.get(code) != kind or count != rows:
        raise CorruptError(f"{count} values of type code {code} where {rows} of {kind} belong", code="unit-column")
    body = whole[at : at + size]
    if checksum(body) != sum_:
        raise CorruptError(f"the checksum of its bytes {at} to {at + size} does not match", code="unit-checksum")
    values = codec.decode(codec.Encoded(number, tuple(params), body), kind, rows)
    if values.shape != (rows,) or values.dtype != kind:
        raise CorruptError(f"codec {number} gave {values.shape} of {values.dtype}", code="unit-column")
    return np.ascontiguousarray(values)


def bounds(header: Header, schema: pa.Schema, name: str) -> tuple[Any, Any, int]:
    """(min, max, nulls) of a column, from the header alone; None where there is no bound."""
    kept = nested.leaves(schema)
    index = kept.get_field_index(name)
    row = header.columns[index]
    low, high = statistics.read(kept.field(index).type, int(row["stats"]), bytes(row["min"]), bytes(row["max"]))
    return low, high, int(row["nulls"])
