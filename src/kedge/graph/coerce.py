"""Spark's type coercion, as far as the front end goes: ANSI mode, the default of Spark 4.

Each function takes bound expressions and returns bound expressions with the casts that Spark would insert; `None`
means that Spark has no such operation, or that Kedge does not offer it (decimals).
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from fractions import Fraction

import pyarrow as pa

from kedge.graph.expressions import FLOATS, INTEGERS, Between, Binary, Case, Cast, Expression, Literal, is_string

COMPARISONS = ("=", "!=", "<", "<=", ">", ">=", "<=>")
_INT_RANGE = {kind: 1 << (kind.bit_width - 1) for kind in INTEGERS}


def is_decimal_literal(node: Expression) -> bool:
    """A constant such as `1.5`, which is a DECIMAL in Spark."""
    return isinstance(node, Literal) and bool(pa.types.is_decimal(node.type))


def common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The type of `CASE` branches and of both sides of a comparison or sum."""
    if left == right:
        return left
    if left == pa.null() or right == pa.null():
        return right if left == pa.null() else left
    if left in INTEGERS and right in INTEGERS:
        return max(left, right, key=lambda kind: kind.bit_width)
    if left in (*INTEGERS, *FLOATS) and right in (*INTEGERS, *FLOATS):
        return pa.float64()
    if is_string(left) and is_string(right):
        return left
    if (
        pa.types.is_timestamp(left)
        and pa.types.is_timestamp(right)
        and left.tz is not None
        and right.tz is not None
    ):
        return left  # zones only say how a moment is shown
    return None


def cast(node: Expression, kind: pa.DataType) -> Expression:
    """`node` as `kind`; constants are converted at once."""
    if node.type == kind:
        return node
    if isinstance(node, Literal) and node.value is None:
        return Literal(None, kind)
    if isinstance(node, Literal) and kind in FLOATS and not isinstance(node.value, str):
        return Literal(float(node.value or 0), kind, str(node))
    if isinstance(node, Literal) and kind in INTEGERS and node.type in INTEGERS:
        return Literal(node.value, kind, node.text)
    return Cast(node, kind)


def decimal_to_double(left: Expression, right: Expression) -> tuple[Expression, Expression] | None:
    """Decimal constants become doubles beside floats; beside anything else there is no answer here."""
    if not (is_decimal_literal(left) or is_decimal_literal(right)):
        return left, right
    if left.type in FLOATS or right.type in FLOATS:
        return cast(left, pa.float64()), cast(right, pa.float64())
    return None


def arithmetic(op: str, left: Expression, right: Expression) -> Expression | None:
    """`+ - * / % DIV`."""
    pair = decimal_to_double(left, right)
    if pair is None:
        return None
    left, right = pair
    kind = common_type(left.type, right.type)
    if kind not in (*INTEGERS, *FLOATS):
        return None
    if op == "/":
        return Binary(op, cast(left, pa.float64()), cast(right, pa.float64()), pa.float64())
    if op == "div":
        if kind not in INTEGERS:
            return None
        return Binary(op, cast(left, pa.int64()), cast(right, pa.int64()), pa.int64())
    return Binary(op, cast(left, kind), cast(right, kind), kind)


def comparison(op: str, left: Expression, right: Expression) -> Expression | None:
    """`= != < <= > >= <=>`; an integer against a decimal constant is compared exactly."""
    left, right = _read_texts(left, right)
    if is_decimal_literal(right) and left.type in INTEGERS:
        return _with_decimal(op, left, right)
    if is_decimal_literal(left) and right.type in INTEGERS:
        swapped = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
        return _with_decimal(swapped.get(op, op), right, left)
    pair = decimal_to_double(left, right)
    if pair is None:
        return None
    left, right = pair
    kind = common_type(left.type, right.type)
    if kind is None or (is_string(kind) and not (isinstance(left, Literal) or isinstance(right, Literal))):
        return None
    return Binary(op, cast(left, kind), cast(right, kind), pa.bool_())


def between(arg: Expression, low: Expression, high: Expression) -> Expression | None:
    """`arg BETWEEN low AND high`."""
    at_least, at_most = comparison(">=", arg, low), comparison("<=", arg, high)
    if at_least is None or at_most is None:
        return None
    return Between(arg, Binary("AND", at_least, at_most, pa.bool_()), low, high)


def case(branches: list[tuple[Expression, Expression]], otherwise: Expression | None) -> Expression | None:
    """`CASE WHEN`, all results in their common type."""
    results = [then for _, then in branches] + ([] if otherwise is None else [otherwise])
    kind: pa.DataType | None = pa.null()
    for result in results:
        kind = None if kind is None else common_type(kind, result.type)
    if kind is None or kind == pa.null() or is_string(kind) or any(map(is_decimal_literal, results)):
        return None
    cast_all = tuple((when, cast(then, kind)) for when, then in branches)
    return Case(cast_all, None if otherwise is None else cast(otherwise, kind), kind)


def _with_decimal(op: str, arg: Expression, constant: Expression) -> Expression:
    """An integer against 1.5: `> 1.5` is `> 1`, `< 1.5` is `< 2`, `= 1.5` is false."""
    assert isinstance(constant, Literal)
    value = Fraction(str(constant.text))
    bound = math.ceil(value) if op in ("<", ">=") else math.floor(value)
    limit = _INT_RANGE[arg.type]
    kind = arg.type if -limit <= bound < limit else pa.int64()
    if value.denominator != 1 and op in ("=", "!=", "<=>"):
        # Never equal: compare with something that the type cannot hold, but keep nulls null.
        wide = cast(arg, pa.float64())
        return Binary(op, wide, Literal(math.inf, pa.float64(), constant.text), pa.bool_())
    if not -(1 << 63) <= bound < 1 << 63:
        return Binary(op, cast(arg, pa.float64()), Literal(float(value), pa.float64(), constant.text), pa.bool_())
    return Binary(op, cast(arg, kind), Literal(bound, kind), pa.bool_())


def _read_texts(left: Expression, right: Expression) -> tuple[Expression, Expression]:
    """`ts > '2020-01-01'`: the text becomes a moment or a day, if it is one in ISO form."""
    if isinstance(right, Literal) and isinstance(right.value, str):
        return left, moment(right.value, left.type) or right
    if isinstance(left, Literal) and isinstance(left.value, str):
        return moment(left.value, right.type) or left, right
    return left, right


def moment(text: str, kind: pa.DataType) -> Literal | None:
    """`text` as a date or timestamp constant of type `kind` (UTC where the text has no zone)."""
    try:
        parsed = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    if kind == pa.date32():
        return Literal(parsed.date().toordinal() - 719_163, kind, text)
    if not pa.types.is_timestamp(kind):
        return None
    if parsed.tzinfo is None:
        parsed = parsed.replace(tzinfo=UTC)
    whole = parsed.replace(microsecond=0)
    return Literal(int(whole.timestamp()) * 1_000_000 + parsed.microsecond, kind, text)
