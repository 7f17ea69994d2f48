"""Writing streams from Spark: once each, whatever Spark retries or replays."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from kedge.streams import stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow

COLUMNS = "id bigint, name string, price decimal(9,2), at timestamp"


@pytest.fixture
def ready(spark: SparkSession) -> SparkSession:
    from kedge.spark.source import register

    register(spark)
    return spark


def frame(spark: SparkSession, first: int, last: int, tasks: int = 3) -> DataFrame:
    return spark.range(first, last, 1, tasks).selectExpr(
        "id", "concat('n', id) as name", "cast(id / 100 as decimal(9,2)) as price", "timestamp_seconds(id) as at"
    )


def ids(path: str) -> list[int]:
    return sorted(stream(path).to_table(columns=["id"]).column("id").to_pylist())


def test_a_write_creates_the_stream_and_appends(ready: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    writer = frame(ready, 0, 500).write.format("kedge").mode("append")
    writer.option("partitions", 2).option("eventTime", "at").save(path)
    frame(ready, 500, 700).select("at", "price", "name", "id").write.format("kedge").mode("append").save(path)
    made = stream(path)
    assert (made.partitions, made.event_time) == (2, "at")
    assert made.schema.field("price").type == pa.decimal128(9, 2)
    assert ids(path) == list(range(700))
    assert all(end > 0 for end in made.ends())
    back = ready.read.format("kedge").load(path)
    assert sorted(back.collect()) == sorted(frame(ready, 0, 700).collect())
    assert [name for name in os.listdir(f"{path}/spark/rows") if os.listdir(f"{path}/spark/rows/{name}")] == []


def fails_once(marker: str) -> Any:
    """A stage whose first attempt dies after it has handed on some rows."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os._exit(9)

    return work


def test_a_retried_task_writes_once(ready: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    doomed = frame(ready, 0, 300).mapInArrow(fails_once(str(tmp_path / "died")), COLUMNS)
    doomed.write.format("kedge").mode("append").save(path)
    assert (tmp_path / "died").exists()
    assert ids(path) == list(range(300))


def test_a_named_batch_write_is_done_once(ready: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    for _ in range(2):
        frame(ready, 0, 100).write.format("kedge").mode("append").option("producer", "load-1").save(path)
    assert ids(path) == list(range(100))


def run_query(spark: SparkSession, source: str, target: str, checkpoint: Path, **options: str) -> None:
    rows = spark.readStream.format("kedge").option("maxRowsPerBatch", 100).load(source)
    writer = rows.writeStream.format("kedge").option("checkpointLocation", str(checkpoint))
    for name, value in options.items():
        writer = writer.option(name, value)
    writer.trigger(availableNow=True).start(target).awaitTermination()


def test_a_batch_that_spark_replays_after_a_restart_is_appended_once(ready: SparkSession, tmp_path: Path) -> None:
    source, target, checkpoint = str(tmp_path / "a"), str(tmp_path / "b"), tmp_path / "c"
    frame(ready, 0, 250).write.format("kedge").mode("append").save(source)
    run_query(ready, source, target, checkpoint)
    assert ids(target) == list(range(250))
    commits = sorted((checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    for file in (commits[-1], commits[-1].with_name(f".{commits[-1].name}.crc")):
        file.unlink(missing_ok=True)  # as if the driver had died before Spark noted the batch
    frame(ready, 250, 300).write.format("kedge").mode("append").save(source)
    run_query(ready, source, target, checkpoint)
    assert ids(target) == list(range(300))


def test_the_same_checkpoint_folder_made_anew_is_another_producer(ready: SparkSession, tmp_path: Path) -> None:
    source, target = str(tmp_path / "a"), str(tmp_path / "b")
    frame(ready, 0, 50).write.format("kedge").mode("append").save(source)
    run_query(ready, source, target, tmp_path / "c")
    (tmp_path / "c").rename(tmp_path / "old")
    run_query(ready, source, target, tmp_path / "c")
    assert ids(target) == sorted([*range(50), *range(50)])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["cast(id as int) as id", "name", "price", "at"], "'id' is int, the stream has bigint"),
        (["id", "name", "price"], "'at' is missing"),
        (["*", "1 as extra"], "'extra' is not a column of the stream"),
        (["id", "name", "map(1, 2) as price", "at"], "'price' is map<int,int>"),
    ],
)
def test_columns_that_do_not_fit_are_named(
    ready: SparkSession, tmp_path: Path, change: list[str], message: str
) -> None:
    path = str(tmp_path / "s")
    frame(ready, 0, 10).write.format("kedge").mode("append").save(path)
    with pytest.raises(Exception, match=message):
        frame(ready, 0, 10).selectExpr(*change).write.format("kedge").mode("append").save(path)
    assert ids(path) == list(range(10))


def test_a_null_where_the_stream_takes_none(ready: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    stream(path, schema=pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    with pytest.raises(Exception, match="does not take"):
        ready.sql("SELECT if(id = 5, null, id) AS id FROM range(10)").write.format("kedge").mode("append").save(
            path
        )
    assert ids(path) == []


def test_what_a_stream_does_not_do_is_refused(ready: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with pytest.raises(Exception, match="only appended to"):
        frame(ready, 0, 10).write.format("kedge").mode("overwrite").save(path)
    with pytest.raises(Exception, match="'mood' is not an option for writing"):
        frame(ready, 0, 10).write.format("kedge").mode("append").option("mood", "good").save(path)
