"""The second stage of a run on Spark: one task a node merges partials into tables and writes what came of it.

It runs in `mapInArrow` after the exchange. It answers with one row: the manifest, as JSON, and the plan. Whether an
attempt counts is not decided here: Spark hands the rows of successful tasks to the commit, and only the files that
these name exist for anybody.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from kedge.run.core import Plan
from kedge.run.node import Part, Places, assemble
from kedge.run.recover import follow
from kedge.run.restore import HostTables
from kedge.run.tables import Tables
from kedge.spark.planner import Worker, worker

MANIFESTS = "plan string, manifest string"


@lru_cache(maxsize=8)
def _tables(path: str, directory: str) -> Tables:
    run = worker(path)
    return Tables(directory, run.run_id, run.program, run.directory.host)


@dataclass(frozen=True)
class Assembler:
    """The function that `mapInArrow` calls; it travels to the workers."""

    path: str
    tables: str  # the directory of task tables on each host

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The manifest of this task's node."""
        node, text, parts = _received(batches, worker(self.path))
        if text is None:
            return
        manifest = self._assembled(node, Plan.from_json(json.loads(text)), parts)
        yield pa.RecordBatch.from_pydict({"plan": [text], "manifest": [json.dumps(manifest)]})

    def _assembled(self, node: int, plan: Plan, parts: list[Part]) -> dict[str, Any]:
        run = worker(self.path)
        places = Places(run.directory.host, run.directory.path, run.run_id, run.into)
        with _tables(self.path, self.tables).attempt(plan.epoch) as attempt:
            tables = HostTables(
                attempt, run.program, run.directory.store, run.run_id, lambda: follow(run.directory.ledger())
            )
            name = run.directory.host.rng.token()[:8]
            done = assemble(run.program, plan, node, parts, tables, places, attempt=name).to_json()
        done["figures"]["tables_missed"] = tables.missed
        return done


def _received(batches: Iterator[pa.RecordBatch], run: Worker) -> tuple[int, str | None, list[Part]]:
    """The node, the plan and the parts in order, from the rows that the exchange brought."""
    node, text = -1, None
    received: list[tuple[int, Part]] = []
    for batch in batches:
        few = batch.drop_columns(["partials"]).to_pylist()  # one row for each unit or read task
        for row, payload in zip(few, batch.column("partials"), strict=True):
            node = row["node"]
            if row["plan"] is not None:
                text = row["plan"]
                continue
            partials = pa.ipc.read_record_batch(payload.as_buffer(), run.program.partial_schema)
            received.append((row["seq"], Part(partials, row["rows"], row["rows_late"])))
    received.sort(key=lambda item: item[0])
    return node, text, [part for _, part in received]
