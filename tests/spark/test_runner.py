"""A run on Spark: the same rows as plain Spark SQL, whatever is killed, and whoever goes on with it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from rows import Place, feed, oracle, results

from kedge.errors import ClosedError, ConflictError, KedgeError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


pytestmark = pytest.mark.slow

Until = Callable[[Callable[[], bool]], None]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, rows_max=12_000, driver_rows=0)


def test_the_same_rows_as_plain_spark_while_rows_arrive(spark: SparkSession, place: Place) -> None:
    feed(place.source, 0, 6)
    with place.start(spark, nodes=2) as run:
        run.drain()
        assert run.status().rows_behind == 0
        feed(place.source, 6, 9)
        run.finish()
    assert run.status().final
    assert run.status().rows_late == 0
    assert results(place.into) == oracle(spark, 9)


def test_both_shells_go_on_with_the_same_directory(spark: SparkSession, place: Place) -> None:
    feed(place.source, 0, 3)
    for number, (shell, nodes) in enumerate([(spark, 3), (None, 1), (spark, 1), (None, 2)]):
        with place.start(shell, nodes=nodes) as run:
            run.drain()
        feed(place.source, 3 + number, 4 + number)
    with place.start(spark, nodes=2) as run:
        run.finish()
    assert run.status().epoch == 5
    assert results(place.into) == oracle(spark, 7)


def test_more_nodes_than_keys_and_an_empty_end(spark: SparkSession, place: Place) -> None:
    """Nodes without a row still take part, and the batch that only closes windows reads nothing."""
    feed(place.source, 0, 1)
    with place.start(spark, nodes=16) as run:
        run.drain()
        run.finish()
    assert results(place.into) == oracle(spark, 1)


def test_who_is_taken_over_stops_with_a_conflict(spark: SparkSession, place: Place) -> None:
    feed(place.source, 0, 2)
    first = place.start(spark)
    first.drain()
    with place.start(None) as second:
        feed(place.source, 2, 4)
        second.drain()
        with pytest.raises(ConflictError, match=r"taken over|another coordinator"):
            first.wait(120)
        second.finish()
    assert not first.active
    assert results(place.into) == oracle(spark, 4)


def test_stopped_is_stopped(spark: SparkSession, place: Place) -> None:
    feed(place.source, 0, 2)
    run = place.start(spark)
    run.stop()
    assert not run.active
    with pytest.raises(ClosedError, match="Start it again"):
        run.drain()
    with place.start(spark) as run:
        run.finish()
    assert results(place.into) == oracle(spark, 2)


def workers(module: str) -> list[psutil.Process]:
    """Python processes of this process's Spark that run `module`; not the daemon that forks them."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            line = " ".join(process.cmdline())
            forked = ".daemon" in " ".join(process.parent().cmdline()) if process.parent() else False
            if module in line and (forked or "daemon" not in line):
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


def test_killed_python_workers_change_nothing(spark: SparkSession, place: Place, until: Until, lane: Any) -> None:
    feed(place.source, 0, 2)
    killed: list[int] = []
    batches = 14 if lane.name != "soak" else 130
    with place.start(spark, nodes=2, rows_max=4000) as run:
        for number in range(2, batches):
            version = run.status().version
            feed(place.source, number, number + 1)
            if number % 2:
                for process in workers("pyspark.worker")[:1]:
                    process.send_signal(signal.SIGKILL)
                    killed.append(process.pid)
            until(lambda version=version: run.status().version > version or not run.active)
        run.finish()
    assert len(killed) >= batches // 4
    assert results(place.into) == oracle(spark, batches)


def test_a_killed_planner_ends_the_run_and_nothing_is_lost(spark: SparkSession, place: Place, until: Until) -> None:
    feed(place.source, 0, 3)
    run = place.start(spark)
    until(lambda: run.status().version > 0)
    for process in workers("python_streaming_source_runner"):
        process.send_signal(signal.SIGKILL)
    with pytest.raises(KedgeError, match=r"Spark ended the query|taken over"):
        run.wait(120)
    feed(place.source, 3, 4)
    with place.start(spark) as run:
        run.finish()
    assert results(place.into) == oracle(spark, 4)


def test_spark_reads_the_results_of_a_run(spark: SparkSession, place: Place) -> None:
    from kedge.spark.source import register

    feed(place.source, 0, 4)
    with place.start(spark) as run:
        run.drain()
        register(spark)
        closed = spark.read.format("kedge").load(place.into)
        assert closed.count() == len(results(place.into)) > 0
        run.finish()
    got = spark.read.format("kedge").load(place.into).selectExpr("w.start", "key", "name", "n", "total").collect()
    assert sorted(
        (r.start.astimezone().timestamp(), -1 if r.key is None else r.key, *r[2:]) for r in got
    ) == oracle(spark, 4)
