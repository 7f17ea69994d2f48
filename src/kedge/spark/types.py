"""Column types of streams as Spark has them, both ways.

Invariants:
- `to_spark` and `Shape.cast` lose nothing: unsigned integers become the next wider signed type.
- What Spark gets has exactly the Arrow schema that Spark derives from `to_spark`: any other is an error there.
- `Shape.fit` accepts what has the stream's columns in any order, and casts only where no value can change.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from kedge.errors import UsageError

# stream's type -> (Spark's type, the Arrow type that crosses)
_TYPES: dict[pa.DataType, tuple[DataType, pa.DataType]] = {
    pa.bool_(): (BooleanType(), pa.bool_()),
    pa.int8(): (ByteType(), pa.int8()),
    pa.int16(): (ShortType(), pa.int16()),
    pa.int32(): (IntegerType(), pa.int32()),
    pa.int64(): (LongType(), pa.int64()),
    pa.uint8(): (ShortType(), pa.int16()),
    pa.uint16(): (IntegerType(), pa.int32()),
    pa.uint32(): (LongType(), pa.int64()),
    pa.uint64(): (DecimalType(20, 0), pa.decimal128(20, 0)),
    pa.float32(): (FloatType(), pa.float32()),
    pa.float64(): (DoubleType(), pa.float64()),
    pa.date32(): (DateType(), pa.date32()),
    pa.timestamp("us"): (TimestampNTZType(), pa.timestamp("us")),
    pa.timestamp("us", "UTC"): (TimestampType(), pa.timestamp("us", "UTC")),
    pa.string(): (StringType(), pa.string()),
    pa.binary(): (BinaryType(), pa.binary()),
}


def _pair(field: pa.Field) -> tuple[DataType, pa.DataType]:
    if pa.types.is_decimal128(field.type):
        return DecimalType(field.type.precision, field.type.scale), field.type
    if pa.types.is_struct(field.type):
        inner = [pa.field(one.name, _pair(one)[1], True) for one in field.type]
        return StructType([StructField(one.name, _pair(one)[0], True) for one in field.type]), pa.struct(inner)
    if field.type not in _TYPES:
        raise UsageError(f"Column {field.name!r} has type {field.type}, which Spark does not have.")
    return _TYPES[field.type]


def to_spark(schema: pa.Schema) -> StructType:
    """A stream's columns as Spark shows them; every column may be null there, as in any file source."""
    return StructType([StructField(field.name, _pair(field)[0], True) for field in schema])


def crossing(schema: pa.Schema) -> pa.Schema:
    """The Arrow schema in which a stream's columns cross to and from Spark."""
    return pa.schema([pa.field(field.name, _pair(field)[1], True) for field in schema])


def to_cross(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch of a stream's rows, its columns as in `schema`, as Spark takes it; mostly no copy."""
    target = crossing(schema)
    columns = [_cast(batch.column(field.name), field.type) for field in target]
    return pa.RecordBatch.from_arrays(columns, schema=target)


def chosen(schema: pa.Schema, names: Sequence[str], where: str) -> pa.Schema:
    """Some of a stream's columns, in the order given; UsageError when one is not there."""
    missing = [name for name in names if name not in schema.names]
    if missing:
        raise UsageError(f"{where} has no column {missing[0]!r}; it has {', '.join(schema.names)}.")
    return pa.schema([schema.field(name) for name in names])


def check_fits(given: StructType, schema: pa.Schema, where: str) -> None:
    """Whether a DataFrame's columns are the stream's; UsageError names every difference."""
    wrong: list[str] = []
    wanted = {field.name: _pair(field)[0] for field in schema}
    for field in given.fields:
        if field.name not in wanted:
            wrong.append(f"{field.name!r} is not a column of the stream")
        elif field.dataType != wanted[field.name]:
            want = wanted[field.name].simpleString()
            wrong.append(f"{field.name!r} is {field.dataType.simpleString()}, the stream has {want}")
    there = {field.name for field in given.fields}
    wrong += [f"{name!r} is missing" for name in wanted if name not in there]
    if wrong:
        raise UsageError(
            f"The DataFrame's columns do not fit the stream {where}: {'; '.join(wrong)}. "
            "Select and cast before writing.",
            code="schema-mismatch",
        )


def from_cross(batch: pa.RecordBatch, schema: pa.Schema, where: str) -> pa.RecordBatch:
    """Rows that Spark hands over, as the stream keeps them; UsageError for a null or number that can't be kept."""
    columns: list[pa.Array] = []
    for field in schema:
        column = batch.column(field.name)
        if not field.nullable and column.null_count:
            raise UsageError(
                f"Column {field.name!r} has nulls, which the stream {where} does not take. Filter them out."
            )
        try:
            columns.append(_cast(column, field.type))
        except pa.ArrowInvalid as error:
            raise UsageError(f"Column {field.name!r} does not fit the stream {where}: {error}.") from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same values as another type; what can't be the same raises ArrowInvalid."""
    if column.type == kind:
        return column
    if not pa.types.is_struct(kind):
        return column.cast(kind)
    inner = [_cast(column.field(one.name), one.type) for one in kind]
    return pa.StructArray.from_arrays(inner, fields=list(kind), mask=column.is_null())


def to_arrow(given: StructType) -> pa.Schema:
    """The columns of a new stream that takes a DataFrame's rows."""
    return pa.schema([_arrow_field(field) for field in given.fields])


def _arrow_field(field: StructField) -> pa.Field:
    kind = field.dataType
    if isinstance(kind, DecimalType):
        arrow = pa.decimal128(kind.precision, kind.scale)
    elif isinstance(kind, StructType):
        arrow = pa.struct([_arrow_field(one) for one in kind.fields])
    else:
        arrow = dict(reversed(_TYPES.values())).get(kind)
    if arrow is None:
        raise UsageError(
            f"Column {field.name!r} is {kind.simpleString()}, which a stream can't keep. Cast it, or leave it out."
        )
    return pa.field(field.name, arrow, field.nullable)
