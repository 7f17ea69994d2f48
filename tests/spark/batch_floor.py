"""What one batch of a run costs on Spark before any real work, for each way to put the pipeline together.

Run it as `python tests/spark/batch_floor.py [--batches 40] [--nodes 2] [--ranges 2] [--kb 20] [NAME...]`; all
variants run in one session and one line is printed for each. Fragments, assembly and commit are fakes that do no
work; what crosses between them has its true size. The figures are in docs/decisions; nothing here is imported by
Kedge.
"""

# ruff: noqa: N803  (the names of the arguments are Spark's)

from __future__ import annotations

import argparse
import itertools
import json
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)

from kedge.spark.session import session

MANIFEST = "node int, batch bigint"
PARTIALS = "node int, seq bigint, batch bigint, payload binary"
ROWS = "node int, seq bigint, batch bigint, task int, pane bigint, key bigint, n bigint, total double"
ROW_BYTES = 36


class Probe(DataSource):
    """Batches of partials: one binary row per (range, node), or as many plain rows as fit the same bytes."""

    @classmethod
    def name(cls) -> str:
        return "floor-probe"

    def schema(self) -> str:
        return ROWS if self.options.get("rows") == "true" else PARTIALS

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return ProbeReader(dict(self.options))

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:
        return ProbeWriter(self.options["log"])


