"""A compiled graph: one unit's batch to partials, partials to merged partials, closed state to result rows.

Invariants:
- `fragment` reads nothing but its arguments: the same batch gives the same bytes on every host and thread.
- Partials are sorted by (task, pane), and within these by the row that was seen first.
- Result rows are sorted by (window, keys), nulls last, whatever the history of the tables that held them.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kedge.errors import UsageError
from kedge.graph import Graph, Input
from kedge.graph.expressions import Column
from kedge.kernel import cache, columns, hashing
from kedge.kernel.layout import Layout, layout_of
from kedge.kernel.results import result_rows
from kedge.kernel.source import Source, fragment_source
from kedge.window import Panes

SLOTS_MIN = 1 << 12


@dataclass(frozen=True, slots=True)
class Fragment:
    """What a program makes of one batch: partials, and how many rows it saw, dropped as late and took."""

    partials: pa.RecordBatch
    rows: int
    rows_late: int
    rows_kept: int


@dataclass(slots=True)
class _Scratch:
    """One thread's arrays, kept from batch to batch: fresh memory costs more than the work on it."""

    slots: NDArray[np.int32]
    groups: NDArray[np.int64]


class _Kernel:
    """One variant of the fragment kernel."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.function = cache.load(source.text).fragment
        self.local = threading.local()

    def scratch(self, slots: int = 0) -> _Scratch:
        """This thread's arrays with `slots` empty slots, or with about as many as the last batch had use for."""
        kept: _Scratch | None = getattr(self.local, "scratch", None)
        wanted = slots or max(SLOTS_MIN, 1 << (3 * getattr(self.local, "groups", 0)).bit_length())
        if kept is None or kept.slots.size < wanted:
            groups = np.empty((wanted >> 1) * self.source.words.width, np.int64)
            kept = self.local.scratch = _Scratch(np.empty(wanted, np.int32), groups)
        kept.slots[:wanted].fill(0)
        return _Scratch(kept.slots[:wanted], kept.groups)


