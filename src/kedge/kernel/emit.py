"""Expressions to Python source that Numba compiles: a statement a step, three-valued logic, errors as in ANSI SQL.

Invariants:
- A value is a variable and its validity: a variable, or None when the value can't be null. Nothing is computed from
  an invalid value, so an error is raised only where Spark raises it.
- AND, OR and CASE evaluate lazily: their parts are emitted inside `if` blocks.
- Integers are computed as int64 and checked against the range of their type; there is no wrap-around.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from kedge.errors import InternalError
from kedge.graph.expressions import (
    FLOATS,
    INTEGERS,
    Between,
    Binary,
    Case,
    Cast,
    Column,
    Expression,
    In,
    IsNull,
    Literal,
    Unary,
    is_string,
)

INT64_MIN = "np.int64(-9223372036854775808)"


@dataclass(frozen=True, slots=True)
class Value:
    """A variable or constant in the source, and the variable that says whether it is valid."""

    code: str
    valid: str | None


@dataclass(frozen=True, slots=True)
class Slot:
    """An array that the kernel reads: a column's values, a string column's codes, or a condition on strings."""

    kind: str  # "values", "codes" or "condition"
    source: Expression


Slots: TypeAlias = dict[Slot, int]


class Emitter:
    """Writes the body of a loop over rows; `slots` is what it reads, `errors` what can go wrong."""

    def __init__(self, *, nulls: bool, indent: int) -> None:
        self.nulls = nulls
        self.lines: list[str] = []
        self.slots: Slots = {}
        self.errors: list[str] = []
        self._indent = indent
        self._count = 0
        self._seen: dict[tuple[Expression, int], Value] = {}
        self._blocks = [0]

    def line(self, text: str) -> None:
        """One line at the current depth."""
        self.lines.append("    " * self._indent + text)

    def block(self, head: str) -> None:
        """Open a block; what is computed inside is not known after it."""
        self.line(head)
        self._indent += 1
        self._blocks.append(len(self.lines))

    def end(self) -> None:
        """Close the block."""
        self._indent -= 1
        self._blocks.pop()
        depth = len(self._blocks)
        self._seen = {key: value for key, value in self._seen.items() if key[1] <= depth}

    def fresh(self, code: str) -> str:
        """A new variable that holds `code`."""
        self._count += 1
        self.line(f"v{self._count} = {code}")
        return f"v{self._count}"

    def slot(self, kind: str, source: Expression) -> int:
        """The number of the array for `source`."""
        return self.slots.setdefault(Slot(kind, source), len(self.slots))

    def fail_if(self, condition: str, message: str) -> None:
        """Leave the kernel with an error at this row."""
        if message not in self.errors:
            self.errors.append(message)
        self.block(f"if {condition}:")
        self.line(f"state[3] = {self.errors.index(message) + 1}")
        self.line("return i")
        self.end()

    def emit(self, node: Expression) -> Value:
        """The value of `node`; computed once in each block that needs it."""
        for depth in range(len(self._blocks), 0, -1):
            if (node, depth) in self._seen:
                return self._seen[node, depth]
        value = self._emit(node)
        self._seen[node, len(self._blocks)] = value
        return value

    def _emit(self, node: Expression) -> Value:
        match node:
            case Literal():
                return self._literal(node)
            case Column():
                return self.column("codes" if is_string(node.type) else "values", node)
            case Unary(op="NOT"):
                arg = self.emit(node.arg)
                return Value(self.fresh(f"not {arg.code}"), arg.valid)
            case Unary():
                return self._negative(node)
            case Binary(op="AND" | "OR"):
                return self._logical(node)
            case Binary(left=left) | In(arg=left) if is_string(left.type) or _is_text(node):
                return self.column("condition", node)
            case Binary(op="+" | "-" | "*" | "/" | "div" | "%"):
                return self._arithmetic(node)
            case Binary():
                return self._comparison(node)
            case Between():
                return self.emit(node.both)
            case In():
                return self._in(node)
            case IsNull():
                return self._is_null(node)
            case Case():
                return self._case(node)
            case Cast():
                return self._cast(node)
        raise InternalError(f"No code for {node!r}.")

    def column(self, kind: str, node: Expression) -> Value:
        """An array's element, and its validity where this kernel knows nulls."""
        slot = self.slot(kind, node)
        if node.type == pa.bool_():
            code = f"c{slot}[i] != 0"
        else:
            code = f"{'np.float32' if node.type == pa.float32() else _wide(node.type)}(c{slot}[i])"
        return Value(self.fresh(code), self.fresh(f"k{slot}[i] != 0") if self.nulls else None)

    def _literal(self, node: Literal) -> Value:
        if node.value is None:
            return Value(_zero(node.type), "False")
        if node.type == pa.bool_():
            return Value(str(bool(node.value)), None)
        if node.type in FLOATS:
            text = repr(float(node.value))
            code = "np.inf" if text == "inf" else text
            return Value(f"{'np.float32' if node.type == pa.float32() else 'np.float64'}({code})", None)
        return Value(f"np.int64({int(node.value)})", None)

    def _both(self, node: Binary, result: str) -> tuple[str, str, str | None, str]:
        """Both sides, the validity of the result, and the result variable; opens a block if either may be null."""
        left, right = self.emit(node.left), self.emit(node.right)
        valid = _and(left.valid, right.valid)
        if valid is not None:
            valid = self.fresh(valid)
        self._count += 1
        out = f"v{self._count}"
        if valid is not None:
            self.line(f"{out} = {result}")
            self.block(f"if {valid}:")
        return left.code, right.code, valid, out

    def _close(self, valid: str | None) -> None:
        if valid is not None:
            self.end()

    def _arithmetic(self, node: Binary) -> Value:
        left, right, valid, out = self._both(node, _zero(node.type))
        if node.op in ("/", "div", "%"):
            if not _is_safe_divisor(node.right):
                self.fail_if(f"{right} == 0", f"division by zero in {node}")
            self._divide(node, left, right, out)
        elif node.type in FLOATS:
            self.line(f"{out} = {left} {node.op} {right}")
        else:
            self.line(f"{out} = {left} {node.op} {right}")
            self._check_overflow(node, left, right, out)
        self._close(valid)
        return Value(out, valid)

    def _divide(self, node: Binary, left: str, right: str, out: str) -> None:
        if node.op == "/":
            self.line(f"{out} = {left} / {right}")
            return
        if node.type in FLOATS:
            kind = "np.float32" if node.type == pa.float32() else "np.float64"
            self.line(f"{out} = {kind}(np.fmod({left}, {right}))")
            return
        safe = _is_safe_divisor(node.right)
        if not safe:  # the machine traps on the smallest integer divided by -1
            self.block(f"if {right} == -1:")
            if node.op == "div":
                self.fail_if(f"{left} == {INT64_MIN}", f"overflow in {node}")
                self.line(f"{out} = -{left}")
            else:
                self.line(f"{out} = np.int64(0)")
            self.end()
            self.block("else:")
        # Python rounds down, SQL towards zero.
        rest = self.fresh(f"{left} % {right}")
        if node.op == "div":
            self.line(f"{out} = {left} // {right}")
            self.line(f"if {rest} != 0 and ({left} ^ {right}) < 0: {out} += 1")
        else:
            self.line(f"{out} = {rest}")
            self.line(f"if {rest} != 0 and ({left} ^ {rest}) < 0: {out} = {rest} - {right}")
        if not safe:
            self.end()

    def _check_overflow(self, node: Binary, left: str, right: str, out: str) -> None:
        message = f"overflow in {node}"
        if node.type != pa.int64():
            self.fail_if(_outside(out, node.type), message)
        elif node.op == "+":
            self.fail_if(f"(({left} ^ {out}) & ({right} ^ {out})) < 0", message)
        elif node.op == "-":
            self.fail_if(f"(({left} ^ {right}) & ({left} ^ {out})) < 0", message)
        else:
            small = " or ".join(f"{side} < -2147483648 or {side} > 2147483647" for side in (left, right))
            self.block(f"if {small}:")
            self.fail_if(f"{left} == -1 and {right} == {INT64_MIN}", message)
            self.fail_if(f"{left} != 0 and {left} != -1 and {out} // {left} != {right}", message)
            self.end()

    def _negative(self, node: Unary) -> Value:
        arg = self.emit(node.arg)
        if node.type in INTEGERS:
            lowest = -(1 << (node.type.bit_width - 1))
            check = f"{arg.code} == np.int64({lowest})"
            self.fail_if(check if arg.valid is None else f"{arg.valid} and {check}", f"overflow in {node}")
        return Value(self.fresh(f"-{arg.code}"), arg.valid)

    def _comparison(self, node: Binary) -> Value:
        if node.op == "<=>":
            return self._null_safe_equal(node)
        left, right = self.emit(node.left), self.emit(node.right)
        valid = _and(left.valid, right.valid)
        code = compare(node.op, left.code, right.code, floats=node.left.type in FLOATS)
        return Value(self.fresh(code), None if valid is None else self.fresh(valid))

    def _null_safe_equal(self, node: Binary) -> Value:
        left, right = self.emit(node.left), self.emit(node.right)
        equal = compare("=", left.code, right.code, floats=node.left.type in FLOATS)
        if left.valid is None and right.valid is None:
            return Value(self.fresh(equal), None)
        one, other = left.valid or "True", right.valid or "True"
        return Value(self.fresh(f"(({equal}) if ({one} and {other}) else ({one} == {other}))"), None)

    def _logical(self, node: Binary) -> Value:
        """`x AND y` stops at a false x, `x OR y` at a true one; `stop` is the value that decides alone."""
        stop = node.op == "OR"
        left = self.emit(node.left)
        is_stop = left.code if stop else f"not {left.code}"
        out = self.fresh(str(stop))
        self._count += 1
        valid = f"v{self._count}"
        self.line(f"{valid} = True")
        self.block(f"if not ({is_stop})" + (":" if left.valid is None else f" or not {left.valid}:"))
        right = self.emit(node.right)
        is_stop = right.code if stop else f"not {right.code}"
        if left.valid is None and right.valid is None:
            self.line(f"{out} = {right.code}")
            self.end()
            return Value(out, None)
        self.block(f"if not ({is_stop})" + (":" if right.valid is None else f" or not {right.valid}:"))
        self.line(f"{out} = {not stop}")
        self.line(f"{valid} = {_and(left.valid, right.valid)}")
        self.end()
        self.end()
        return Value(out, valid)

    def _in(self, node: In) -> Value:
        arg = self.emit(node.arg)
        options = [option for option in node.options if isinstance(option, Literal) and option.value is not None]
        floats = node.arg.type in FLOATS
        tests = [compare("=", arg.code, self._literal(option).code, floats=floats) for option in options]
        out = self.fresh(" or ".join(tests) or "False")
        if len(options) == len(node.options):
            return Value(out, arg.valid)
        return Value(out, self.fresh(_and(arg.valid, out) or "True"))  # not found among nulls: unknown

    def _is_null(self, node: IsNull) -> Value:
        arg = self.emit(node.arg)
        if arg.valid is None:
            return Value(str(node.negated), None)
        return Value(arg.valid if node.negated else self.fresh(f"not {arg.valid}"), None)

    def _case(self, node: Case) -> Value:
        out = self.fresh(_zero(node.type))
        valid = self.fresh("False")
        opened = 0
        never_null = node.otherwise is not None
        for when, then in node.branches:
            test = self.emit(when)
            self.block(f"if {_and(test.valid, test.code)}:")
            never_null &= self._assign(out, valid, then)
            self.end()
            self.block("else:")
            opened += 1
        if node.otherwise is not None:
            never_null &= self._assign(out, valid, node.otherwise)
        else:
            self.line("pass")
        for _ in range(opened):
            self.end()
        return Value(out, None if never_null else valid)

    def _assign(self, out: str, valid: str, node: Expression) -> bool:
        """Set a CASE's result; says whether it can't be null."""
        value = self.emit(node)
        self.line(f"{out} = {value.code}")
        self.line(f"{valid} = {value.valid or 'True'}")
        return value.valid is None

    def _cast(self, node: Cast) -> Value:
        arg = self.emit(node.arg)
        source, target = node.arg.type, node.type
        if target == pa.float32() or target == pa.float64():
            return Value(
                self.fresh(f"np.{'float32' if target == pa.float32() else 'float64'}({arg.code})"), arg.valid
            )
        if source not in (*INTEGERS, *FLOATS) or (source in INTEGERS and target.bit_width >= source.bit_width):
            return arg
        guard = "" if arg.valid is None else f"{arg.valid} and "
        if source in FLOATS:
            limit = float(1 << (target.bit_width - 1))
            low = f"{arg.code} >= {-limit!r}" if target == pa.int64() else f"{arg.code} > {-limit - 1!r}"
            self.fail_if(f"{guard}not ({low} and {arg.code} < {limit!r})", f"{node} is out of range")
            whole = (
                f"np.int64({arg.code})" if arg.valid is None else f"np.int64({arg.code} if {arg.valid} else 0.0)"
            )
            return Value(self.fresh(whole), arg.valid)
        self.fail_if(f"{guard}({_outside(arg.code, target)})", f"{node} is out of range")
        return arg


