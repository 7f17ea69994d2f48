"""From sqlglot's tree to bound, typed expressions; whatever has no translation is refused with its place.

`Binder` knows one input. Aggregates and windows are not expressions of a row: `sql.py` takes them apart first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

import pyarrow as pa
from sqlglot import exp

from kedge.errors import UsageError
from kedge.graph import coerce
from kedge.graph.expressions import (
    FLOATS,
    INTEGERS,
    Cast,
    Column,
    Expression,
    In,
    IsNull,
    Literal,
    Unary,
    is_string,
)

Node: TypeAlias = Any  # sqlglot's class of nodes, which moves between its releases
SUPPORTED = (
    "Supported are: columns, literals, + - * / % DIV, comparisons, AND, OR, NOT, IN, BETWEEN, IS NULL, CASE, IF "
    "and casts between number types."
)
USABLE = "Usable are int8 to int64, float, double, bool, date32, timestamp in microseconds and string."
_COMPARISONS: dict[type[Node], str] = {
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
}
_ARITHMETIC: dict[type[Node], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.IntDiv: "div",
    exp.Mod: "%",
}
_CASTS = {
    exp.DataType.Type.TINYINT: pa.int8(),
    exp.DataType.Type.SMALLINT: pa.int16(),
    exp.DataType.Type.INT: pa.int32(),
    exp.DataType.Type.BIGINT: pa.int64(),
    exp.DataType.Type.FLOAT: pa.float32(),
    exp.DataType.Type.DOUBLE: pa.float64(),
}


class Binder:
    """Binds expressions over the columns of one input."""

    def __init__(self, text: str, name: str, alias: str, schema: pa.Schema) -> None:
        self.text, self.name, self.alias, self.schema = text, name, alias, schema
        self._columns = {field.name.lower(): field for field in schema}

    def refuse(self, node: Node, what: str, supported: str = SUPPORTED) -> NoReturn:
        """Raise the UsageError of a construct that is not supported."""
        raise UsageError(f"{place(self.text, node)}: {what}. {supported}", code="query")

    def column(self, node: exp.Column) -> Column:
        """A column by name, in any case."""
        qualifier = node.table
        if qualifier and qualifier.lower() not in (self.alias.lower(), self.name.lower()):
            self.refuse(node, f"there is no input {qualifier!r}", f"The input is {self.name!r}.")
        field = self._columns.get(node.name.lower())
        if field is None:
            self.refuse(
                node, f"{self.name!r} has no column {node.name!r}", f"It has: {', '.join(self.schema.names)}."
            )
        kind = field.type
        if not _is_usable(kind):
            self.refuse(node, f"column {node.name!r} has the type {kind}", USABLE)
        return Column(field.name, kind)

    def bind(self, node: Node) -> Expression:
        """`node` as a typed expression."""
        kind = type(node)
        if kind in _COMPARISONS:
            return self._binary(node, coerce.comparison, _COMPARISONS[kind])
        if kind in _ARITHMETIC:
            return self._binary(node, coerce.arithmetic, _ARITHMETIC[kind])
        match node:
            case exp.Column():
                return self.column(node)
            case exp.Paren():
                return self.bind(node.this)
            case exp.Literal() | exp.Boolean() | exp.Null():
                return self._literal(node)
            case exp.Neg():
                return self._negative(node)
            case exp.Not():
                arg = self.bind(node.this)
                if isinstance(arg, IsNull) and not arg.negated and isinstance(node.this, exp.Is):
                    return IsNull(arg.arg, negated=True)
                return Unary("NOT", self.boolean(node.this, arg), pa.bool_())
            case exp.And() | exp.Or():
                return self._logical(node)
            case exp.Is() if isinstance(node.expression, exp.Null):
                return IsNull(self.bind(node.this), negated=False)
            case exp.In() if node.args.get("query") is None and node.args.get("unnest") is None:
                return self._in(node)
            case exp.Between():
                parts = (self.bind(node.this), self.bind(node.args["low"]), self.bind(node.args["high"]))
                return coerce.between(*parts) or self.refuse(node, _mixed("BETWEEN", *parts[:2]))
            case exp.Case() | exp.If():
                return self._case(node)
            case exp.Cast() | exp.TryCast():
                return self._cast(node)
            case _:
                return self.refuse(node, f"{_called(node)} is not supported")

    def boolean(self, node: Node, bound: Expression) -> Expression:
        """`bound`, if it is a condition."""
        if bound.type == pa.null():
            return Literal(None, pa.bool_())
        if bound.type != pa.bool_():
            self.refuse(node, f"a condition is needed here, this is {bound.type}", "")
        return bound

    def _binary(
        self, node: Node, make: Callable[[str, Expression, Expression], Expression | None], op: str
    ) -> Expression:
        left, right = self.bind(node.this), self.bind(node.expression)
        return make(op, left, right) or self.refuse(node, _mixed(op, left, right))

    def _logical(self, node: Node) -> Expression:
        op = "AND" if isinstance(node, exp.And) else "OR"
        left = self.boolean(node.this, self.bind(node.this))
        right = self.boolean(node.expression, self.bind(node.expression))
        return coerce.Binary(op, left, right, pa.bool_())

    def _in(self, node: exp.In) -> Expression:
        arg = self.bind(node.this)
        options: list[Expression] = []
        for option in node.expressions:
            bound = self.bind(option)
            if not isinstance(bound, Literal):
                self.refuse(option, "IN needs constants")
            same = coerce.comparison("=", arg, bound)
            if same is None or not isinstance(same, coerce.Binary):
                self.refuse(option, _mixed("IN", arg, bound))
            if same.left.type != arg.type:
                arg = same.left
            options.append(same.right)
        kind = arg.type
        return In(arg, tuple(coerce.cast(option, kind) for option in options))

    def _case(self, node: Node) -> Expression:
        ifs: list[Node] = [node] if isinstance(node, exp.If) else node.args["ifs"]
        default = node.args.get("false") if isinstance(node, exp.If) else node.args.get("default")
        subject = None if isinstance(node, exp.If) else node.this
        branches: list[tuple[Expression, Expression]] = []
        for part in ifs:
            when = exp.EQ(this=subject.copy(), expression=part.this.copy()) if subject is not None else part.this
            branches.append((self.boolean(part.this, self.bind(when)), self.bind(part.args["true"])))
        bound = coerce.case(branches, None if default is None else self.bind(default))
        return bound or self.refuse(
            node, "the results of CASE need one common type that is no string and no decimal"
        )

    def _cast(self, node: Node) -> Expression:
        target, inner = node.args["to"].this, self.bind(node.this)
        if isinstance(inner, Literal) and isinstance(inner.value, str):
            day = target == exp.DataType.Type.DATE
            zone = None if target == exp.DataType.Type.TIMESTAMP else "UTC"
            kind = pa.date32() if day else pa.timestamp("us", zone)
            if day or target in (exp.DataType.Type.TIMESTAMP, exp.DataType.Type.TIMESTAMPTZ):
                found = coerce.moment(inner.value, kind)
                if found is not None:
                    return Literal(found.value, found.type)
        numeric = inner.type in (*INTEGERS, *FLOATS) or coerce.is_decimal_literal(inner)
        if target not in _CASTS or not numeric:
            self.refuse(node, f"a cast from {inner.type} to {node.args['to'].sql('spark')} is not supported")
        kind = _CASTS[target]
        if isinstance(inner, Literal) and (kind in FLOATS or inner.type in INTEGERS):
            converted = coerce.cast(inner, kind)
            if isinstance(converted, Literal):
                return converted
        return Cast(inner, kind, implicit=False)

    def _negative(self, node: exp.Neg) -> Expression:
        if isinstance(node.this, exp.Literal) and not node.this.is_string:
            return self._number(node.this, "-" + node.this.this)
        arg = self.bind(node.this)
        if arg.type not in (*INTEGERS, *FLOATS):
            self.refuse(node, f"minus needs a number, this is {arg.type}")
        return Unary("-", arg, arg.type)

    def _literal(self, node: Node) -> Expression:
        if isinstance(node, exp.Null):
            return Literal(None, pa.null())
        if isinstance(node, exp.Boolean):
            return Literal(bool(node.this), pa.bool_())
        if node.is_string:
            return Literal(str(node.this), pa.string())
        return self._number(node, str(node.this))

    def _number(self, node: Node, text: str) -> Expression:
        if "e" in text.lower():
            return Literal(float(text), pa.float64())
        if "." in text:
            digits = text.lstrip("-").replace(".", "").lstrip("0")
            scale = len(text.partition(".")[2])
            return Literal(float(text), pa.decimal128(max(len(digits), scale, 1), scale), text)
        value = int(text)
        if not -(1 << 63) <= value < 1 << 63:
            self.refuse(node, f"{text} is out of the range of BIGINT")
        return Literal(value, pa.int32() if -(1 << 31) <= value < 1 << 31 else pa.int64())


def place(text: str, node: Node) -> str:
    """`line 2, column 7 ("...")`: where the first token below `node` stands in the query."""
    found = [inner.meta for inner in node.walk() if "start" in inner.meta]
    if not found:
        return f"In {node.sql(dialect='spark')!r}"
    start, end = min(meta["start"] for meta in found), max(meta["end"] for meta in found)
    line = text.count("\n", 0, start) + 1
    column = start - (text.rfind("\n", 0, start) + 1) + 1
    return f"Line {line}, column {column} ({text[start : end + 1]!r})"


def _is_usable(kind: pa.DataType) -> bool:
    plain = kind in (*INTEGERS, *FLOATS) or kind in (pa.bool_(), pa.date32()) or is_string(kind)
    return plain or (bool(pa.types.is_timestamp(kind)) and kind.unit == "us")


def _called(node: Node) -> str:
    return node.sql(dialect="spark") if isinstance(node, exp.Func) else type(node).__name__.upper()


def _mixed(op: str, left: Expression, right: Expression) -> str:
    return f"{op} of {left.type} and {right.type} is not supported"
