"""The source of a run on Spark: plans batches in the planner's process, computes fragments in its read tasks.

An offset is a token: the nonce of a plan, and the plan itself. Spark logs it, hands it to the tasks, and asks for the
next one; nothing else of what Spark knows (batch ids, its checkpoint) is trusted.

Invariants:
- The planner only reads the ledger. A plan follows the ledger's newest batch, in the epoch that the driver claimed;
  anything else at the tip means that another coordinator has taken over, and is a ConflictError.
- Every node gets a row with the plan, also when no partial falls to it: its windows close and its tables move on.
- Only partials cross to the JVM, one binary row for each (unit, node), or (task, node) where the order of merging
  can't show in the bytes. `seq` is the order of (input, partition, offset).
"""

# ruff: noqa: N802  (the names of the methods are Spark's)

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from kedge.errors import ConflictError
from kedge.host import local
from kedge.kernel import Program
from kedge.run.core import Plan, Range, RunState, plan_batch
from kedge.run.directory import RunDirectory
from kedge.run.inputs import available_units, read_parts, share
from kedge.run.node import Part
from kedge.run.query import reopen
from kedge.run.recover import follow
from kedge.streams import Stream

NAME = "kedge-run"
CROSSING = "node int, seq bigint, plan string, rows bigint, rows_late bigint, partials binary"
_SCHEMA = pa.schema(
    [
        ("node", pa.int32()),
        ("seq", pa.int64()),
        ("plan", pa.string()),
        ("rows", pa.int64()),
        ("rows_late", pa.int64()),
        ("partials", pa.binary()),
    ]
)


@dataclass(frozen=True, slots=True)
class Worker:
    """A run as a Python worker keeps it between batches: opened once, compiled once."""

    directory: RunDirectory
    program: Program
    streams: Mapping[str, Stream]
    into: Stream
    run_id: str


@lru_cache(maxsize=8)
def worker(path: str) -> Worker:
    """The run in `path`, as this process knows it."""
    directory = RunDirectory(local(), path)
    query, into, definition = reopen(directory)
    return Worker(directory, query.program(definition.tasks), query.streams, into, definition.id)


class RunSource(DataSource):
    """A run as a streaming source of partials; made by `kedge.spark.runner` only."""

    @classmethod
    def name(cls) -> str:
        """What stands in `format(...)`."""
        return NAME

    def schema(self) -> str:
        """The columns that cross to the assembling stage."""
        return CROSSING

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """The planner and its tasks."""
        given: Any = self.options
        return RunReader(given["path"], json.loads(given["run"]))


@dataclass
class Share(InputPartition):
    """What one read task computes: some units of a plan, in order."""

    plan: str
    first_seq: int
    ranges: tuple[Range, ...]
    announces: bool  # this task tells every node of the plan


class _Planner:
    """What the planner's process keeps between batches."""

    def __init__(self, path: str) -> None:
        self.run = worker(path)
        self.ledger = self.run.directory.ledger()
        self.state: RunState | None = None

    def follow(self) -> RunState:
        """The run's newest state."""
        self.state = follow(self.ledger, self.state)
        return self.state


@lru_cache(maxsize=8)
def _planner(path: str) -> _Planner:
    return _Planner(path)


class RunReader(DataSourceStreamReader):
    """Plans, deals, and computes fragments."""

    def __init__(self, path: str, given: Mapping[str, Any]) -> None:
        self.path = path
        self.epoch, self.nodes = int(given["epoch"]), int(given["nodes"])
        self.rows_max, self.lag_us, self.slots = int(given["rows_max"]), int(given["lag_us"]), int(given["slots"])

    def initialOffset(self) -> dict[str, Any]:
        """The newest committed batch."""
        return {"nonce": _planner(self.path).follow().nonce}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Batches are limited by the plan."""
        return ReadAllAvailable()

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> Mapping[str, Any]:
        """The next batch's token, or `start` again when there is nothing to do."""
        planner = _planner(self.path)
        state = planner.follow()
        if state.epoch != self.epoch or state.nonce != start["nonce"]:
            raise ConflictError(
                f"{self.path}: this coordinator has epoch {self.epoch} and is at {start['nonce'] or 'the start'}, "
                f"but the run is in epoch {state.epoch} at {state.nonce or 'the start'}: another coordinator has "
                "taken over. Stop here."
            )
        host = planner.run.directory.host
        plan = plan_batch(
            state,
            available_units(state, planner.run.streams),
            nonce=host.rng.token(),
            nodes=self.nodes,
            rows_max=self.rows_max,
            lag_us=self.lag_us,
            finish=planner.run.directory.finish_asked(),
            now_us=host.clock.now_us(),
        )
        return start if plan is None else {"nonce": plan.nonce, "plan": plan.to_json()}

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        """Deal the plan's units to read tasks: consecutive units, about equal rows."""
        plan, text = Plan.from_json(end["plan"]), json.dumps(end["plan"])
        units = [
            Range(r.input, info.partition, info.first_offset, info.end)
            for r in plan.ranges
            for info in worker(self.path).streams[r.input].units(r.partition, r.start, r.end)
        ]
        total, taken = sum(r.end - r.start for r in units), 0
        hands: list[list[Range]] = [[] for _ in range(max(1, min(self.slots, len(units))))]
        for unit in units:
            hands[min(len(hands) - 1, taken * len(hands) // max(1, total))].append(unit)
            taken += unit.end - unit.start
        shares: list[Share] = []
        seq = 1
        for hand in hands:
            shares.append(Share(text, seq, tuple(hand), announces=not shares))
            seq += len(hand)
        return shares

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """The partials of one share, by node."""
        run, plan = worker(self.path), Plan.from_json(json.loads(partition.plan))
        if partition.announces:
            yield _rows(plan.nodes, 0, partition.plan, None)
        parts = list(read_parts(run.program, run.streams, plan, partition.ranges))
        if run.program.exact and len(parts) > 1:
            rows, late = sum(part.rows for part in parts), sum(part.rows_late for part in parts)
            parts = [Part(run.program.combine([part.partials for part in parts]), rows, late)]
        for number, part in enumerate(parts):
            shares = [share([part], node, plan.nodes, run.program.tasks)[0] for node in range(plan.nodes)]
            yield _rows(plan.nodes, partition.first_seq + number, None, shares)


def _rows(nodes: int, seq: int, plan: str | None, parts: Sequence[Part] | None) -> pa.RecordBatch:
    """One row for each node: the plan, or its part."""
    columns = [
        pa.array(range(nodes), pa.int32()),
        pa.array([seq] * nodes, pa.int64()),
        pa.array([plan] * nodes, pa.string()),
        pa.array([0 if parts is None else parts[node].rows for node in range(nodes)], pa.int64()),
        pa.array([0 if parts is None else parts[node].rows_late for node in range(nodes)], pa.int64()),
        pa.array([None if parts is None else packed(parts[node].partials) for node in range(nodes)], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


def packed(rows: pa.RecordBatch) -> bytes:
    """A batch as Arrow IPC, without its schema: both sides know the program."""
    return rows.serialize().to_pybytes()
