"""What a program keeps for each group: key columns and cells, as Arrow columns and as 8-byte words.

Invariants:
- A group is (pane, keys). Its task is a fixed function of its keys alone (`hashing`), so a key never changes task.
- Every key and every cell is one word. A string key's word is a reference: a code in a fragment, an offset into a
  heap in a table; equality is always by bytes.
- A cell merges with one of OPS. Which cells may be empty (no value seen yet) is kept as bits of one word, `has`.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from kedge.errors import UsageError
from kedge.graph import Aggregate, Graph
from kedge.graph.expressions import FLOATS, INTEGERS, Expression, is_string

ADD_INT, ADD_FLOAT, MIN_INT, MAX_INT, MIN_FLOAT, MAX_FLOAT = range(6)
FLOAT_OPS = (ADD_FLOAT, MIN_FLOAT, MAX_FLOAT)
KEYS_MAX = 32


@dataclass(frozen=True, slots=True)
class Key:
    """One grouping expression."""

    expression: Expression

    @property
    def type(self) -> pa.DataType:
        """The Arrow type of the key's column."""
        return self.expression.type

    @property
    def is_string(self) -> bool:
        """Whether the word is a reference to bytes."""
        return is_string(self.type)


@dataclass(frozen=True, slots=True)
class Cell:
    """One word of aggregate state: what is added to it, how it merges, and its column's type."""

    op: int
    arg: Expression | None  # None counts rows
    counts: bool  # adds 1 for each valid argument instead of the argument
    type: pa.DataType
    nullable: bool

    @property
    def is_float(self) -> bool:
        """Whether the word holds a double."""
        return self.op in FLOAT_OPS


@dataclass(frozen=True, slots=True)
class Layout:
    """Keys and cells of a graph; `cells_of[i]` are the cells of its i-th aggregate."""

    keys: tuple[Key, ...]
    cells: tuple[Cell, ...]
    cells_of: tuple[tuple[int, ...], ...]

    @property
    def schema(self) -> pa.Schema:
        """The columns of partials and of state rows: task, pane, keys, cells."""
        fields = [pa.field("task", pa.int32(), nullable=False), pa.field("pane", pa.int64(), nullable=False)]
        fields += [pa.field(f"key{at}", key.type) for at, key in enumerate(self.keys)]
        fields += [pa.field(f"cell{at}", cell.type, nullable=cell.nullable) for at, cell in enumerate(self.cells)]
        return pa.schema(fields)

    @property
    def exact(self) -> bool:
        """Whether merging in another order gives the same bytes: no sums of floats."""
        return all(cell.op != ADD_FLOAT for cell in self.cells)


def layout_of(graph: Graph) -> Layout:
    """The layout of a graph; equal cells of different aggregates are kept once."""
    cells: list[Cell] = []
    cells_of: list[tuple[int, ...]] = []
    for aggregate in graph.aggregate.aggregates:
        places: list[int] = []
        for cell in _cells(aggregate):
            if cell not in cells:
                cells.append(cell)
            places.append(cells.index(cell))
        cells_of.append(tuple(places))
    keys = tuple(Key(key) for key in graph.aggregate.keys)
    if len(keys) > KEYS_MAX or len(cells) > 60:
        raise UsageError(
            f"At most {KEYS_MAX} keys and 60 cells of aggregates; the query has {len(keys)} and {len(cells)}."
        )
    return Layout(keys, tuple(cells), tuple(cells_of))


def _cells(aggregate: Aggregate) -> tuple[Cell, ...]:
    arg = aggregate.arg
    count = Cell(ADD_INT, arg, counts=True, type=pa.int64(), nullable=False)
    if aggregate.function == "count" or arg is None:
        return (count,)
    if aggregate.function == "sum":
        op = ADD_FLOAT if arg.type in FLOATS else ADD_INT
        return (Cell(op, arg, counts=False, type=aggregate.type, nullable=True),)
    if aggregate.function == "avg":
        # Spark adds doubles; integers of up to 32 bits are added exactly here, which differs only beyond 2**53.
        whole = arg.type in INTEGERS and arg.type != pa.int64()
        kind = pa.int64() if whole else pa.float64()
        return Cell(ADD_INT if whole else ADD_FLOAT, arg, counts=False, type=kind, nullable=True), count
    if arg.type in FLOATS:
        op = MIN_FLOAT if aggregate.function == "min" else MAX_FLOAT
    else:
        op = MIN_INT if aggregate.function == "min" else MAX_INT
    return (Cell(op, arg, counts=False, type=arg.type, nullable=True),)
