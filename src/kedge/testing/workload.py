"""A small workload for crash tests: seeded rows, the query over them, and what the run must have written.

work = Workload(seed)
work.append_all(host)              # the input stream
work.run(host)                     # the embedded runner, until it has finished
work.check(host)                   # results of every batch = the model's, each row once
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from kedge.host import Host
from kedge.run import sql
from kedge.run.coordinator import Coordinator
from kedge.run.core import ALWAYS_US, NEVER_US
from kedge.run.directory import RunDirectory
from kedge.run.embedded import Embedded
from kedge.run.options import Options
from kedge.run.recover import result_units
from kedge.streams import stream
from kedge.testing.model import CountAndSum, Row, replay

SCHEMA = pa.schema(
    [pa.field("ts", pa.timestamp("us", "UTC")), pa.field("key", pa.int64()), pa.field("v", pa.int64())]
)
QUERY = (
    "SELECT window(ts, '10 seconds') AS w, key, count(*) AS n, sum(v) AS total FROM rows "
    "WHERE v <> 7 GROUP BY key, window(ts, '10 seconds')"
)
LAG_US = 5_000_000


@dataclass
class Workload:
    """Rows of two partitions that are mostly in order of time, some late, and one run over them."""

    seed: int
    units: int = 4
    rows: int = 12
    late: bool = True  # whether some rows come after their window has closed
    root: str = "/w"

    def batches(self) -> dict[int, list[list[Row]]]:
        """By partition: the rows of each append."""
        rng = random.Random(self.seed)  # noqa: S311  (a workload must repeat)
        made: dict[int, list[list[Row]]] = {0: [], 1: []}
        clock_s = 0
        for number in range(self.units):
            unit: list[Row] = []
            for _ in range(self.rows):
                clock_s += rng.randrange(4)
                at_s = max(0, clock_s - (rng.randrange(60) if self.late and rng.random() < 0.1 else 0))
                unit.append((at_s * 1_000_000, rng.randrange(3), rng.randrange(10)))
            made[number % 2].append(unit)
        return made

    def append_all(self, host: Host) -> None:
        """Append whatever is not there yet: a producer's sequence makes a repeated append harmless."""
        into = stream(f"{self.root}/rows", SCHEMA, 2, event_time="ts", host=host, threads=0, segment_bytes=1 << 16)
        try:
            for partition, units in self.batches().items():
                for sequence, unit in enumerate(units):
                    columns = [
                        pa.array(column, field.type)
                        for column, field in zip(zip(*unit, strict=True), SCHEMA, strict=True)
                    ]
                    batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
                    into.append(batch, partition, producer="workload", sequence=sequence).wait()
        finally:
            into.close()

    def start(self, host: Host, **options: Any) -> Embedded:
        """The run, claimed and ready for its next step."""
        query = sql(QUERY, watermark=f"{LAG_US} microseconds", rows=stream(f"{self.root}/rows", host=host))
        given = {"nodes": 2, "threads": 1, "tasks": 4, "rows_max": self.rows, "host": host, **options}
        chosen = Options.of(given)
        return Embedded(Coordinator(query.define(f"{self.root}/run", f"{self.root}/results", chosen)), chosen)

    def run(self, host: Host, **options: Any) -> None:
        """Append, start or go on, and finish."""
        self.append_all(host)
        self.start(host, **options).finish()

    def check(self, host: Host) -> None:
        """The run has ended, and its results are the model's for the ranges and watermarks it recorded."""
        directory = RunDirectory(host, f"{self.root}/run")
        ledger = directory.ledger()
        ledger.refresh()
        batches = [record for record in ledger.records() if record["kind"] == "batch"]
        rows = self._input()
        self._check_ranges_and_watermarks(batches, rows)
        model = self._model()
        want = replay(model, batches, rows)
        assert sum(b["figures"]["rows_late"] for b in batches) == model.late
        assert [_rows(host, f"{self.root}/results", batch["results"]) for batch in batches] == want

    def check_all(self, host: Host) -> None:
        """Without late rows, all results together are the model's whatever the batches were."""
        assert not self.late
        ledger = RunDirectory(host, f"{self.root}/run").ledger()
        ledger.refresh()
        want = self._model().batch((row for part in self._input().values() for row in part), NEVER_US, ALWAYS_US)
        assert _rows(host, f"{self.root}/results", result_units(ledger)) == want

    def _model(self) -> CountAndSum:
        return CountAndSum(10_000_000, lambda r: r[0], lambda r: (r[1],), lambda r: r[2], lambda r: r[2] != 7)

    def _input(self) -> dict[tuple[str, int], list[Row]]:
        return {("rows", p): [row for unit in units for row in unit] for p, units in self.batches().items()}

    def _check_ranges_and_watermarks(
        self, batches: list[dict[str, Any]], rows: dict[tuple[str, int], list[Row]]
    ) -> None:
        """Every row is taken once, in order; watermarks follow from the event times of the rows taken so far."""
        ends = dict.fromkeys(self.batches(), 0)
        newest_us, watermark_us = NEVER_US, NEVER_US
        for batch in batches:
            for name, partition, start, end in batch["ranges"]:
                assert start == ends[partition], f"batch {batch['version']} leaves a gap or repeats rows"
                ends[partition] = end
                newest_us = max([newest_us, *(row[0] for row in rows[name, partition][start:end])])
            assert batch["late_us"] == watermark_us, f"batch {batch['version']} has another idea of what is late"
            watermark_us = max(watermark_us, newest_us - LAG_US) if newest_us > NEVER_US else watermark_us
            assert batch["close_us"] == (ALWAYS_US if batch["final"] else watermark_us)
        assert ends == {partition: len(found) for (_, partition), found in rows.items()}, "not all input was taken"


def _rows(host: Host, path: str, units: list[dict[str, Any]]) -> list[Row]:
    """What a reader of the result stream sees of these units, sorted."""
    results = stream(path, host=host)
    found: list[Row] = []
    for unit in units:
        start, end = unit["offset"], unit["offset"] + unit["rows"]
        for row in results.to_table(unit["partition"], start, end).to_pylist():
            start_us = int(row["w"]["start"].timestamp() * 1_000_000)
            found.append((start_us, row["key"], row["n"], row["total"]))
    return sorted(found)
