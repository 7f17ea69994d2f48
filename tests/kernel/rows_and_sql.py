"""Random expressions as pairs of SQL and a Python function: the oracle of the generated code.

A function takes a row (a dict) and returns a value or None, or raises AnsiError where ANSI SQL has an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

BITS = {"h": 16, "i": 32, "l": 64}


class AnsiError(Exception):
    """Overflow or division by zero."""


@dataclass(frozen=True)
class Pair:
    sql: str
    type: str  # h i l (integers), d (double), t (bool), s (string)
    value: Callable[[dict[str, Any]], Any]

    def __repr__(self) -> str:
        return self.sql


def column(name: str, kind: str) -> Pair:
    return Pair(name, kind, lambda row: row[name])


COLUMNS = [
    column("h", "h"),
    column("i", "i"),
    column("l", "l"),
    column("d", "d"),
    column("t", "t"),
    column("s", "s"),
]
VALUES = {
    "h": st.integers(-(2**15), 2**15 - 1) | st.integers(-3, 3),
    "i": st.integers(-(2**31), 2**31 - 1) | st.integers(-3, 3),
    "l": st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3),
    "d": st.sampled_from([0.0, -0.0, 1.5, -2.5, math.inf, -math.inf, math.nan]) | st.integers(-3, 3).map(float),
    "t": st.booleans(),
    "s": st.sampled_from(["", "a", "b", "ab", "é", "a\0b", "zzzzzzzzzzzzzzzz"]),
}


def rows(nulls: bool) -> st.SearchStrategy[list[dict[str, Any]]]:
    one = {name: values | st.none() if nulls else values for name, values in VALUES.items()}
    return st.lists(st.fixed_dictionaries(one), min_size=1, max_size=12)


def literals(kind: str) -> st.SearchStrategy[Pair]:
    if kind == "t":
        return st.booleans().map(lambda v: Pair(str(v).lower(), "t", lambda row: v))
    if kind == "d":
        return st.sampled_from([0.0, 1.5, -2.0]).map(lambda v: Pair(f"{v!r}D", "d", lambda row: v))
    if kind == "l":
        return st.sampled_from([2**40, -(2**40), 2**63 - 1]).map(lambda v: Pair(str(v), "l", lambda row: v))
    return st.integers(-3, 3).map(lambda v: Pair(str(v), "i", lambda row: v))


def numbers(depth: int) -> st.SearchStrategy[Pair]:
    leaves = st.sampled_from([one for one in COLUMNS if one.type in "hild"]) | st.sampled_from("ild").flatmap(
        literals
    )
    if depth == 0:
        return leaves
    inner = numbers(depth - 1)
    binary = st.builds(arithmetic, st.sampled_from(["+", "-", "*", "DIV", "%", "/"]), inner, inner)
    negative = inner.map(minus)
    case = st.builds(case_when, conditions(depth - 1), inner, inner | st.none())
    return st.one_of(leaves, binary, negative, case)


def conditions(depth: int) -> st.SearchStrategy[Pair]:
    flag = st.just(COLUMNS[4]) | literals("t")
    inner = numbers(max(0, depth - 1))
    compared = st.builds(compare, st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>"]), inner, inner)
    small = st.integers(-3, 3)
    among = st.builds(is_in, inner, st.lists(small, min_size=1))
    null = st.builds(is_null, inner, st.booleans())
    leaves = st.one_of(flag, compared, null, texts(), among, st.builds(between, inner, small, small))
    if depth == 0:
        return leaves
    deeper = conditions(depth - 1)
    logic = st.builds(logical, st.sampled_from(["AND", "OR"]), deeper, deeper)
    return st.one_of(leaves, logic, deeper.map(negated))


def texts() -> st.SearchStrategy[Pair]:
    def make(op: str, text: str) -> Pair:
        def value(row: dict[str, Any]) -> Any:
            left = row["s"]
            if op == "<=>":
                return left == text
            if left is None:
                return None
            a, b = left.encode(), text.encode()
            return {"=": a == b, "<>": a != b, "<": a < b, ">=": a >= b}[op]

        return Pair(f"s {op} '{text}'", "t", value)

    return st.builds(make, st.sampled_from(["=", "<>", "<", ">=", "<=>"]), st.sampled_from(["a", "ab", "", "é"]))


def wider(left: str, right: str) -> str:
    if "d" in (left, right):
        return "d"
    return max(left, right, key=lambda kind: BITS[kind])


def ranged(value: int, kind: str) -> int:
    limit = 1 << (BITS[kind] - 1)
    if not -limit <= value < limit:
        raise AnsiError
    return value


def arithmetic(op: str, left: Pair, right: Pair) -> Pair:
    kind = "d" if op == "/" else wider(left.type, right.type)
    if op == "DIV":
        if kind == "d":
            op, kind = "+", "d"
        else:
            kind = "l"

    def value(row: dict[str, Any]) -> Any:
        a, b = left.value(row), right.value(row)
        if a is None or b is None:
            return None
        if kind == "d":
            a, b = float(a), float(b)
        if op in ("/", "%", "DIV") and b == 0:
            raise AnsiError
        if op == "/":
            return a / b
        if op == "DIV":
            return ranged(abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1), "l")
        if op == "%":
            if kind == "d":
                return math.nan if math.isinf(a) or math.isnan(a) or math.isnan(b) else math.fmod(a, b)
            return abs(a) % abs(b) * (-1 if a < 0 else 1)
        total = a + b if op == "+" else a - b if op == "-" else a * b
        return total if kind == "d" else ranged(total, kind)

    return Pair(f"(({left.sql}) {op} ({right.sql}))", kind, value)


def minus(arg: Pair) -> Pair:
    def value(row: dict[str, Any]) -> Any:
        a = arg.value(row)
        return None if a is None else -a if arg.type == "d" else ranged(-a, arg.type)

    return Pair(f"(- ({arg.sql}))", arg.type, value)


def order(a: Any, b: Any) -> int:
    """-1, 0 or 1; NaN equals NaN and is the greatest."""
    nan_a, nan_b = a != a, b != b
    if nan_a or nan_b:
        return int(nan_a) - int(nan_b)
    return (a > b) - (a < b)


def compare(op: str, left: Pair, right: Pair) -> Pair:
    kind = wider(left.type, right.type)

    def value(row: dict[str, Any]) -> Any:
        a, b = left.value(row), right.value(row)
        if op == "<=>" and (a is None or b is None):
            return a is None and b is None
        if a is None or b is None:
            return None
        if kind == "d":
            a, b = float(a), float(b)
        which = order(a, b)
        return {"=": which == 0, "<=>": which == 0, "<>": which != 0, "<": which < 0, "<=": which <= 0,
                ">": which > 0, ">=": which >= 0}[op]  # fmt: skip

    return Pair(f"(({left.sql}) {op} ({right.sql}))", "t", value)


def is_null(arg: Pair, negated: bool) -> Pair:
    words = "IS NOT NULL" if negated else "IS NULL"
    return Pair(f"({arg.sql}) {words}", "t", lambda row: (arg.value(row) is None) != negated)


def is_in(arg: Pair, options: list[int]) -> Pair:
    def value(row: dict[str, Any]) -> Any:
        a = arg.value(row)
        return None if a is None else a in options

    return Pair(f"({arg.sql}) IN ({', '.join(map(str, options))})", "t", value)


def between(arg: Pair, low: int, high: int) -> Pair:
    def value(row: dict[str, Any]) -> Any:
        a = arg.value(row)
        return None if a is None else order(a, low) >= 0 and order(a, high) <= 0

    return Pair(f"(({arg.sql}) BETWEEN {low} AND {high})", "t", value)


def logical(op: str, left: Pair, right: Pair) -> Pair:
    stop = op == "OR"

    def value(row: dict[str, Any]) -> Any:
        a = left.value(row)
        if a is stop:
            return stop
        b = right.value(row)
        if b is stop:
            return stop
        return None if a is None or b is None else not stop

    return Pair(f"(({left.sql}) {op} ({right.sql}))", "t", value)


def negated(arg: Pair) -> Pair:
    def value(row: dict[str, Any]) -> Any:
        a = arg.value(row)
        return None if a is None else not a

    return Pair(f"(NOT ({arg.sql}))", "t", value)


def case_when(when: Pair, then: Pair, otherwise: Pair | None) -> Pair:
    kind = then.type if otherwise is None else wider(then.type, otherwise.type)

    def value(row: dict[str, Any]) -> Any:
        chosen = then if when.value(row) is True else otherwise
        found = None if chosen is None else chosen.value(row)
        return float(found) if kind == "d" and found is not None else found

    tail = "" if otherwise is None else f" ELSE {otherwise.sql}"
    return Pair(f"(CASE WHEN {when.sql} THEN {then.sql}{tail} END)", kind, value)
