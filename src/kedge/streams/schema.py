"""The types that a stream's columns may have, and their names in stream.json.

A type is written as people write it ("int32", "timestamp[us, UTC]", "decimal128(10, 2)"), a struct as the list of its
fields; the code beside it is the on-disk number in a unit's column descriptor and is never reused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from kedge.errors import CorruptError, UsageError
from kedge.streams import nested

_SIMPLE: dict[str, tuple[int, pa.DataType]] = {
    "int8": (1, pa.int8()),
    "int16": (2, pa.int16()),
    "int32": (3, pa.int32()),
    "int64": (4, pa.int64()),
    "uint8": (5, pa.uint8()),
    "uint16": (6, pa.uint16()),
    "uint32": (7, pa.uint32()),
    "uint64": (8, pa.uint64()),
    "float32": (9, pa.float32()),
    "float64": (10, pa.float64()),
    "bool": (11, pa.bool_()),
    "date32": (12, pa.date32()),
    "timestamp[us]": (13, pa.timestamp("us")),
    "timestamp[us, UTC]": (14, pa.timestamp("us", "UTC")),
    "string": (16, pa.string()),
    "binary": (17, pa.binary()),
}
DECIMAL = 15
_DECIMAL_NAME = re.compile(r"decimal128\((\d+), (-?\d+)\)")
_BY_TYPE = {kind: (name, code) for name, (code, kind) in _SIMPLE.items()}


def type_name(kind: pa.DataType) -> str | None:
    """The name of a type, or None when no stream can have it."""
    if pa.types.is_decimal128(kind):
        return f"decimal128({kind.precision}, {kind.scale})"
    known = _BY_TYPE.get(kind)
    return known[0] if known else None


def type_code(kind: pa.DataType) -> int:
    """The on-disk number of a type that `check` has let through."""
    return DECIMAL if pa.types.is_decimal128(kind) else _BY_TYPE[kind][1]


def given(schema: Any) -> pa.Schema:
    """An Arrow schema of what a caller gives for one."""
    if isinstance(schema, pa.Schema):
        return schema
    try:
        return pa.schema(schema)
    except (TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{schema!r} is not a schema: {error}. Give names and Arrow types.") from error


def check(schema: pa.Schema, event_time: str | None) -> pa.Schema:
    """`schema` without metadata, if a stream can have it; UsageError says which column and what to do."""
    if not len(schema):
        raise UsageError("A stream needs at least one column.")
    if len(set(schema.names)) < len(schema):
        raise UsageError("Two columns have the same name; rename one.")
    for column in nested.leaves(schema):
        if type_name(column.type) is None:
            raise UsageError(
                f"Column {column.name!r} has type {column.type}, which a stream can't keep. Cast it to one of: "
                f"{', '.join(_SIMPLE)}, decimal128."
            )
    if event_time is not None:
        if event_time not in schema.names:
            raise UsageError(f"The event time {event_time!r} is not a column; there are {', '.join(schema.names)}.")
        if not pa.types.is_timestamp(schema.field(event_time).type):
            raise UsageError(
                f"The event time {event_time!r} is {schema.field(event_time).type}; cast it to timestamp[us]."
            )
    return pa.schema([pa.field(column.name, column.type, column.nullable) for column in schema])


def parse_type(name: str) -> pa.DataType:
    """The type that a person wrote; UsageError says which there are."""
    try:
        return _parse(name.strip())
    except CorruptError:
        known = f"{', '.join(_SIMPLE)}, decimal128(PRECISION, SCALE)"
        raise UsageError(f"{name!r} is not a column type of a stream. There are: {known}.") from None


def to_json(schema: Iterable[pa.Field]) -> list[dict[str, Any]]:
    """The form in stream.json."""
    return [
        {
            "name": field.name,
            "type": to_json(field.type) if pa.types.is_struct(field.type) else type_name(field.type),
            "nullable": field.nullable,
        }
        for field in schema
    ]


def from_json(fields: Sequence[Mapping[str, Any]]) -> pa.Schema:
    """Read it back."""
    return pa.schema([pa.field(f["name"], _parse(f["type"]), bool(f["nullable"])) for f in fields])


def _parse(name: str | Sequence[Mapping[str, Any]]) -> pa.DataType:
    if not isinstance(name, str):
        return pa.struct(from_json(name))
    if name in _SIMPLE:
        return _SIMPLE[name][1]
    found = _DECIMAL_NAME.fullmatch(name)
    if found is None or not 1 <= int(found[1]) <= 38:
        raise CorruptError(f"{name!r} is not a column type that this Kedge knows.")
    return pa.decimal128(int(found[1]), int(found[2]))
