"""Reading only what lies between bounds: units that can't have such a row are left out by their statistics.

    rides.read(where={"ts": (noon, None), "fare": (10, 20)})

Bounds are inclusive; None is no bound. A null or a NaN lies between no bounds.

Invariants:
- A unit is left out only if its statistics show that no row of it matches: min and max are bounds, not values.
- Bounds are compared as the statistics are kept: times in microseconds, decimals unscaled, strings by their bytes.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as _pc

from kedge.errors import UsageError
from kedge.streams import nested, unit
from kedge.streams.layout import Header

pc: Any = _pc  # its functions are made at import; type checkers do not see them

Given = Mapping[str, tuple[Any, Any]]


@dataclass(frozen=True, slots=True)
class _Bound:
    """The bounds of one column: as Arrow scalars for rows, as numbers or bytes for statistics."""

    column: str
    low: pa.Scalar | None
    high: pa.Scalar | None
    low_key: Any
    high_key: Any


class Where:
    """Bounds that were checked against a stream's columns."""

    def __init__(self, schema: pa.Schema, given: Given) -> None:
        if not hasattr(given, "items"):
            raise UsageError(f"Rows are picked by where={{'column': (low, high)}}, not by {given!r}.")
        self._schema, self._leaves = schema, nested.leaves(schema)
        self._bounds = [self._bound(name, pair) for name, pair in given.items()]

    def _bound(self, name: str, pair: Any) -> _Bound:
        index = self._leaves.get_field_index(name)
        if index < 0:
            raise UsageError(f"There is no column {name!r} to compare; there are {', '.join(self._leaves.names)}.")
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise UsageError(f"Bounds are written {{{name!r}: (low, high)}}, with None for no bound, not {pair!r}.")
        kind = self._leaves.field(index).type
        low, high = (None if value is None else _scalar(name, kind, value) for value in pair)
        return _Bound(name, low, high, _key(kind, low), _key(kind, high))

    def may_hold(self, header: Header) -> bool:
        """Whether some row of a unit may match."""
        return all(self._overlaps(bound, header) for bound in self._bounds)

    def _overlaps(self, bound: _Bound, header: Header) -> bool:
        if bound.low is None and bound.high is None:
            return True
        least, most, nulls = unit.bounds(header, self._schema, bound.column)
        if nulls == header.rows:
            return False
        if bound.high is not None and least is not None and bound.high_key < least:
            return False
        return bound.low is None or most is None or bound.low_key <= most

    def columns(self, asked: Sequence[str]) -> list[str]:
        """The columns to read: those asked for, and those to compare."""
        tops = (bound.column if bound.column in self._schema.names else bound.column.partition(".")[0]
                for bound in self._bounds)  # fmt: skip
        return list(dict.fromkeys([*asked, *tops]))

    def rows(self, batch: pa.RecordBatch, asked: Sequence[str]) -> pa.RecordBatch:
        """The rows that match, in the columns asked for."""
        mask: Any = None
        for bound in self._bounds:
            values = _column(batch, bound.column)
            for compare, scalar in ((pc.greater_equal, bound.low), (pc.less_equal, bound.high)):
                if scalar is not None:
                    found = compare(values, scalar)
                    mask = found if mask is None else pc.and_(mask, found)
        kept = batch if mask is None else batch.filter(mask)
        return kept.select(list(asked))


def _scalar(name: str, kind: pa.DataType, value: Any) -> pa.Scalar:
    """A bound as the column keeps it; floats as doubles, so that no bound is rounded."""
    try:
        if pa.types.is_floating(kind):
            return pa.scalar(float(value), pa.float64())
        if pa.types.is_integer(kind) and not isinstance(value, str | bytes):
            if value != int(value):
                raise ValueError("not a whole number")
            value = int(value)
        if pa.types.is_date32(kind) and isinstance(value, datetime.datetime):
            raise ValueError("a time, not a day")
        return pa.scalar(value, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"{value!r} can't be compared with column {name!r}, which is {kind}.") from error


def _key(kind: pa.DataType, bound: pa.Scalar | None) -> Any:
    """A bound as `statistics.read` gives a minimum or maximum."""
    if bound is None:
        return None
    if pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        return bound.value  # pyright: ignore[reportAttributeAccessIssue]  (of the scalars of these types)
    value = bound.as_py()
    if pa.types.is_decimal128(kind):
        return int(value.scaleb(kind.scale, decimal.Context(prec=76)))
    return value.encode() if isinstance(value, str) else value


def _column(batch: pa.RecordBatch, name: str) -> Any:
    """A column, or a field of a struct column by its dotted name."""
    if name in batch.schema.names:
        return batch.column(name)
    top, *inner = name.split(".")
    values: Any = batch.column(top)
    for field in inner:
        values = pc.struct_field(values, field)
    return values
