"""Assembly on Spark: what runs in the tasks behind the exchange, one partition for each node.

Invariants:
- A task learns everything from its rows: the plan, and its partials in the order of their `seq`.
- A task may be run twice, at once or again: its files have names of their own, its tables are locked or private,
  and only the manifest that Spark hands to the commit counts.
- A partition without rows yields nothing. It is no node's: every node of a plan gets a row.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kedge.run.core import Manifest, Plan
from kedge.run.node import Part, assemble
from kedge.spark.opened import open_run
from kedge.spark.planning import unpack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MANIFESTS = "node int, plan string, manifest string"
_ARROW = pa.schema([("node", pa.int32()), ("plan", pa.string()), ("manifest", pa.string())])


@dataclass
class _Received:
    """The rows of one node."""

    plan: str = ""
    parts: list[tuple[int, list[Part]]] = field(default_factory=list[tuple[int, list[Part]]])


@dataclass(frozen=True)
class Assembly:
    """The function given to `mapInArrow`: small, and the same for every batch of a query."""

    path: str
    run_id: str
    tables: str | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Partials and a plan in, one manifest for each node out."""
        received: dict[int, _Received] = {}
        for batch in batches:
            for row in range(batch.num_rows):
                _receive(received, batch, row)
        for node, mine in sorted(received.items()):
            manifest = self._assemble(node, mine)
            text = json.dumps(manifest.to_json())
            yield pa.RecordBatch.from_arrays([pa.array([node], pa.int32()), [mine.plan], [text]], schema=_ARROW)

    def _assemble(self, node: int, received: _Received) -> Manifest:
        opened = open_run(self.path, self.run_id)
        plan = Plan.from_json(json.loads(received.plan))
        parts = [part for _, some in sorted(received.parts, key=lambda one: one[0]) for part in some]
        host = opened.directory.host
        with opened.tables(self.tables).attempt(plan.epoch) as tables:
            name = host.rng.token()[:8]
            made = assemble(opened.program, plan, node, parts, tables, opened.places, attempt=name)
        return replace(made, figures={**made.figures, "tables_missed": tables.missed})


@dataclass(frozen=True)
class Warming:
    """Makes Python workers open the run and load its kernels while the driver is still preparing the query."""

    path: str
    run_id: str

    def run(self, spark: SparkSession) -> None:
        """One small task for each slot; whatever goes wrong, the run will meet it again and say so."""
        slots = spark.sparkContext.defaultParallelism
        with suppress(Exception):
            spark.range(0, slots, 1, slots).mapInArrow(self, "id bigint").collect()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """In a worker: the rows as they came."""
        open_run(self.path, self.run_id).program.warm()
        yield from batches


def _receive(received: dict[int, _Received], batch: pa.RecordBatch, row: int) -> None:
    """Sort one row in: a plan, or the partials of one read task."""

    def value(name: str) -> Any:
        return batch.column(name)[row].as_py()

    mine = received.setdefault(value("node"), _Received())
    if value("plan") is not None:
        mine.plan = value("plan")
        return
    partials = unpack(batch.column("payload")[row].as_buffer())
    counts = [(value("rows"), value("rows_late")), *[(0, 0)] * len(partials)]
    parts = [Part(rows, *count) for rows, count in zip(partials, counts, strict=False)]
    mine.parts.append((value("seq"), parts))
