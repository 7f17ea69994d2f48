"""Struct columns as columns of their fields: a unit keeps `w.start` and `w.end` where the stream has a struct `w`.

A struct itself has no nulls (its fields may), so that its shape costs nothing on disk.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from kedge.errors import UsageError


def leaves(schema: pa.Schema) -> pa.Schema:
    """The columns that a unit keeps for `schema`."""
    return pa.schema([leaf for field in schema for leaf in leaves_of(field)])


def leaves_of(field: pa.Field) -> list[pa.Field]:
    """The columns that a unit keeps for one column."""
    if not pa.types.is_struct(field.type):
        return [field]
    return [leaf.with_name(f"{field.name}.{leaf.name}") for inner in field.type for leaf in leaves_of(inner)]


def flatten(batch: pa.RecordBatch | pa.Table) -> pa.RecordBatch | pa.Table:
    """The same rows with leaves for columns; the same object when it has no structs."""
    if not any(pa.types.is_struct(kind) for kind in batch.schema.types):
        return batch
    if isinstance(batch, pa.Table):
        return pa.Table.from_batches([flatten(piece) for piece in batch.to_batches()])
    arrays = [
        leaf for field, array in zip(batch.schema, batch.columns, strict=True) for leaf in _leaves(field, array)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=leaves(batch.schema))


def _leaves(field: pa.Field, array: pa.Array) -> Iterator[pa.Array]:
    if not pa.types.is_struct(field.type):
        yield array
        return
    if array.null_count:
        raise UsageError(f"Column {field.name!r} is a struct with nulls; only the fields of a struct may be null.")
    for inner, values in zip(field.type, array.flatten(), strict=True):
        yield from _leaves(inner, values)


def nest(arrays: Iterator[pa.Array], field: pa.Field) -> pa.Array:
    """The column `field` from its leaves, taken from `arrays` in order."""
    if not pa.types.is_struct(field.type):
        return next(arrays)
    inner = [nest(arrays, child) for child in field.type]
    return pa.StructArray.from_arrays(inner, fields=list(field.type))
