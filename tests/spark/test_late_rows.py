"""Late and disordered rows: with the same batches both shells drop, keep and close what Structured Streaming does.

A batch of Kedge closes the windows that its own rows pass; Structured Streaming closes them in the batch after, which
has no rows of its own when none have come. So Spark gets each file when it has closed what the one before has passed.
"""

from __future__ import annotations

import datetime as dt
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kedge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

SCHEMA = pa.schema([("ts", pa.timestamp("us", "UTC")), ("key", pa.string()), ("v", pa.int64())])
SQL = (
    "SELECT window(ts, '10 seconds') AS w, key, count(*) AS n, sum(v) AS total FROM rides "
    "WHERE v <> 3 GROUP BY window(ts, '10 seconds'), key"
)
WATERMARK = "5 seconds"


def batches(seed: int) -> list[pa.RecordBatch]:
    """Rows that move on by some seconds a batch; some are up to a minute late, some batches pass no filter."""
    rng = random.Random(seed)
    begin, made = dt.datetime(2024, 1, 1, tzinfo=dt.UTC), list[pa.RecordBatch]()
    for number in range(8):
        rows = []
        for _ in range(rng.randrange(1, 30)):
            back_s = rng.uniform(0, 60) if rng.random() < 0.2 else rng.uniform(0, 6)
            at = begin + dt.timedelta(seconds=max(0.0, number * 7 - back_s))
            value = 3 if number == 5 else rng.randrange(6)
            rows.append({"ts": at, "key": rng.choice(["a", "b", None]), "v": value})
        made.append(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))
    return made


def by_spark(spark: SparkSession, folder: Path, rows: list[pa.RecordBatch]) -> list[tuple[Any, ...]]:
    """One file a batch, in append mode: what Structured Streaming has emitted when the input is used up."""
    (folder / "files").mkdir(parents=True)
    for number, batch in enumerate(rows):
        pq.write_table(pa.Table.from_batches([batch]), folder / "files" / f"{number}.parquet")
        _step(spark, folder)
    return plain(pq.read_table(folder / "results").to_pylist())


def _step(spark: SparkSession, folder: Path) -> None:
    """Take what is there, close what it has passed, and stop."""
    source = spark.readStream.schema("ts TIMESTAMP, key STRING, v BIGINT")
    source.parquet(str(folder / "files")).withWatermark("ts", WATERMARK).createOrReplaceTempView("rides")
    writer = spark.sql(SQL).writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start(str(folder / "results")).awaitTermination()


def by_kedge(folder: Path, rows: list[pa.RecordBatch], spark: SparkSession | None) -> list[tuple[Any, ...]]:
    """The same batches: a unit each, and at most one unit in a batch."""
    with kedge.stream(folder / "rides", SCHEMA, event_time="ts") as source:
        for batch in rows:
            source.append(batch).wait()
    query = kedge.sql(SQL, rides=kedge.stream(folder / "rides"), watermark=WATERMARK)
    with query.start(folder / "run", into=folder / "out", spark=spark, rows_max=1, driver_rows=0) as run:
        run.drain()
        assert run.status().version == len(rows)
        assert run.status().rows_late > 0
    return plain(kedge.stream(folder / "out").to_table().to_pylist())


def plain(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((row["w"]["start"].timestamp(), row["key"] or "", row["n"], row["total"]) for row in rows)


def test_late_rows_are_those_of_structured_streaming(spark: SparkSession, tmp_path: Path, lane: Any) -> None:
    for seed in lane.seeds(1, 1, 4):
        rows, folder = batches(seed), tmp_path / str(seed)
        want = by_spark(spark, folder / "plain", rows)
        assert want, "nothing was closed: the test shows nothing"
        assert by_kedge(folder / "embedded", rows, None) == want
        if seed == 0:
            assert by_kedge(folder / "on-spark", rows, spark) == want