def partials(batch: int, part: int, nodes: int, size: int, as_rows: bool) -> Iterator[pa.RecordBatch]:
    if not as_rows:
        yield pa.record_batch(
            {
                "node": pa.array(range(nodes), pa.int32()),
                "seq": pa.array([part] * nodes, pa.int64()),
                "batch": pa.array([batch] * nodes, pa.int64()),
                "payload": pa.array([os.urandom(size)] * nodes, pa.binary()),
            }
        )
        return
    import numpy as np

    n = max(1, size // ROW_BYTES) * nodes
    longs = np.random.default_rng(batch).integers(0, 1 << 60, n)
    yield pa.record_batch(
        {
            "node": pa.array(np.arange(n) % nodes, pa.int32()),
            "seq": pa.array(np.full(n, part)),
            "batch": pa.array(np.full(n, batch)),
            "task": pa.array(np.arange(n) % 256, pa.int32()),
            "pane": pa.array(longs),
            "key": pa.array(longs),
            "n": pa.array(longs),
            "total": pa.array(longs.astype(np.float64)),
        }
    )


class ProbeReader(DataSourceStreamReader):
    def __init__(self, options: dict[str, str]) -> None:
        self.nodes, self.ranges, self.batches, self.size = (
            int(options[name]) for name in ("nodes", "ranges", "batches", "size")
        )
        self.as_rows = options.get("rows") == "true"

    def initialOffset(self) -> dict[str, int]:
        return {"batch": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        return {"batch": min(start["batch"] + 1, self.batches)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition((end["batch"], part)) for part in range(self.ranges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batch, part = partition.value
        return partials(batch, part, self.nodes, self.size, self.as_rows)


@dataclass
class Done(WriterCommitMessage):
    nodes: list[tuple[int, int]]


class ProbeWriter(DataSourceStreamArrowWriter):
    """Takes manifests, or assembles itself when it is given partials."""

    def __init__(self, log: str) -> None:
        self.log = log

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return Done(
            [pair for batch in assemble(iterator) for pair in zip(*batch.to_pydict().values(), strict=True)]
        )

    def commit(self, messages: list[Any], batchId: int) -> None:
        with open(self.log, "a") as file:
            file.write(json.dumps([time.monotonic(), [m.nodes for m in messages]]) + "\n")


def assemble(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    seen: dict[int, int] = {}
    for part in batches:
        if part.num_rows:
            nodes, numbers = part.column("node").unique().to_pylist(), part.column("batch")
            seen.update(dict.fromkeys(nodes, numbers[0].as_py()))
    yield pa.record_batch(
        {"node": pa.array(list(seen), pa.int32()), "batch": pa.array(list(seen.values()), pa.int64())}
    )


@dataclass
class Case:
    spark: SparkSession
    nodes: int
    ranges: int
    batches: int
    size: int
    checkpoint: str

    def load(self, **options: Any) -> DataFrame:
        reader = self.spark.readStream.format("floor-probe")
        sizes = {"nodes": self.nodes, "ranges": self.ranges, "batches": self.batches, "size": self.size}
        for name, value in {**sizes, **options}.items():
            reader = reader.option(name, str(value).lower())
        return reader.load()

    def run(self, writer: Any, ends: list[float] | str) -> list[float]:
        """Start, wait for the last batch, stop; the times at which batches were committed."""
        query = writer.option("checkpointLocation", self.checkpoint).start()
        while query.isActive and len(read_log(ends)) < self.batches:
            time.sleep(0.05)
        query.stop()
        if query.exception():
            raise query.exception()
        progress = query.recentProgress[-1]["durationMs"] if query.recentProgress else {}
        print("   ", {name: ms for name, ms in progress.items() if ms > 4}, flush=True)
        return read_log(ends)


def read_log(ends: list[float] | str) -> list[float]:
    if isinstance(ends, list):
        return list(ends)
    try:
        with open(ends) as file:
            return [json.loads(line)[0] for line in file]
    except FileNotFoundError:
        return []


def foreach_batch(case: Case, frame: DataFrame) -> list[float]:
    ends: list[float] = []

    def commit(df: DataFrame, _: int) -> None:
        assert len(df.collect()) == case.nodes
        ends.append(time.monotonic())

    return case.run(frame.writeStream.foreachBatch(commit), ends)


def source_only(case: Case) -> list[float]:
    """The floor of Spark itself: a source and a sink that drops everything."""
    ends: list[float] = []

    def commit(df: DataFrame, _: int) -> None:
        df.write.format("noop").mode("overwrite").save()
        ends.append(time.monotonic())

    return case.run(case.load().writeStream.foreachBatch(commit), ends)


def map_foreach(case: Case) -> list[float]:
    return foreach_batch(case, case.load().repartitionById(case.nodes, "node").mapInArrow(assemble, MANIFEST))


def map_foreach_rows(case: Case) -> list[float]:
    frame = case.load(rows=True).repartitionById(case.nodes, "node")
    return foreach_batch(case, frame.mapInArrow(assemble, MANIFEST))


def map_sink(case: Case) -> list[float]:
    frame = case.load().repartitionById(case.nodes, "node").mapInArrow(assemble, MANIFEST)
    log = case.checkpoint + ".log"
    return case.run(frame.writeStream.format("floor-probe").option("log", log), log)


def sink_assembles(case: Case) -> list[float]:
    frame = case.load().repartitionById(case.nodes, "node")
    log = case.checkpoint + ".log"
    return case.run(frame.writeStream.format("floor-probe").option("log", log), log)


def driver_loop(case: Case) -> list[float]:
    """No streaming query at all: the driver plans a batch job, runs it and commits it."""
    ends: list[float] = []
    nodes, size = case.nodes, case.size
    for batch in range(1, case.batches + 1):

        def fragment(ids: Iterator[pa.RecordBatch], batch: int = batch) -> Iterator[pa.RecordBatch]:
            for part in ids:
                for place in part.column("id").to_pylist():
                    yield from partials(batch, place, nodes, size, False)

        frame = case.spark.range(0, case.ranges, 1, case.ranges).mapInArrow(fragment, PARTIALS)
        rows = frame.repartitionById(nodes, "node").mapInArrow(assemble, MANIFEST).collect()
        assert len(rows) == nodes
        ends.append(time.monotonic())
    return ends


VARIANTS = {
    "source -> noop": source_only,
    "map, foreachBatch": map_foreach,
    "map, foreachBatch, rows": map_foreach_rows,
    "map, sink": map_sink,
    "sink assembles": sink_assembles,
    "driver loop": driver_loop,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--ranges", type=int, default=2)
    parser.add_argument("--kb", type=int, default=20)
    parser.add_argument("--checkpoint", default=None, help="a folder for Spark's checkpoints")
    parser.add_argument("--conf", action="append", default=[])
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    spark = session("floor", cores="local[2]", **dict(pair.split("=", 1) for pair in given.conf))
    spark.dataSource.register(Probe)
    for name in given.names or VARIANTS:
        with tempfile.TemporaryDirectory(dir=given.checkpoint) as folder:
            case = Case(spark, given.nodes, given.ranges, given.batches, given.kb << 10, f"{folder}/checkpoint")
            ends = VARIANTS[name](case)
        gaps = sorted(b - a for a, b in itertools.pairwise(ends[8:]))
        middle, late = gaps[len(gaps) // 2], gaps[int(len(gaps) * 0.95)]
        print(f"{name:28s} median {middle:.3f} s  p95 {late:.3f} s  best {gaps[0]:.3f} s", flush=True)


if __name__ == "__main__":
    main()
