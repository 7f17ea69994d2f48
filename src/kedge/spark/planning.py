"""What a run's source does on Spark: plan the next batch, deal it to read tasks, and read it.

Invariants:
- An offset holds the nonce of its batch and its whole plan. A plan follows only the batch that its offset begins
  with; when the ledger's tip is another batch, or another epoch, somebody has taken over: ConflictError.
- Every node gets a row with the plan, whether it has partials or not: an assembly learns everything from its rows.
- Partial results cross as Arrow bytes in one value for each (read task, node), so Spark moves few, large rows.

Rows that Spark repeats (a retried task, a speculative one) are the same bytes: a fragment depends on nothing but its
units and the plan.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from kedge.errors import ConflictError
from kedge.kernel import Program
from kedge.ledger import Ledger
from kedge.run.coordinator import next_plan
from kedge.run.core import Plan, RunState
from kedge.run.node import Part, for_node, tasks_of
from kedge.run.recover import follow
from kedge.spark.handover import Handover
from kedge.spark.opened import OpenRun, open_run
from kedge.streams import UnitInfo

_ARROW = pa.schema(
    [
        ("node", pa.int32()),
        ("seq", pa.int64()),
        ("rows", pa.int64()),
        ("rows_late", pa.int64()),
        ("plan", pa.string()),
        ("payload", pa.binary()),
    ]
)
PLAN_SEQ = -1  # of the row that brings a node its plan


@dataclass
class Reading(InputPartition):
    """What one read task does: some units of the plan, in order; the first task also sends the plan to every node."""

    seq: int
    plan: str
    units: tuple[tuple[str, UnitInfo], ...]


class Planning:
    """The planner of one query, in its own process."""

    def __init__(self, run: Mapping[str, Any]) -> None:
        self._run = run
        self._opened: OpenRun = open_run(run["path"], run["id"])
        self._ledger: Ledger = self._opened.directory.ledger()
        self._state: RunState | None = follow(self._ledger)
        Handover(run["handover"]).ask(self._opened.directory.host.clock)  # until then the driver plans

    def state(self) -> RunState:
        """The run at its tip, which must still be this query's."""
        self._state = follow(self._ledger, self._state)
        if self._state.epoch != self._run["epoch"]:
            raise ConflictError(
                f"The run in {self._run['path']} was taken over (epoch {self._state.epoch}; this is epoch "
                f"{self._run['epoch']}). Stop here, or start it again to take it back."
            )
        return self._state

    def after(self, start: dict[str, Any]) -> dict[str, Any]:
        """The offset of the batch after `start`; `start` itself when there is nothing to do."""
        state, opened = self.state(), self._opened
        if start["nonce"] != state.nonce:
            raise ConflictError(
                f"The run in {self._run['path']} is at batch {state.nonce or 'none'}, not at "
                f"{start['nonce'] or 'none'} where this query left it: another coordinator has taken over."
            )
        nodes, rows_max = self._run["nodes"], self._run["rows_max"]
        plan = next_plan(opened.directory, opened.definition, opened.streams, state, nodes, rows_max)
        if plan is None:
            opened.directory.host.clock.sleep(self._run["poll_ms"] / 1000)
            return start
        return {"nonce": plan.nonce, "plan": plan.to_json()}

    def dealt(self, given: dict[str, Any]) -> Sequence[InputPartition]:
        """What each read task of a plan does."""
        plan, streams = Plan.from_json(given), self._opened.streams
        units = [
            (r.input, unit) for r in plan.ranges for unit in streams[r.input].units(r.partition, r.start, r.end)
        ]
        text = json.dumps(given)
        return [Reading(seq, text, part) for seq, part in enumerate(deal(units, self._run["readers"]))]


def read(run: Mapping[str, Any], reading: Reading) -> pa.RecordBatch:
    """In a task: the fragments of its units, cut by node."""
    opened = open_run(run["path"], run["id"])
    plan = Plan.from_json(json.loads(reading.plan))
    columns = {source.name: source.columns for source in opened.program.inputs}
    parts: list[Part] = []
    for name, unit in reading.units:
        rows = opened.streams[name].read_unit(unit, columns[name])
        made = opened.program.fragment(name, rows, plan.late_us)
        parts.append(Part(made.partials, made.rows, made.rows_late))
    if opened.program.exact and len(parts) > 1:  # any order of merging gives the same: less has to cross
        together = opened.program.combine([part.partials for part in parts])
        parts = [Part(together, sum(p.rows for p in parts), sum(p.rows_late for p in parts))]
    return _crossing(opened.program, plan, reading, parts)


def deal(units: Sequence[tuple[str, UnitInfo]], readers: int) -> list[tuple[tuple[str, UnitInfo], ...]]:
    """Units in order, cut into at most `readers` runs of about the same number of rows; at least one, maybe empty."""
    share = max(1, -(-sum(unit.rows for _, unit in units) // readers))
    dealt: list[list[tuple[str, UnitInfo]]] = [[]]
    taken = 0
    for name, unit in units:
        if dealt[-1] and len(dealt) < readers and taken + unit.rows // 2 > share * len(dealt):
            dealt.append([])
        dealt[-1].append((name, unit))
        taken += unit.rows
    return [tuple(part) for part in dealt]


def _crossing(program: Program, plan: Plan, reading: Reading, parts: Sequence[Part]) -> pa.RecordBatch:
    """One row for each node that gets partials; from the first task also one with the plan for every node."""
    rows: list[dict[str, Any]] = []
    counted = {"rows": sum(part.rows for part in parts), "rows_late": sum(part.rows_late for part in parts)}
    for node in range(plan.nodes):
        if reading.seq == 0:
            rows.append({"node": node, "seq": PLAN_SEQ, "plan": reading.plan, "rows": 0, "rows_late": 0})
        mine = [for_node(part.partials, tasks_of(node, plan.nodes, program.tasks)) for part in parts]
        if node == 0 or any(part.num_rows for part in mine):  # node 0 does the counting
            counts = counted if node == 0 else {"rows": 0, "rows_late": 0}
            rows.append({"node": node, "seq": reading.seq, "payload": pack(mine, program.partial_schema), **counts})
    return pa.RecordBatch.from_pylist(rows, schema=_ARROW)


def pack(parts: Sequence[pa.RecordBatch], schema: pa.Schema) -> bytes:
    """Partials as bytes: one Arrow batch for each part."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as out:
        for part in parts:
            out.write_batch(part)
    return sink.getvalue().to_pybytes()


def unpack(payload: pa.Buffer) -> list[pa.RecordBatch]:
    """What `pack` packed; no copy."""
    with pa.ipc.open_stream(payload) as found:
        return list(found)
