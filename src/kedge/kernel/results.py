"""Closed groups to result rows: finished aggregates, HAVING, the result's columns, a fixed order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kedge.graph import Having
from kedge.kernel.columns import pc

if TYPE_CHECKING:
    from kedge.kernel.program import Program

_COMPARE = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def result_rows(program: Program, closed: pa.RecordBatch) -> pa.RecordBatch:
    """The result rows of `closed` (state rows), sorted by window and keys, nulls last."""
    rows = closed.take(pa.array(_order(program, closed)))
    for test in program.graph.project.having:
        rows = rows.filter(_keeps(program, rows, test))
    out = [_column(program, rows, output.source, output.index) for output in program.graph.project.outputs]
    return pa.RecordBatch.from_arrays(out, schema=program.result_schema)


def _order(program: Program, closed: pa.RecordBatch) -> Any:
    if not closed.num_rows:
        return np.zeros(0, np.int64)
    keys = [("pane", "ascending")] + [(f"key{at}", "ascending") for at in range(len(program.layout.keys))]
    return pc.sort_indices(closed, sort_keys=keys)


def _keeps(program: Program, rows: pa.RecordBatch, test: Having) -> pa.Array:
    column = _column(program, rows, test.source, test.index)
    value = pa.scalar(test.value)
    if pa.types.is_integer(column.type) and isinstance(test.value, float):
        column = column.cast(pa.float64(), safe=False)
    elif pa.types.is_floating(column.type):
        column, value = column.cast(pa.float64()), pa.scalar(float(test.value))
        return pc.fill_null(_nan_is_greatest(column, test.op, value), False)
    elif pa.types.is_temporal(column.type):
        value = pa.scalar(int(test.value), pa.int32() if pa.types.is_date(column.type) else pa.int64()).cast(
            column.type
        )
    return pc.fill_null(_COMPARE[test.op](column, value), False)


def _nan_is_greatest(column: pa.Array, op: str, value: pa.Scalar) -> pa.Array:
    test = _COMPARE[op](column, value)
    return pc.if_else(pc.is_nan(column), pa.scalar(op in (">", ">=", "!=")), test)


def _column(program: Program, rows: pa.RecordBatch, source: str, index: int) -> pa.Array:
    if source == "key":
        return rows.column(f"key{index}")
    if source == "aggregate":
        return _finished(program, rows, index)
    moment = program.inputs[0].schema.field(program.graph.aggregate.window.column).type
    start = rows.column("pane")
    end = pc.add(start, pa.scalar(program.panes.width_us, pa.int64()))
    if source != "window":
        return (start if source == "start" else end).cast(moment)
    kind = pa.struct([pa.field("start", moment), pa.field("end", moment)])
    return pa.StructArray.from_arrays([start.cast(moment), end.cast(moment)], fields=list(kind))


def _finished(program: Program, rows: pa.RecordBatch, index: int) -> pa.Array:
    """The value of an aggregate from its cells."""
    cells = [rows.column(f"cell{at}") for at in program.layout.cells_of[index]]
    if program.graph.aggregate.aggregates[index].function != "avg":
        return cells[0]
    total, count = cells
    # An empty group's sum is null, and so is its average: 0 / 0 never happens.
    return pc.divide(total.cast(pa.float64(), safe=False), count.cast(pa.float64(), safe=False))
