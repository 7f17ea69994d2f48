"""A query as operators: Scan -> Filter -> WindowAggregate -> Project, and the graph that holds them.

Invariants:
- Operators are values; a rewrite returns a new graph.
- `Graph.fingerprint()` depends only on what the query means for stored state and results, not on how it was spelt
  in white space or comments: a run that is continued compares it.

Today a graph is one such chain. Other shapes (joins, several aggregations) will be further operators below.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields

import pyarrow as pa
import xxhash

from kedge.graph.expressions import Expression, to_json


@dataclass(frozen=True, slots=True)
class Input:
    """A stream that the graph reads: the columns it needs, in the stream's order, and its event time."""

    name: str
    columns: tuple[str, ...]
    event_time: str | None
    schema: pa.Schema  # of the needed columns

    def __str__(self) -> str:
        return f"Scan {self.name} [{', '.join(self.columns)}]"


@dataclass(frozen=True, slots=True)
class Filter:
    """Keeps the rows for which `condition` is true (not null)."""

    condition: Expression

    def __str__(self) -> str:
        return f"Filter {self.condition}"


@dataclass(frozen=True, slots=True)
class Aggregate:
    """count, sum, avg, min or max; `arg` is None for count(*)."""

    function: str
    arg: Expression | None
    type: pa.DataType

    def __str__(self) -> str:
        return f"{self.function}({'1' if self.arg is None else self.arg})"


@dataclass(frozen=True, slots=True)
class Window:
    """Windows of `width_us` that begin every `slide_us`, at multiples of it from 1970 plus `start_us`."""

    column: str
    width_us: int
    slide_us: int
    start_us: int = 0

    def __str__(self) -> str:
        return f"window({self.column}, {self.width_us} us, {self.slide_us} us, {self.start_us} us)"


@dataclass(frozen=True, slots=True)
class WindowAggregate:
    """Groups by window and keys, and aggregates each group."""

    window: Window
    keys: tuple[Expression, ...]
    aggregates: tuple[Aggregate, ...]

    def __str__(self) -> str:
        keys = ", ".join(map(str, (self.window, *self.keys)))
        return f"WindowAggregate by {keys}: {', '.join(map(str, self.aggregates)) or 'nothing'}"


@dataclass(frozen=True, slots=True)
class Output:
    """One result column: the window, its start or end, a key or an aggregate, by position."""

    name: str
    source: str  # "window", "start", "end", "key" or "aggregate"
    index: int
    type: pa.DataType

    def __str__(self) -> str:
        place = self.source if self.source not in ("key", "aggregate") else f"{self.source} {self.index}"
        return f"{place} AS {self.name}"


@dataclass(frozen=True, slots=True)
class Having:
    """Keeps groups for which a comparison of an aggregate or key with a constant is true."""

    source: str
    index: int
    op: str
    value: int | float | str | bool

    def __str__(self) -> str:
        return f"{self.source} {self.index} {self.op} {self.value}"


@dataclass(frozen=True, slots=True)
class Project:
    """The result columns, in order, of the groups that `having` keeps."""

    outputs: tuple[Output, ...]
    having: tuple[Having, ...] = ()

    def __str__(self) -> str:
        kept = f" having {' and '.join(map(str, self.having))}" if self.having else ""
        return f"Project {', '.join(map(str, self.outputs))}{kept}"


@dataclass(frozen=True, slots=True)
class Graph:
    """One query: input -> filter -> window aggregate -> result columns."""

    inputs: tuple[Input, ...]
    filter: Filter | None
    aggregate: WindowAggregate
    project: Project

    @property
    def window(self) -> tuple[int, int]:
        """(width_us, slide_us) of the windows."""
        return self.aggregate.window.width_us, self.aggregate.window.slide_us

    @property
    def result_schema(self) -> pa.Schema:
        """Names and types of the result, equal to Spark's for the same text."""
        return pa.schema([pa.field(output.name, output.type) for output in self.project.outputs])

    def explain(self) -> str:
        """The operators, the result first, each reading from the one below it."""
        chain = [self.project, self.aggregate, self.filter, self.inputs[0]]
        lines = [str(operator) for operator in chain if operator is not None]
        return "\n".join(f"{'   ' * depth}{'+- ' if depth else ''}{line}" for depth, line in enumerate(lines))

    def fingerprint(self) -> str:
        """32 hexadecimal digits: equal for graphs that mean the same state and results."""
        form = {
            "inputs": [
                [i.name, list(i.columns), [str(t) for t in i.schema.types], i.event_time] for i in self.inputs
            ],
            **{field.name: to_json(getattr(self, field.name)) for field in fields(self) if field.name != "inputs"},
        }
        return xxhash.xxh3_128_hexdigest(json.dumps(form, sort_keys=True).encode())
