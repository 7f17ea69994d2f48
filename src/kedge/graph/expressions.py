"""Expressions of a query as small immutable nodes, typed and bound to their input's columns.

Invariants:
- Every node knows its result type, an Arrow type; `NULL` alone has the type `null`, and only until it is coerced.
- `str(node)` is the name that Spark gives to a result column of this expression: `count(1)`, `(k % 3)`.
- Coercions are explicit: the sides of a binary operation have the same type, a `Cast` node does the conversion. A
  cast that Spark inserts by itself (`implicit`) does not show in the name.

Nothing is evaluated here: the kernel room generates code from these nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, TypeAlias

import pyarrow as pa

BOOL = pa.bool_()
INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
FLOATS = (pa.float32(), pa.float64())
_SPARK_NAMES = {
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.bool_(): "BOOLEAN",
    pa.string(): "STRING",
    pa.date32(): "DATE",
}


def spark_name(kind: pa.DataType) -> str:
    """The type's name in Spark SQL."""
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP" if kind.tz else "TIMESTAMP_NTZ"
    return _SPARK_NAMES.get(kind, str(kind).upper())


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the input."""

    name: str
    type: pa.DataType

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant: int, float, bool, str or None; dates are days and timestamps microseconds since 1970.

    A decimal constant (`1.5`) keeps its text, so that it compares exactly with integers.
    """

    value: int | float | bool | str | None
    type: pa.DataType
    text: str | None = None

    def __str__(self) -> str:
        if self.text is not None:
            return self.text
        if self.value is None:
            return "NULL"
        if self.type == pa.date32():
            return f"DATE '{date.fromordinal(int(self.value) + 719_163).isoformat()}'"
        if pa.types.is_timestamp(self.type):
            return f"TIMESTAMP '{_timestamp_text(int(self.value))}'"
        return str(self.value).lower() if isinstance(self.value, bool) else str(self.value)


@dataclass(frozen=True, slots=True)
class Unary:
    """`-x` or `NOT x`."""

    op: str
    arg: Expression
    type: pa.DataType

    def __str__(self) -> str:
        return f"(NOT {self.arg})" if self.op == "NOT" else f"(- {self.arg})"


@dataclass(frozen=True, slots=True)
class Binary:
    """Arithmetic (+ - * / DIV %), comparison (= != < <= > >= <=>) or AND, OR."""

    op: str
    left: Expression
    right: Expression
    type: pa.DataType

    def __str__(self) -> str:
        if self.op == "!=":
            return f"(NOT ({self.left} = {self.right}))"
        return f"({self.left} {self.op} {self.right})"


@dataclass(frozen=True, slots=True)
class In:
    """`x IN (literals)`; the options have the type of `arg`."""

    arg: Expression
    options: tuple[Expression, ...]
    type: pa.DataType = BOOL

    def __str__(self) -> str:
        return f"({self.arg} IN ({', '.join(map(str, self.options))}))"


@dataclass(frozen=True, slots=True)
class Between:
    """`x BETWEEN low AND high`: a node of its own only because Spark names it so."""

    arg: Expression
    both: Expression  # (x >= low) AND (x <= high)
    low: Expression
    high: Expression
    type: pa.DataType = BOOL

    def __str__(self) -> str:
        return f"between({self.arg}, {self.low}, {self.high})"


@dataclass(frozen=True, slots=True)
class IsNull:
    """`x IS NULL`, or `x IS NOT NULL` when negated; never null itself."""

    arg: Expression
    negated: bool
    type: pa.DataType = BOOL

    def __str__(self) -> str:
        return f"({self.arg} IS {'NOT ' if self.negated else ''}NULL)"


@dataclass(frozen=True, slots=True)
class Case:
    """`CASE WHEN .. THEN .. ELSE .. END`; without ELSE it is null."""

    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression | None
    type: pa.DataType

    def __str__(self) -> str:
        branches = " ".join(f"WHEN {when} THEN {then}" for when, then in self.branches)
        otherwise = "" if self.otherwise is None else f" ELSE {self.otherwise}"
        return f"CASE {branches}{otherwise} END"


@dataclass(frozen=True, slots=True)
class Cast:
    """A conversion between number types, or one that Spark inserts by itself (`implicit`)."""

    arg: Expression
    type: pa.DataType
    implicit: bool = True

    def __str__(self) -> str:
        return str(self.arg) if self.implicit else f"CAST({self.arg} AS {spark_name(self.type)})"


Expression: TypeAlias = Column | Literal | Unary | Binary | In | Between | IsNull | Case | Cast


def children(node: Expression) -> tuple[Expression, ...]:
    """The expressions directly below `node`, in the order of evaluation."""
    match node:
        case Column() | Literal():
            return ()
        case Unary(arg=arg) | IsNull(arg=arg) | Cast(arg=arg):
            return (arg,)
        case Binary(left=left, right=right):
            return (left, right)
        case Between(both=both):
            return (both,)
        case In(arg=arg, options=options):
            return (arg, *options)
        case Case(branches=branches, otherwise=otherwise):
            inner = tuple(part for branch in branches for part in branch)
            return inner if otherwise is None else (*inner, otherwise)


def columns_of(node: Expression) -> Iterator[Column]:
    """Every column that `node` reads, with repetitions."""
    if isinstance(node, Column):
        yield node
    for child in children(node):
        yield from columns_of(child)


def conjuncts(node: Expression) -> tuple[Expression, ...]:
    """The parts of `a AND b AND c`."""
    if isinstance(node, Binary) and node.op == "AND":
        return (*conjuncts(node.left), *conjuncts(node.right))
    return (node,)


def is_string(kind: pa.DataType) -> bool:
    """Text of any Arrow layout."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def to_json(node: Any) -> Any:
    """A canonical form: equal graphs have equal forms, and they outlive versions of Python."""
    if isinstance(node, tuple):
        return [to_json(part) for part in node]
    if isinstance(node, pa.DataType):
        return str(node)
    if hasattr(node, "__dataclass_fields__"):
        fields = {name: to_json(getattr(node, name)) for name in node.__dataclass_fields__}
        return {"node": type(node).__name__, **fields}
    return node


def _timestamp_text(us: int) -> str:
    moment = datetime.fromtimestamp(us // 1_000_000, tz=UTC)
    fraction = f".{us % 1_000_000:06d}".rstrip("0") if us % 1_000_000 else ""
    return f"{moment:%Y-%m-%d %H:%M:%S}{fraction}"
