"""Tables from state units, and the tables of a run that lives in one process.

What is loaded: the newest base and every redo after it, as the run's state lists them, in the order they were
written; of several rows of one group the last is its value, and rows of closed windows stay behind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from kedge.errors import CorruptError
from kedge.host import Store
from kedge.kernel import Program, Table, load_all, move_all
from kedge.run.core import NEVER_US, Plan, RunState
from kedge.run.node import NO_VERSION, for_node
from kedge.streams import decode_named

ROWS_FIRST = 256  # that a new table has room for


def state_rows(program: Program, store: Store, run_id: str, state: RunState, tasks: range) -> list[pa.RecordBatch]:
    """The state rows of consecutive tasks at the version of `state`, in the order they were written."""
    found: list[pa.RecordBatch] = []
    for unit in state.units:
        try:
            data = store.get(unit.file)
        except FileNotFoundError:
            raise CorruptError(f"The state unit {unit.file} is committed and not there. Restore it.") from None
        rows = for_node(decode_named(data, run_id, unit.file, program.state_schema), tasks)
        found.append(_still_open(program, rows, state.watermark_us))
    return found


def _still_open(program: Program, rows: pa.RecordBatch, watermark_us: int) -> pa.RecordBatch:
    """Rows whose window the watermark has not passed."""
    if watermark_us == NEVER_US or not rows.num_rows:
        return rows
    ends = rows.column(1).to_numpy() + program.panes.width_us
    keep = ends > watermark_us
    return rows if keep.all() else rows.filter(pa.array(keep))


def rows_by_task(rows: Sequence[pa.RecordBatch], tasks: range) -> dict[int, int]:
    """How many rows each task has in all the batches together."""
    counts = np.zeros(len(tasks), np.int64)
    for batch in rows:
        counts += np.bincount(batch.column(0).to_numpy() - tasks.start, minlength=len(tasks))
    return dict(zip(tasks, counts.tolist(), strict=True))


def fill(program: Program, tables: Mapping[int, Table], rows: Sequence[pa.RecordBatch], state: RunState) -> None:
    """Make empty tables hold `rows` at the version of `state`."""
    load_all(program, tables, rows, state.nonce or NO_VERSION, state.watermark_us)


class MemoryTables:
    """Tables in this process's memory: gone with it, and restored from state units."""

    def __init__(self, program: Program, store: Store, run_id: str) -> None:
        self._program, self._store, self._run_id = program, store, run_id
        self._tables: dict[int, Table] = {}
        self.state = RunState()  # the shell keeps it at the run's newest version

    def attach(self, plan: Plan, tasks: range) -> dict[int, Table]:
        """The tables of `tasks`; those that are not at the parent's version are restored."""
        version = plan.parent or NO_VERSION
        missing = [t for t in tasks if t not in self._tables or self._tables[t].version != version]
        if missing:
            self._restore(range(missing[0], missing[-1] + 1))
        return {task: self._tables[task] for task in tasks}

    def _restore(self, tasks: range) -> None:
        rows = state_rows(self._program, self._store, self._run_id, self.state, tasks)
        text_bytes = sum(batch.nbytes for batch in rows) if rows else 0
        for task, count in rows_by_task(rows, tasks).items():
            share = text_bytes * count // max(1, sum(batch.num_rows for batch in rows))
            size = Table.bytes_needed(self._program, max(ROWS_FIRST, 2 * count), 2 * share)
            self._tables[task] = self._new(size)
        fill(self._program, {task: self._tables[task] for task in tasks}, rows, self.state)

    def grow(self, task: int, size: int) -> Table:
        """A larger table with the same content."""
        larger = self._new(size)
        move_all(self._program, [self._tables[task]], [larger])
        self._tables[task] = larger
        return larger

    def _new(self, size: int) -> Table:
        buffer = np.empty(-(-size // 8), np.int64)
        Table.format(buffer, self._program, NO_VERSION)
        return Table(buffer, self._program)
