"""One node's part of a batch: merge partials into its tasks' tables, close windows, write what came of it.

Both shells call `assemble`: the embedded one in its own process, Spark in a Python worker. A node works from the
plan, its partials and its tables, and writes only files whose names no other attempt shares; so an attempt may be
repeated, or run twice at once, and only the one that the commit names counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from kedge.host import Clock, Host
from kedge.kernel import Applied, Program, Table, apply_all, dump_all
from kedge.run.core import Manifest, Plan, StateUnit, Written, attempt_name
from kedge.run.directory import STATE, RunDirectory
from kedge.streams import RESULTS, Lineage, Stream, encode_named

UNIT_ROWS_MAX = 1 << 20


class Tables(Protocol):
    """A node's tables on its host."""

    def attach(self, plan: Plan, tasks: range) -> dict[int, Table]:
        """The tables of `tasks` at the version of the plan's parent; what is missing is restored from state units."""
        ...

    def grow(self, needed: Mapping[int, int]) -> dict[int, Table]:
        """Tables of at least so many bytes in the place of those that `attach` gave, with the same content."""
        ...


@dataclass(frozen=True, slots=True)
class Part:
    """What a fragment made of one unit: partials sorted by task, and how many rows it saw and dropped as late."""

    partials: pa.RecordBatch
    rows: int
    rows_late: int


@dataclass(frozen=True, slots=True)
class Places:
    """Where a node writes, and in whose name."""

    host: Host
    run_path: str
    run_id: str
    into: Stream

    @staticmethod
    def of(directory: RunDirectory, run_id: str, into: Stream) -> Places:
        """The places of a run."""
        return Places(directory.host, directory.path, run_id, into)

    @property
    def clock(self) -> Clock:
        """The host's clock."""
        return self.host.clock


def tasks_of(node: int, nodes: int, tasks: int) -> range:
    """The tasks of a node: the route is consecutive, as equal as it can be."""
    return range(-(-node * tasks // nodes), -(-(node + 1) * tasks // nodes))


def for_node(partials: pa.RecordBatch, tasks: range) -> pa.RecordBatch:
    """The rows of some consecutive tasks; no copy."""
    low, high = np.searchsorted(partials.column(0).to_numpy(), [tasks.start, tasks.stop])
    return partials.slice(low, high - low)


def assemble(
    program: Program,
    plan: Plan,
    node: int,
    parts: Sequence[Part],
    tables: Tables,
    places: Places,
    *,
    attempt: str,
) -> Manifest:
    """Do the node's work for `plan`; all that the manifest names is durable. `parts` hold its own tasks only."""
    began_ns = places.clock.monotonic_ns()
    tasks = tasks_of(node, plan.nodes, program.tasks)
    mine = tables.attach(plan, tasks)
    attached_ns = places.clock.monotonic_ns()
    applied = _apply(program, plan, mine, [part.partials for part in parts], tables)
    results = program.results(applied.closed)
    rows = dump_all(program, list(mine.values())) if plan.scheme == "full" else applied.changed
    applied_ns = places.clock.monotonic_ns()
    written = _write_results(plan, node, attempt, results, places)
    state = _write_state(program, plan, node, attempt, rows, places)
    return Manifest(
        node=node,
        nonce=plan.nonce,
        results=written,
        state=state,
        figures={
            "rows": sum(part.rows for part in parts),
            "rows_late": sum(part.rows_late for part in parts),
            "attach_us": (attached_ns - began_ns) // 1000,
            "apply_us": (applied_ns - attached_ns) // 1000,
            "write_us": (places.clock.monotonic_ns() - applied_ns) // 1000,
        },
    )


def _apply(
    program: Program, plan: Plan, mine: dict[int, Table], partials: Sequence[pa.RecordBatch], tables: Tables
) -> Applied:
    """Merge and close; tables that are too small grow first, as often as it takes."""
    while True:
        done = apply_all(program, mine, plan.nonce, partials, plan.close_us)
        if isinstance(done, Applied):
            return done
        mine.update(tables.grow(done.bytes_needed))


def _pieces(rows: pa.RecordBatch) -> list[pa.RecordBatch]:
    return [rows.slice(start, UNIT_ROWS_MAX) for start in range(0, rows.num_rows, UNIT_ROWS_MAX)]


def _lineage(plan: Plan, places: Places) -> Lineage:
    names = sorted({r.input for r in plan.ranges})
    ranges = tuple((names.index(r.input), r.partition, r.start, r.end) for r in plan.ranges)
    return Lineage(places.run_id, plan.version, plan.epoch, ranges)


def _write_results(
    plan: Plan, node: int, attempt: str, rows: pa.RecordBatch, places: Places
) -> tuple[Written, ...]:
    store = places.host.store(places.into.path)
    written: list[Written] = []
    for number, piece in enumerate(_pieces(rows)):
        file = attempt_name(RESULTS, plan, node, attempt, number)
        data = encode_named(piece, places.into.id, file, _lineage(plan, places))
        store.put(file, data)
        written.append(Written(file, data.nbytes, piece.num_rows, None, None))
    return tuple(written)


def _write_state(
    program: Program, plan: Plan, node: int, attempt: str, rows: pa.RecordBatch, places: Places
) -> tuple[StateUnit, ...]:
    store = places.host.store(places.run_path)
    written: list[StateUnit] = []
    for number, piece in enumerate(_pieces(rows)):
        file = attempt_name(STATE, plan, node, attempt, number)
        data = encode_named(piece, places.run_id, file, _lineage(plan, places))
        store.put(file, data)
        newest = int(piece.column(1).to_numpy().max())
        written.append(StateUnit(file, data.nbytes, piece.num_rows, plan.scheme, program.panes.last_use(newest)))
    return tuple(written)
