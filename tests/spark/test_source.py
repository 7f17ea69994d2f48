"""`format("kedge")`: what Spark reads is what the stream holds, in batch and in streaming."""

from __future__ import annotations

import datetime
import decimal
import json
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from kedge.streams import stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow

UTC = datetime.UTC
SCHEMA = pa.schema(
    [
        pa.field("ts", pa.timestamp("us", "UTC")),
        pa.field("local", pa.timestamp("us")),
        pa.field("key", pa.int32(), nullable=False),
        pa.field("small", pa.uint8()),
        pa.field("big", pa.uint64()),
        pa.field("name", pa.string()),
        pa.field("raw", pa.binary()),
        pa.field("price", pa.decimal128(12, 2)),
        pa.field("ratio", pa.float64()),
        pa.field("day", pa.date32()),
        pa.field("flag", pa.bool_()),
    ]
)


def rows(start: int, count: int) -> pa.RecordBatch:
    """Rows of every type, with nulls, that can be told apart by `key`."""
    keys = range(start, start + count)
    t0 = datetime.datetime(2026, 1, 1, tzinfo=UTC)
    return pa.RecordBatch.from_pydict(
        {
            "ts": [t0 + datetime.timedelta(seconds=k) for k in keys],
            "local": [datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999)] * count,
            "key": list(keys),
            "small": [None if k % 7 == 0 else 255 - k % 3 for k in keys],
            "big": [(1 << 64) - 1 - k for k in keys],
            "name": [None if k % 5 == 0 else f"näme {k}" for k in keys],
            "raw": [bytes([k % 256]) * (k % 4) for k in keys],
            "price": [decimal.Decimal(k) / 100 for k in keys],
            "ratio": [k / 3 for k in keys],
            "day": [datetime.date(2026, 1, 1) + datetime.timedelta(days=k % 1000) for k in keys],
            "flag": [None if k % 11 == 0 else k % 2 == 0 for k in keys],
        },
        schema=SCHEMA,
    )


@pytest.fixture
def source(tmp_path: Path) -> str:
    """Two partitions: 0 has rows 0..899 in three units, 1 has 1000..1299 in one."""
    path = str(tmp_path / "source")
    with stream(path, schema=SCHEMA, partitions=2, event_time="ts") as out:
        for first in (0, 300, 600):
            out.append(rows(first, 300), 0).wait()
        out.append(rows(1000, 300), 1).wait()
    return path


def load(spark: SparkSession, path: str, **options: Any) -> DataFrame:
    from kedge.spark.source import register

    register(spark)
    reader = spark.read.format("kedge")
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load(path)


def keys(frame: DataFrame) -> list[int]:
    return sorted(row.key for row in frame.select("key").collect())


ALL = [*range(900), *range(1000, 1300)]


def test_every_type_arrives(spark: SparkSession, source: str) -> None:
    frame = load(spark, source, rowsPerTask=100)
    assert frame.count() == 1200
    got = frame.where("key = 3 or key = 35").orderBy("key").collect()
    want = [*rows(3, 1).to_pylist(), *rows(35, 1).to_pylist()]
    for mine, theirs in zip(got, want, strict=True):
        assert mine.ts.astimezone(UTC) == theirs["ts"]
        assert mine.raw == theirs["raw"]
        same = set(SCHEMA.names) - {"ts", "raw"}
        assert {name: mine[name] for name in same} == {name: theirs[name] for name in same}
    assert [f.dataType.simpleString() for f in frame.schema] == [
        "timestamp",
        "timestamp_ntz",
        "int",
        "smallint",
        "decimal(20,0)",
        "string",
        "binary",
        "decimal(12,2)",
        "double",
        "date",
        "boolean",
    ]


def test_columns_and_offsets(spark: SparkSession, source: str) -> None:
    frame = load(
        spark,
        source,
        columns="name, key",
        startingOffsets=json.dumps({"0": 250}),
        endingOffsets=json.dumps({"0": 650, "1": 10}),
    )
    assert frame.columns == ["name", "key"]
    assert keys(frame) == [*range(250, 650), *range(1000, 1010)]
    assert keys(load(spark, source, startingOffsets="latest")) == []


@pytest.mark.parametrize(
    ("condition", "want", "tasks"),
    [
        ("ts >= timestamp'2026-01-01 00:10:10Z'", [*range(610, 900), *range(1000, 1300)], 2),
        ("key between 310 and 320", [*range(310, 321)], 1),
        ("key in (5, 1100)", [5, 1100], 4),  # between 5 and 1100: statistics are bounds, not sets
        ("key > 900", [*range(1000, 1300)], 1),
        ("price < 2.99", [*range(299)], 1),
        ("big = 18446744073709550615", [1000], 1),
        ("ratio > 333.0", [*range(1000, 1300)], 1),
        ("day = date'2026-01-02' and key < 900", [1], 1),
        ("raw = X'07'", [], None),
        ("name = 'näme 301'", [301], None),
        ("small = 999", [], 4),  # the stream's uint8 can't be compared with it
    ],
)
def test_filters_leave_units_out(
    spark: SparkSession, source: str, condition: str, want: list[int], tasks: int | None
) -> None:
    frame = load(spark, source, rowsPerTask=1).where(condition)
    assert keys(frame) == want
    if tasks is not None:
        assert frame.rdd.getNumPartitions() == tasks


