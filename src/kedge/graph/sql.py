"""The SQL front end: one query in Spark's dialect to a Graph, or a UsageError that names construct and place.

What is supported: `SELECT` of the window, its start or end, keys and aggregates `FROM` one stream, `WHERE`,
`GROUP BY` with one tumbling `window(event time, width)` and keys, `HAVING` with comparisons against constants.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from kedge.errors import UsageError
from kedge.graph.bind import Binder, Node
from kedge.graph.expressions import FLOATS, INTEGERS, Cast, Column, Expression, Literal, columns_of, is_string
from kedge.graph.operators import Aggregate, Filter, Graph, Having, Input, Output, Project, Window, WindowAggregate

SHAPE = (
    "Supported is: SELECT window, keys, aggregates FROM one stream [WHERE ...] "
    "GROUP BY window(event time, 'width'), keys ... [HAVING aggregate < constant]."
)
AGGREGATES = "Aggregates are count, sum, avg, min and max."
_UNITS_US = {"microsecond": 1, "millisecond": 1_000, "second": 10**6, "minute": 60 * 10**6, "hour": 3600 * 10**6,
             "day": 86_400 * 10**6, "week": 7 * 86_400 * 10**6}  # fmt: skip
_FUNCTIONS: dict[type[Node], str] = {
    exp.Count: "count",
    exp.Sum: "sum",
    exp.Avg: "avg",
    exp.Min: "min",
    exp.Max: "max",
}
_COMPARED: dict[type[Node], str] = {
    exp.EQ: "=", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}  # fmt: skip
_SWAPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def parse(text: str, schemas: Mapping[str, pa.Schema], event_times: Mapping[str, str | None]) -> Graph:
    """The graph of one SQL query over the streams whose schemas and event-time columns are given.

    >>> schema = pa.schema([("ts", pa.timestamp("us", "UTC")), ("k", pa.int64())])
    >>> query = "SELECT window(ts, '10 seconds') AS w, k, count(*) AS n FROM s GROUP BY window(ts, '10 seconds'), k"
    >>> parse(query, {"s": schema}, {"s": "ts"}).window
    (10000000, 10000000)
    """
    quoted = _quote_windows(text)
    try:
        statements = [one for one in sqlglot.parse(quoted, dialect="spark") if one is not None]
    except SqlglotError as error:
        detail = (getattr(error, "errors", None) or [{}])[0]
        where = f"Line {detail['line']}, column {detail['col']}: " if "line" in detail else ""
        raise UsageError(f"{where}this is not SQL of Spark: {detail.get('description', error)} {SHAPE}") from None
    if len(statements) != 1 or not isinstance(statements[0], exp.Select):
        raise UsageError(f"One SELECT is needed, this is {text.strip()[:60]!r}. {SHAPE}", code="query")
    return _Query(text, quoted, statements[0], schemas, event_times).graph()


class _Query:
    """One SELECT on its way to a graph."""

    def __init__(
        self,
        text: str,
        quoted: str,
        select: exp.Select,
        schemas: Mapping[str, pa.Schema],
        event_times: Mapping[str, str | None],
    ) -> None:
        _restore_places(select, text, quoted)
        self.select = select
        self.binder = self._from(text, schemas)
        self.event_time = event_times.get(self.binder.name)
        self.aliases: dict[str, Node] = {
            item.alias.lower(): item.this for item in select.expressions if isinstance(item, exp.Alias)
        }
        self.window: Window | None = None
        self.keys: list[Expression] = []
        self.aggregates: list[Aggregate] = []

    def graph(self) -> Graph:
        self._only_known_clauses()
        where = self.select.args.get("where")
        condition = None if where is None else self.binder.boolean(where.this, self.binder.bind(where.this))
        self._group_by()
        outputs = tuple(self._output(item) for item in self.select.expressions)
        names = [output.name for output in outputs]
        if len(set(names)) < len(names):
            self._refuse(self.select, f"two result columns have the same name: {', '.join(names)}", "Use AS.")
        having = self.select.args.get("having")
        kept = () if having is None else tuple(map(self._having, _conjuncts(having.this)))
        assert self.window is not None
        aggregate = WindowAggregate(self.window, tuple(self.keys), tuple(self.aggregates))
        return Graph((self._input(condition, aggregate),), condition and Filter(condition), aggregate,
                     Project(outputs, kept))  # fmt: skip

    def _refuse(self, node: Node, what: str, supported: str = SHAPE) -> None:
        self.binder.refuse(node, what, supported)

    def _from(self, text: str, schemas: Mapping[str, pa.Schema]) -> Binder:
        source = self.select.args.get("from_") or self.select.args.get("from")
        table = None if source is None else source.this
        if not isinstance(table, exp.Table) or self.select.args.get("joins"):
            raise UsageError(f"The query needs FROM with one stream. {SHAPE}", code="query")
        names = {name.lower(): name for name in schemas}
        name = names.get(table.name.lower())
        if name is None:
            raise UsageError(f"There is no stream {table.name!r}. There are: {', '.join(schemas)}.", code="query")
        return Binder(text, name, table.alias or name, schemas[name])

    def _only_known_clauses(self) -> None:
        known = {"expressions", "from_", "from", "where", "group", "having", "kind"}
        for clause, value in self.select.args.items():
            if value and clause not in known:
                node = value[0] if isinstance(value, list) else value
                self._refuse(node if hasattr(node, "walk") else self.select,
                             f"{clause.upper().rstrip('_')} is not supported")  # fmt: skip
        if self.select.args.get("group") is None:
            self._refuse(self.select, "there is no GROUP BY with a window")

    def _group_by(self) -> None:
        group = self.select.args["group"]
        for option, value in group.args.items():
            if value and option != "expressions":
                self._refuse(group, f"GROUP BY with {option.upper()} is not supported")
        for item in group.expressions:
            node = self._by_alias(item)
            window = self._as_window(node)
            if window is None:
                self._add_key(node)
            elif self.window not in (None, window):
                self._refuse(node, "a second window in GROUP BY is not supported")
            else:
                self.window = window
        if self.window is None:
            self._refuse(group, "GROUP BY has no window")

    def _by_alias(self, item: Node) -> Node:
        """What a grouping item stands for: a position, an alias of the SELECT list, or itself."""
        if isinstance(item, exp.Literal) and not item.is_string:
            position = int(item.this)
            if not 1 <= position <= len(self.select.expressions):
                self._refuse(item, f"there is no result column {position}")
            return self.select.expressions[position - 1].unalias()
        if isinstance(item, exp.Column) and not item.table:
            is_column = item.name.lower() in {name.lower() for name in self.binder.schema.names}
            if not is_column and item.name.lower() in self.aliases:
                return self.aliases[item.name.lower()]
        return item

    def _add_key(self, node: Node) -> None:
        if _FUNCTIONS.keys() & {type(inner) for inner in node.walk()}:
            self._refuse(node, "an aggregate can't be a key")
        key = self.binder.bind(node)
        if key.type in FLOATS or pa.types.is_decimal(key.type) or key.type == pa.null():
            what = f"a key of type {key.type} is not supported"
            self._refuse(node, what, "Keys are integers, bool, date, timestamp or string.")
        if is_string(key.type) and not isinstance(key, Column):
            self._refuse(node, "a computed string as key is not supported", "Use the column itself.")
        if key not in self.keys:
            self.keys.append(key)

    def _as_window(self, node: Node) -> Window | None:
        if not (isinstance(node, exp.Anonymous) and node.name.lower() == "window"):
            return None
        column, *durations = node.expressions
        if not isinstance(column, exp.Column) or self.binder.column(column).name != self.event_time:
            declared = self.event_time or "not declared: open the stream with event_time="
            self._refuse(node, f"a window needs the event time of {self.binder.name!r}", f"That is {declared}.")
        if not 1 <= len(durations) <= 3:
            self._refuse(node, "window() takes a width, a slide and a start")
        width_us, *rest = [self._duration_us(duration) for duration in durations]
        slide_us, start_us = (*rest, width_us, 0)[:2] if len(rest) < 2 else rest
        if len(rest) == 1:
            start_us = 0
        if width_us <= 0 or slide_us <= 0 or slide_us > width_us or abs(start_us) >= slide_us:
            self._refuse(node, "width and slide must be positive, the slide at most the width, the start below it")
        if slide_us != width_us:
            self._refuse(
                node, "sliding windows are not supported yet", "Use a tumbling window: window(ts, 'width')."
            )
        assert self.event_time is not None
        return Window(self.event_time, width_us, slide_us, start_us % slide_us)

    def _duration_us(self, node: Node) -> int:
        text = node.this if isinstance(node, exp.Literal) and node.is_string else ""
        parts = re.fullmatch(r"\s*(interval\s+)?((-?\d+\s*[a-z]+\s*)+)", text.lower())
        total_us = 0
        for count, unit in re.findall(r"(-?\d+)\s*([a-z]+)", parts.group(2) if parts else ""):
            if unit.rstrip("s") not in _UNITS_US:
                parts = None
                break
            total_us += int(count) * _UNITS_US[unit.rstrip("s")]
        if parts is None:
            self._refuse(node, "this is no duration", f"Write '10 seconds'; units are {', '.join(_UNITS_US)}.")
        return total_us

    def _output(self, item: Node) -> Output:
        node = item.unalias()
        source, index, kind, name = self._resolve(node)
        return Output(item.alias if isinstance(item, exp.Alias) else name, source, index, kind)

    def _resolve(self, node: Node) -> tuple[str, int, pa.DataType, str]:
        """(source, index, type, Spark's name) of something that a group has."""
        moment = self._time_type()
        if self._as_window(node) is not None or self._is_window_name(node):
            if self._as_window(node) not in (None, self.window):
                self._refuse(node, "this window is not the one of GROUP BY")
            name = "window" if isinstance(node, exp.Anonymous) else node.name
            return "window", 0, pa.struct([pa.field("start", moment), pa.field("end", moment)]), name
        if type(node) in _FUNCTIONS:
            aggregate = self._aggregate(node)
            if aggregate not in self.aggregates:
                self.aggregates.append(aggregate)
            return "aggregate", self.aggregates.index(aggregate), aggregate.type, str(aggregate)
        side = self._window_side(node)
        if side is not None:
            return side, 0, moment, side
        if isinstance(node, exp.Column) and not node.table and node.name.lower() in self.aliases:
            inner = self.aliases[node.name.lower()]
            is_column = node.name.lower() in {name.lower() for name in self.binder.schema.names}
            if not is_column and inner is not node:
                return (*self._resolve(inner)[:3], node.name)
        if _FUNCTIONS.keys() & {type(inner) for inner in node.walk()}:
            self._refuse(
                node, "an expression over aggregates is not supported", "Select the aggregates themselves."
            )
        key = self.binder.bind(node)
        if key not in self.keys:
            self._refuse(node, f"{key} is neither in GROUP BY nor an aggregate", AGGREGATES)
        name = key.arg.name if isinstance(key, Cast) and isinstance(key.arg, Column) else str(key)
        return "key", self.keys.index(key), key.type, node.name if isinstance(node, exp.Column) else name

    def _aggregate(self, node: Node) -> Aggregate:
        function = _FUNCTIONS[type(node)]
        argument = node.this
        if isinstance(argument, exp.Distinct) or node.expressions:
            self._refuse(node, "DISTINCT and several arguments are not supported in aggregates", AGGREGATES)
        if function == "count" and isinstance(argument, exp.Star):
            return Aggregate("count", None, pa.int64())
        if _FUNCTIONS.keys() & {type(inner) for inner in argument.walk()}:
            self._refuse(node, "an aggregate inside an aggregate is not supported", AGGREGATES)
        arg = self.binder.bind(argument)
        if function == "count":
            if isinstance(arg, Literal) and arg.value is not None:
                return Aggregate("count", None if str(arg) == "1" else arg, pa.int64())
            return Aggregate("count", arg, pa.int64())
        usable = (
            (*INTEGERS, *FLOATS) if function in ("sum", "avg") else (*INTEGERS, *FLOATS, pa.bool_(), pa.date32())
        )
        if arg.type not in usable and not (function in ("min", "max") and pa.types.is_timestamp(arg.type)):
            self._refuse(node, f"{function} of {arg.type} is not supported", AGGREGATES)
        if function in ("min", "max"):
            return Aggregate(function, arg, arg.type)
        whole = function == "sum" and arg.type in INTEGERS
        return Aggregate(function, arg, pa.int64() if whole else pa.float64())

    def _having(self, node: Node) -> Having:
        node = node.unnest()
        op = _COMPARED.get(type(node))
        if op is None:
            self._refuse(node, "this HAVING is not supported")
            raise AssertionError
        left, right = node.this.unnest(), node.expression.unnest()
        if isinstance(left, exp.Literal | exp.Neg):
            left, right, op = right, left, _SWAPPED.get(op, op)
        source, index, kind, _ = self._resolve(left)
        constant = self.binder.bind(right)
        if source not in ("aggregate", "key") or not isinstance(constant, Literal) or constant.value is None:
            self._refuse(node, "this HAVING is not supported")
        assert isinstance(constant, Literal)
        if is_string(kind) != isinstance(constant.value, str) or (kind == pa.bool_()) != (
            constant.type == pa.bool_()
        ):
            self._refuse(node, f"a comparison of {kind} and {constant.type} is not supported")
        assert constant.value is not None
        return Having(source, index, op, constant.value)

    def _is_window_name(self, node: Node) -> bool:
        if not isinstance(node, exp.Column) or node.table:
            return False
        named = self.aliases.get(node.name.lower())
        return node.name.lower() == "window" or (named is not None and self._as_window(named) is not None)

    def _window_side(self, node: Node) -> str | None:
        """`w.start`, `window.end` or `window(..).start`."""
        if isinstance(node, exp.Column) and node.table:
            owner: Node = exp.column(node.table)
        elif isinstance(node, exp.Dot):
            owner = node.this.unnest()
        else:
            return None
        side = (node.name or node.expression.name).lower()
        if side not in ("start", "end"):
            return None
        return side if self._is_window_name(owner) or self._as_window(owner) == self.window else None

    def _time_type(self) -> pa.DataType:
        assert self.window is not None
        return self.binder.schema.field(self.window.column).type

    def _input(self, condition: Expression | None, aggregate: WindowAggregate) -> Input:
        """The columns that anything reads: the others are never decoded."""
        parts = [*aggregate.keys, *(one.arg for one in aggregate.aggregates if one.arg is not None)]
        used = {column.name for part in parts for column in columns_of(part)} | {aggregate.window.column}
        if condition is not None:
            used |= {column.name for column in columns_of(condition)}
        fields = [field for field in self.binder.schema if field.name in used]
        return Input(self.binder.name, tuple(field.name for field in fields), self.event_time, pa.schema(fields))


def _conjuncts(node: Node) -> list[Node]:
    node = node.unnest()
    return [*_conjuncts(node.this), *_conjuncts(node.expression)] if isinstance(node, exp.And) else [node]


def _quote_windows(text: str) -> str:
    """sqlglot 30 reads GROUP BY window( as a WINDOW clause; a quoted name is only a name."""
    try:
        tokens = sqlglot.tokenize(text, dialect="spark")
    except SqlglotError:
        return text
    for token, after in reversed(list(pairwise(tokens))):
        if token.text.lower() == "window" and after.text == "(" and text[token.start] != "`":
            text = f"{text[: token.start]}`{text[token.start : token.end + 1]}`{text[token.end + 1 :]}"
    return text


def _restore_places(select: exp.Select, text: str, quoted: str) -> None:
    """Positions in the quoted text become positions in the user's."""
    if text == quoted:
        return
    origin, at = [], 0
    for character in quoted:
        origin.append(min(at, len(text) - 1))
        at += at < len(text) and text[at] == character
    for node in select.walk():
        if "start" in node.meta:
            node.meta["start"], node.meta["end"] = origin[node.meta["start"]], origin[node.meta["end"]]