def compare(op: str, left: str, right: str, *, floats: bool) -> str:
    """A comparison; among floats NaN equals NaN and is greater than all else, as in Spark."""
    if not floats:
        return f"{left} {'==' if op == '=' else op} {right}"
    equal = f"({left} == {right} or ({left} != {left} and {right} != {right}))"
    less = {"<": (left, right), ">": (right, left), ">=": (left, right), "<=": (right, left)}
    if op in ("=", "!="):
        return equal if op == "=" else f"not {equal}"
    low, high = less[op]
    test = f"({low} < {high} or ({high} != {high} and {low} == {low}))"
    return test if op in ("<", ">") else f"not {test}"


def _and(left: str | None, right: str | None) -> str | None:
    if left is None or right is None:
        return right if left is None else left
    return f"({left} and {right})"


def _outside(code: str, kind: pa.DataType) -> str:
    limit = 1 << (kind.bit_width - 1)
    return f"{code} < {-limit} or {code} >= {limit}"


def _wide(kind: pa.DataType) -> str:
    return "np.float64" if kind == pa.float64() else "np.int64"


def _zero(kind: pa.DataType) -> str:
    if kind == pa.bool_():
        return "False"
    if kind in FLOATS:
        return f"np.{'float32' if kind == pa.float32() else 'float64'}(0)"
    return "np.int64(0)"


def _is_safe_divisor(node: Expression) -> bool:
    return isinstance(node, Literal) and node.value not in (None, 0, -1)


def _is_text(node: Expression) -> bool:
    return isinstance(node, Binary) and is_string(node.right.type)