def test_an_empty_stream_is_no_error(spark: SparkSession, tmp_path: Path) -> None:
    stream(str(tmp_path / "empty"), schema=SCHEMA)
    assert load(spark, str(tmp_path / "empty")).count() == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"colour": "red"}, "'colour' is not an option for reading a kedge stream"),
        ({"columns": "key,nothing"}, "has no column 'nothing'"),
        ({"startingOffsets": "yesterday"}, "write earliest, latest, or an offset"),
        ({"startingOffsets": '{"7": 0}'}, "There is no partition 7"),
        ({"maxRowsPerBatch": "10"}, "are for spark.readStream"),
        ({"rowsPerTask": "0"}, "is not a number of 1 or more"),
    ],
)
def test_wrong_options_are_named(spark: SparkSession, source: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(Exception, match=message):
        load(spark, source, **options).collect()


def test_a_missing_stream_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="There is no stream at"):
        load(spark, str(tmp_path / "nowhere"))


def follow(
    spark: SparkSession, path: str, checkpoint: Path, options: dict[str, Any], available_now: bool = True
) -> tuple[Any, list[list[int]]]:
    """A streaming query that notes the keys of each batch."""
    from kedge.spark.source import register

    register(spark)
    batches: list[list[int]] = []

    def note(frame: DataFrame, _: int) -> None:
        batches.append(keys(frame))

    reader = spark.readStream.format("kedge")
    for name, value in options.items():
        reader = reader.option(name, value)
    writer = reader.load(path).writeStream.foreachBatch(note).option("checkpointLocation", str(checkpoint))
    if available_now:
        writer = writer.trigger(availableNow=True)
    return writer.start(), batches


def test_a_streaming_query_takes_every_row_once_across_restarts(
    spark: SparkSession, source: str, tmp_path: Path
) -> None:
    query, first = follow(spark, source, tmp_path / "c", {"maxRowsPerBatch": 400})
    query.awaitTermination()
    assert sorted(chain(*first)) == ALL
    assert max(map(len, first)) <= 400
    with stream(source) as out:
        out.append(rows(2000, 50), 1).wait()
    query, second = follow(spark, source, tmp_path / "c", {"maxRowsPerBatch": 400})
    query.awaitTermination()
    assert second == [list(range(2000, 2050))]


def test_a_query_follows_a_growing_stream(
    spark: SparkSession, source: str, tmp_path: Path, until: Callable[[Callable[[], bool]], None]
) -> None:
    query, batches = follow(spark, source, tmp_path / "c", {"startingOffsets": "latest"}, available_now=False)
    try:
        with stream(source) as out:
            until(lambda: query.lastProgress is not None or not query.isActive)
            for first in range(5000, 5300, 100):
                out.append(rows(first, 100), first % 2).wait()
        until(lambda: len(list(chain(*batches))) >= 300 or not query.isActive)
    finally:
        query.stop()
    assert sorted(chain(*batches)) == list(range(5000, 5300))


def test_another_stream_under_a_checkpoint_is_refused(spark: SparkSession, source: str, tmp_path: Path) -> None:
    query, _ = follow(spark, source, tmp_path / "c", {})
    query.awaitTermination()
    Path(source).rename(tmp_path / "moved")
    with stream(source, schema=SCHEMA, partitions=2) as out:
        out.append(rows(0, 10)).wait()
    query, _ = follow(spark, source, tmp_path / "c", {})
    with pytest.raises(Exception, match="made with another stream"):
        query.awaitTermination()


def test_a_subscription_holds_what_was_not_read_and_lets_go_of_the_rest(
    spark: SparkSession, source: str, tmp_path: Path
) -> None:
    options = {"subscription": "billing", "maxRowsPerBatch": 400}
    query, first = follow(spark, source, tmp_path / "c", options)
    query.awaitTermination()
    assert sorted(chain(*first)) == ALL
    with stream(source) as there:
        saved = there.subscriptions()["billing"]
        assert 0 < sum(saved) <= 1200, "Spark tells a source that a batch is done when it plans the next one"
        begun = there.subscribe("billing").positions
    query, second = follow(spark, source, tmp_path / "another", options)
    query.awaitTermination()
    behind = [*range(begun[0], 900), *range(1000 + begun[1], 1300)]
    assert sorted(chain(*second)) == behind, "a query without a checkpoint goes on where its subscription is"