class Program:
    """The code for one graph and number of tasks; made by `compile_graph`."""

    def __init__(self, graph: Graph, tasks: int) -> None:
        if not 1 <= tasks <= 1 << 20:
            raise UsageError(f"The number of tasks must be 1 to {1 << 20}, not {tasks}.")
        self.graph, self.tasks = graph, tasks
        self.layout: Layout = layout_of(graph)
        window = graph.aggregate.window
        self.panes = Panes(window.width_us, window.slide_us, window.start_us)
        self.inputs: tuple[Input, ...] = graph.inputs
        self.partial_schema: pa.Schema = self.layout.schema
        self.state_schema: pa.Schema = self.layout.schema
        self.result_schema: pa.Schema = graph.result_schema
        self.exact: bool = self.layout.exact
        self._kernels: dict[bool, _Kernel] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return compile_graph, (self.graph, self.tasks)

    def fragment(self, input: str, batch: pa.RecordBatch, late_us: int) -> Fragment:  # noqa: A002
        """Reduce one batch of the input: filter, group by (task, pane, keys), drop and count late rows.

        A row is late when its window ends at or before `late_us`. `batch` may have more columns than are needed.
        """
        source = self.inputs[0]
        if input != source.name:
            raise UsageError(f"The query does not read {input!r}; it reads {source.name!r}.")
        needed = [self._column(batch, name) for name in source.columns]
        has_nulls = any(column.null_count for column in needed)
        kernel = self._kernel(has_nulls)
        arrays, dictionaries = _arrays(kernel.source, batch)
        groups, state = self._run(kernel, batch.num_rows, late_us, arrays)
        return Fragment(self._partials(kernel, groups, dictionaries), batch.num_rows, int(state[1]), int(state[2]))

    def combine(self, partials: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """Merge partials of several fragments, in the order given, into one batch sorted as each of them."""
        from kedge.kernel.table import merged

        return merged(self, partials)

    def results(self, closed: pa.RecordBatch) -> pa.RecordBatch:
        """Result rows of closed groups."""
        return result_rows(self, closed)

    def warm(self) -> None:
        """Load or compile the code for batches without nulls, before the first row."""
        empty = [pa.array([], field.type) for field in self.inputs[0].schema]
        self.fragment(self.inputs[0].name, pa.record_batch(empty, schema=self.inputs[0].schema), 0)

    def _kernel(self, nulls: bool) -> _Kernel:
        if nulls not in self._kernels:
            self._kernels[nulls] = _Kernel(fragment_source(self.graph, self.layout, nulls=nulls))
        return self._kernels[nulls]

    def _column(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        at = batch.schema.get_field_index(name)
        if at < 0:
            raise UsageError(
                f"The batch has no column {name!r}; the query needs {', '.join(self.inputs[0].columns)}."
            )
        column, wanted = batch.column(at), self.inputs[0].schema.field(name).type
        actual = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if actual != wanted:
            raise UsageError(f"Column {name!r} of the batch is {column.type}; the query was compiled for {wanted}.")
        return column

    def _run(self, kernel: _Kernel, rows: int, late_us: int, arrays: list[Any]) -> tuple[NDArray[np.int64], Any]:
        """Call the kernel until it has taken all rows; make room whenever it asks."""
        scratch, state, at = kernel.scratch(), np.zeros(5, np.int64), 0
        while True:
            shift = np.uint64(65 - scratch.slots.size.bit_length())
            floats = scratch.groups.view(np.float64)
            at = int(
                kernel.function(at, rows, late_us, shift, scratch.slots, scratch.groups, floats, state, *arrays)
            )
            if state[3]:
                what = kernel.source.errors[int(state[3]) - 1]
                raise UsageError(
                    f"Row {at} of the batch: {what}. Correct the data, or filter such rows.", code="arithmetic"
                )
            if at >= rows:
                break
            scratch = self._grown(kernel, scratch, int(state[0]))
        kernel.local.groups = int(state[0])
        width = kernel.source.words.width
        return scratch.groups[: int(state[0]) * width].reshape(-1, width), state

    def _grown(self, kernel: _Kernel, old: _Scratch, count: int) -> _Scratch:
        """Four times the slots, with the groups that are there."""
        words = kernel.source.words
        new = kernel.scratch(old.slots.size * 2)
        new.groups[: count * words.width] = old.groups[: count * words.width]
        names = len(self.layout.keys) + (words.nulls is not None)
        shift = np.uint64(65 - new.slots.size.bit_length())
        hashing.reindex(new.slots, new.groups, count, words.width, names, shift)
        return new

    def _partials(
        self, kernel: _Kernel, groups: NDArray[np.int64], dictionaries: dict[Any, pa.Array]
    ) -> pa.RecordBatch:
        words, layout, rows = kernel.source.words, self.layout, len(groups)
        nulls = groups[:, words.nulls].copy() if words.nulls is not None else np.zeros(rows, np.int64)
        tasks = self._tasks(groups, nulls, dictionaries)
        order = np.arange(rows)
        panes = groups[:, 0]
        if rows and not (panes[:-1] <= panes[1:]).all():
            order = np.argsort(panes, kind="stable")
        by_task = np.empty(rows, np.int64)
        hashing.order_by_task(tasks, self.tasks, order, by_task)
        sorted_groups = hashing.transposed(groups, by_task)
        nulls = nulls[by_task]
        out = [pa.array(tasks[by_task]), pa.array(sorted_groups[0])]
        for at, key in enumerate(layout.keys):
            valid = (nulls >> at) & 1 == 0 if words.nulls is not None else None
            column = sorted_groups[words.keys + at]
            if key.is_string:
                codes = pa.array(column, mask=None if valid is None else ~valid)
                out.append(dictionaries[key.expression].dictionary.take(codes).cast(key.type))
            else:
                out.append(columns.column_of(column, key.type, valid))
        for at, cell in enumerate(layout.cells):
            valid = None
            if words.has is not None and cell.nullable and self._may_be_empty(kernel, at):
                valid = (sorted_groups[words.has] >> at) & 1 == 1
            out.append(columns.column_of(sorted_groups[words.cells + at], cell.type, valid))
        return pa.RecordBatch.from_arrays(out, schema=self.partial_schema)

    def _may_be_empty(self, kernel: _Kernel, at: int) -> bool:
        return self.layout.cells[at].nullable and kernel.source.words.has is not None

    def _tasks(
        self, groups: NDArray[np.int64], nulls: NDArray[np.int64], dictionaries: dict[Any, pa.Array]
    ) -> NDArray[np.int32]:
        tasks = np.empty(len(groups), np.int32)
        if not any(key.is_string for key in self.layout.keys):
            hashing.tasks_of_groups(groups, 1, len(self.layout.keys), nulls, self.tasks, tasks)
            return tasks
        hashes = hashing.start(len(groups))
        for at, key in enumerate(self.layout.keys):
            words = np.ascontiguousarray(groups[:, 1 + at])
            if key.is_string:
                texts = hashing.text_hashes(dictionaries[key.expression].dictionary)
                words = texts[words] if len(texts) else words
            hashing.hash_keys(hashes, words.view(np.int64), nulls, at)
        hashing.tasks_of(hashes, self.tasks, tasks)
        return tasks


def compile_graph(graph: Graph, tasks: int = 256) -> Program:
    """The program of a graph; machine code is loaded or made when the first batch comes, or by `warm()`."""
    return Program(graph, tasks)


def _arrays(source: Source, batch: pa.RecordBatch) -> tuple[list[Any], dict[Any, pa.Array]]:
    """The kernel's arrays for a batch, and the dictionaries of the string columns among them."""
    data: list[Any] = []
    valid: list[Any] = []
    dictionaries: dict[Any, pa.Array] = {}
    for slot in source.slots:
        if slot.kind == "condition":
            column = columns.condition(slot.source, batch)
            data.append(columns.values(column.fill_null(False)))
        elif slot.kind == "codes":
            assert isinstance(slot.source, Column)
            column = dictionaries[slot.source] = columns.encoded(batch.column(slot.source.name))
            data.append(columns.values(column.indices))
        else:
            assert isinstance(slot.source, Column)
            column = batch.column(slot.source.name)
            data.append(columns.values(column))
        if source.nulls:
            valid.append(columns.validity(column))
    return data + valid, dictionaries


__all__ = ["Fragment", "Program", "compile_graph"]
