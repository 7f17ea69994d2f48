"""Tables at the version that a plan wants: attached where they are, restored from state units where they are not.

What is loaded: the newest base and every redo after it, as the run's state lists them, in the order they were
written; of several rows of one group the last is its value, and rows of closed windows stay behind.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from kedge.errors import ConflictError, CorruptError
from kedge.host import Store
from kedge.kernel import Program, Table, load_all, move_all
from kedge.run.core import NEVER_US, Plan, RunState
from kedge.run.tables import Attempt, Tables
from kedge.streams import decode_named

NO_VERSION = "0" * 32  # of tables before the first batch
ROWS_FIRST = 256  # that a new table in memory has room for


def state_rows(
    program: Program, store: Store, run_id: str, state: RunState, tasks: Sequence[int]
) -> list[pa.RecordBatch]:
    """The state rows of some tasks (in order) at the version of `state`, in the order they were written."""
    found: list[pa.RecordBatch] = []
    for unit in state.units if tasks else ():
        try:
            data = store.get(unit.file)
        except FileNotFoundError:
            raise CorruptError(f"The state unit {unit.file} is committed and not there. Restore it.") from None
        rows = decode_named(data, run_id, unit.file, program.state_schema)
        found.append(_wanted(program, rows, tasks, state.watermark_us))
    return found


def _wanted(program: Program, rows: pa.RecordBatch, tasks: Sequence[int], watermark_us: int) -> pa.RecordBatch:
    """The rows of `tasks` whose window the watermark has not passed."""
    all_tasks = rows.column(0).to_numpy()
    low, high = np.searchsorted(all_tasks, [tasks[0], tasks[-1] + 1])
    rows = rows.slice(low, high - low)
    keep = np.isin(all_tasks[low:high], tasks) if tasks[-1] - tasks[0] >= len(tasks) else np.ones(high - low, bool)
    if watermark_us != NEVER_US:
        keep &= rows.column(1).to_numpy() + program.panes.width_us > watermark_us
    return rows if keep.all() else rows.filter(pa.array(keep))


class MemoryTables:
    """The tables of a run that lives in one process: gone with it, and restored from state units."""

    def __init__(self, program: Program, store: Store, run_id: str, state: Callable[[], RunState]) -> None:
        self._program, self._store, self._run_id = program, store, run_id
        self._tables: dict[int, Table] = {}
        self._state = state  # the run's newest version

    @contextmanager
    def attempt(self, _: int) -> Generator[MemoryTables]:
        """For one batch; nobody else can have them."""
        yield self

    def close(self) -> None:
        """Give the memory back."""
        self._tables.clear()

    def attach(self, plan: Plan, tasks: range) -> dict[int, Table]:
        """The tables of `tasks`; those that are not at the parent's version are restored."""
        version = plan.parent or NO_VERSION
        missing = [t for t in tasks if t not in self._tables or self._tables[t].version != version]
        if missing:
            self._restore(missing)
        return {task: self._tables[task] for task in tasks}

    def grow(self, needed: Mapping[int, int]) -> dict[int, Table]:
        """Larger tables with the same content."""
        larger = {task: self._new(size) for task, size in needed.items()}
        move_all(self._program, [self._tables[task] for task in needed], list(larger.values()))
        self._tables.update(larger)
        return larger

    def _restore(self, missing: list[int]) -> None:
        state = self._state()
        rows = state_rows(self._program, self._store, self._run_id, state, missing)
        sizes = dict.fromkeys(missing, Table.bytes_needed(self._program, ROWS_FIRST))
        while sizes:
            self._tables.update({task: self._new(size) for task, size in sizes.items()})
            tables = {task: self._tables[task] for task in missing}
            refused = load_all(self._program, tables, rows, state.nonce or NO_VERSION, state.watermark_us)
            sizes = {} if refused is None else refused.bytes_needed

    def _new(self, size: int) -> Table:
        buffer = np.empty(-(-size // 8), np.int64)
        Table.format(buffer, self._program, NO_VERSION)
        return Table(buffer, self._program)


class HostTables:
    """The tables of a run on a host: files that other processes of the host leave and find."""

    def __init__(self, files: Tables, store: Store, state: Callable[[], RunState]) -> None:
        self._files, self._store = files, store
        self._state = state  # the run's newest version; asked only when a table is missing

    @contextmanager
    def attempt(self, epoch: int) -> Generator[HeldTables]:
        """For one batch; other attempts find them locked meanwhile."""
        with self._files.attempt(epoch) as attempt:
            yield HeldTables(attempt, self._files, self._store, self._state)

    def close(self) -> None:
        """Give memory and handles back; the files stay."""
        self._files.close()


class HeldTables:
    """The tables of one attempt on a host."""

    def __init__(self, attempt: Attempt, files: Tables, store: Store, state: Callable[[], RunState]) -> None:
        self._attempt, self._files, self._store, self._state = attempt, files, store, state
        self.missed = 0

    def attach(self, plan: Plan, tasks: range) -> dict[int, Table]:
        """The tables of `tasks`; those that this host does not have at the parent's version are restored."""
        version = plan.parent or NO_VERSION
        missing = self._attempt.attach_all(tasks, version)
        self.missed = len(missing)
        if missing:
            state = self._state()
            if state.nonce != plan.parent:
                raise ConflictError(
                    f"Batch {plan.version} follows {plan.parent or 'the start'}, but the run is already at "
                    f"{state.nonce or 'the start'}: another coordinator has taken over."
                )
            rows = state_rows(self._files.program, self._store, self._files.run_id, state, missing)
            self._attempt.restore(missing, rows, version, state.watermark_us)
        return {task: self._attempt.tables[task] for task in tasks}

    def grow(self, needed: Mapping[int, int]) -> dict[int, Table]:
        """Larger tables with the same content."""
        self._attempt.grow(needed)
        return {task: self._attempt.tables[task] for task in needed}
