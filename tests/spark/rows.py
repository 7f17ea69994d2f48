"""Rows, a query and its oracle for the tests of runs: the oracle is plain Spark SQL over all rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kedge.run.query import Query, sql
from kedge.streams import Stream, stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kedge.run.run import Run

SCHEMA = pa.schema(
    [("ts", pa.timestamp("us", "UTC")), ("key", pa.int64()), ("name", pa.string()), ("v", pa.int64())]
)
QUERY = (
    "SELECT window(ts, '2 seconds') AS w, key, name, count(*) AS n, sum(v) AS total "
    "FROM rides WHERE v % 7 != 0 GROUP BY key, name, window(ts, '2 seconds')"
)
WATERMARK = "1 second"
BATCH = 4000
STEP_US = 250


def batch(number: int) -> pa.RecordBatch:
    """The rows of one append: a second of event time, out of order by less than the watermark allows."""
    rng = np.random.default_rng(number)
    ts = (number * BATCH + np.arange(BATCH)) * STEP_US - rng.integers(0, 400_000, BATCH)
    keys = rng.integers(0, 50, BATCH)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(ts, pa.timestamp("us", "UTC")),
            pa.array(keys, mask=keys == 49),
            pa.array([f"n{key % 3}" for key in keys]),
            pa.array(rng.integers(-1000, 1000, BATCH)),
        ],
        schema=SCHEMA,
    )


def make(path: str) -> Stream:
    """The input stream, empty."""
    return stream(path, schema=SCHEMA, partitions=2, event_time="ts")


def feed(source: Stream, first: int, last: int) -> None:
    """Append some batches, each to one of the partitions."""
    for number in range(first, last):
        source.append(batch(number), number % 2).wait()


def plain(row: Any) -> tuple[Any, ...]:
    """A result row that can be compared and sorted."""
    key = row["key"]
    return (row["w"]["start"].timestamp(), -1 if key is None else key, row["name"], row["n"], row["total"])


def results(path: str) -> list[tuple[Any, ...]]:
    """What a run has put into its result stream."""
    return sorted(plain(row) for row in stream(path).to_table().to_pylist())


def oracle(spark: SparkSession, batches: int) -> list[tuple[Any, ...]]:
    """The same query by plain Spark SQL over the rows of `batches` appends."""
    spark.createDataFrame(pa.Table.from_batches([batch(n) for n in range(batches)])).createOrReplaceTempView(
        "rides"
    )
    rows = spark.sql(QUERY).collect()
    utc = [{**row.asDict(), "w": {"start": row.w.start.astimezone()}} for row in rows]
    return sorted(plain(row) for row in utc)


class Place:
    """A run's input, directory and result in a temporary folder, and the options that it is started with."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.into, self.path = str(folder / "out"), str(folder / "run")
        self.source = make(str(folder / "in"))
        self.query: Query = sql(QUERY, watermark=WATERMARK, rides=self.source)
        self.options = {"tasks": 16, **options}

    def start(self, spark: SparkSession | None, **options: Any) -> Run:
        return self.query.start(self.path, into=self.into, spark=spark, **{**self.options, **options})
