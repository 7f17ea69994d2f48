"""A partition counts only if its rows have really ended: a broken connection looks like an end to Arrow."""

from __future__ import annotations

import os
import socket

import pyarrow as pa
import pytest

from kedge.spark.resume import api
from kedge.spark.resume.job import Job
from kedge.spark.resume.parts import broken_off


def test_arrow_takes_a_stream_without_its_end_for_a_whole_one():
    """Why the connection has to be asked."""
    batch, sink = pa.record_batch({"v": [1, 2, 3]}), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
        end = sink.tell()
        writer.write_batch(batch)
    assert sum(one.num_rows for one in pa.ipc.open_stream(sink.getvalue()[:end])) == 3


@pytest.mark.parametrize(
    ("does", "broken"),
    [
        (lambda spark: None, False),
        (lambda spark: spark.send(b"more"), False),
        (lambda spark: spark.shutdown(socket.SHUT_WR), True),
        (lambda spark: spark.close(), True),
    ],
)
def test_a_connection_says_whether_the_rows_were_broken_off(does, broken):
    spark, worker = socket.socketpair()
    with spark, worker, os.fdopen(os.dup(worker.fileno()), "rb") as infile:
        does(spark)
        assert broken_off(infile) == broken


@pytest.mark.slow
def test_a_task_that_fails_between_two_batches_saves_nothing(spark, tmp_path, everything):
    """Rows 0 to 59,999 reach the worker in batches of ten thousand, then the task fails."""
    at = str(tmp_path / "j")
    df = spark.range(0, 100_000, 1, 1).selectExpr("id % (60000 - id) AS v").repartition(2).groupBy("v").count()
    for _ in range(3):
        with pytest.raises(Exception, match="REMAINDER_BY_ZERO"):
            api.resume(df, at=at, keep=True).collect()
        assert [part for cut in Job(at).cuts().values() for part in cut.parts] == []
