"""Cuts what a caller appends into batches of one unit each, after checking that it fits the stream."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from kedge.errors import UsageError
from kedge.streams.layout import ROWS_MAX

UNIT_BYTES_MAX = 256 << 20


def batches(
    data: pa.RecordBatch | pa.Table, schema: pa.Schema, *, empty: bool, rows_max: int = ROWS_MAX
) -> list[pa.RecordBatch]:
    """The batches of one append. Columns may come in any order; with `empty`, no rows still make one batch."""
    fitted = _fit(data, schema)
    found = [piece for batch in fitted.to_batches(max_chunksize=rows_max) for piece in _by_bytes(batch)]
    if not found and empty:
        return [pa.RecordBatch.from_pylist([], schema=schema)]
    return found


def _fit(data: pa.RecordBatch | pa.Table, schema: pa.Schema) -> pa.Table:
    if data.schema.names != schema.names:
        missing = sorted(set(schema.names) - set(data.schema.names))
        extra = sorted(set(data.schema.names) - set(schema.names))
        if missing or extra or len(data.schema) != len(schema):
            raise UsageError(
                f"These are not the stream's columns: missing {missing or 'none'}, unknown {extra or 'none'}."
            )
        data = data.select(schema.names)
    for want, have in zip(schema, data.schema, strict=True):
        if want.type != have.type:
            raise UsageError(f"Column {want.name!r} is {have.type}; the stream has {want.type}. Cast it first.")
        if not want.nullable and data.column(want.name).null_count:
            raise UsageError(f"Column {want.name!r} has nulls; the stream says that it has none.")
    table = pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else data
    return table if all(column.num_chunks <= 1 for column in table.columns) else _combined(table)


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
