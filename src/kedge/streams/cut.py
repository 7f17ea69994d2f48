"""Cuts what a caller appends into batches of one unit each, after checking that it fits the stream.

Taken is what pyarrow can see as a table: its own types, dicts of columns, lists of rows, DataFrames, readers. Columns
are cast only to another form of the same values (dictionaries, large strings, other time units, wider numbers); what
would change a value is an error, and so is a column that is missing or unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from kedge.errors import UsageError
from kedge.streams.layout import ROWS_MAX

UNIT_BYTES_MAX = 64 << 20  # of raw rows: workers share what is larger


def batches(data: Any, schema: pa.Schema, *, empty: bool, rows_max: int = ROWS_MAX) -> list[pa.RecordBatch]:
    """The batches of one append. Columns may come in any order; with `empty`, no rows still make one batch."""
    fitted = _fit(_table(data, schema), schema)
    found = [piece for batch in fitted.to_batches(max_chunksize=rows_max) for piece in _by_bytes(batch)]
    if not found and empty:
        return [pa.RecordBatch.from_pylist([], schema=schema)]
    return found


def _table(data: Any, schema: pa.Schema) -> pa.Table:
    """What was given, as a table with its own types, or the stream's where it has none."""
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    try:
        if isinstance(data, dict):
            _check_names(schema, [str(name) for name in data])
            return pa.Table.from_pydict({name: data[name] for name in schema.names}, schema=schema)
        if isinstance(data, list):
            _check_names(
                schema, list(dict.fromkeys(name for row in data for name in row)) if data else schema.names
            )
            return pa.Table.from_pylist(data, schema=schema)
        if type(data).__module__.startswith("pandas"):
            return pa.Table.from_pandas(data, preserve_index=False)
        return pa.table(data)
    except (pa.ArrowException, TypeError, ValueError, AttributeError) as error:
        raise UsageError(
            f"{type(data).__name__} can't be appended: {error}. Give an Arrow batch or table, a DataFrame, a dict of "
            "columns or a list of rows, with the stream's columns."
        ) from error


def _check_names(schema: pa.Schema, given: list[str]) -> None:
    missing, extra = sorted(set(schema.names) - set(given)), sorted(set(given) - set(schema.names))
    if missing or extra or len(given) != len(schema):
        raise UsageError(
            f"These are not the stream's columns: missing {missing or 'none'}, unknown {extra or 'none'}."
        )


def _fit(table: pa.Table, schema: pa.Schema) -> pa.Table:
    if table.schema.names != schema.names:
        _check_names(schema, table.schema.names)
        table = table.select(schema.names)
    for index, (want, have) in enumerate(zip(schema, table.schema, strict=True)):
        if want.type != have.type:
            table = table.set_column(index, want, _same_values(table.column(index), want, have.type))
        if not want.nullable and table.column(index).null_count:
            raise UsageError(f"Column {want.name!r} has nulls; the stream says that it has none.")
    return table if all(column.num_chunks <= 1 for column in table.columns) else _combined(table)


def _same_values(column: pa.ChunkedArray, want: pa.Field, have: pa.DataType) -> pa.ChunkedArray:
    """The column in the stream's type, if that is only another form of the same values."""
    try:
        if _is_form_of(have, want.type):
            return column.cast(want.type)
        why = "Cast it first."
    except pa.ArrowInvalid as error:
        why = f"Its values do not fit: {error}."
    raise UsageError(f"Column {want.name!r} is {have}; the stream has {want.type}. {why}")


def _is_form_of(have: pa.DataType, want: pa.DataType) -> bool:
    kinds = pa.types
    if isinstance(have, pa.DictionaryType):
        return have.value_type == want or _is_form_of(have.value_type, want)
    if kinds.is_timestamp(want):
        return kinds.is_timestamp(have) and (have.tz is None) == (want.tz is None)
    for text in (
        (kinds.is_string, kinds.is_large_string, kinds.is_string_view),
        (kinds.is_binary, kinds.is_large_binary, kinds.is_binary_view, kinds.is_fixed_size_binary),
    ):
        if text[0](want):
            return any(one(have) for one in text)
    for number in (kinds.is_signed_integer, kinds.is_unsigned_integer, kinds.is_floating):
        if number(want) and number(have):
            return have.bit_width < want.bit_width
    return kinds.is_null(have) or (kinds.is_date(have) and kinds.is_date(want))


def _combined(table: pa.Table) -> pa.Table:
    # Many small chunks would make as many units; strings past 2 GiB keep their chunks.
    return table.combine_chunks()


def _by_bytes(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if batch.nbytes <= UNIT_BYTES_MAX or batch.num_rows <= 1:
        if batch.nbytes > (1 << 31) - 1:
            raise UsageError(f"One row has {batch.nbytes:,} bytes; 2 GiB is the most.")
        yield batch
        return
    half = batch.num_rows // 2
    yield from _by_bytes(batch.slice(0, half))
    yield from _by_bytes(batch.slice(half))
