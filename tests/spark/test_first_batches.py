"""The first batches after a start are the driver's, the later ones Spark's: one history, whoever did what."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rows import Place, feed, oracle, results

from kedge.errors import ClosedError, ConflictError, UnavailableError
from kedge.host import local
from kedge.run.directory import RunDirectory
from kedge.spark.handover import Handover

pytest.importorskip("pyspark")

from kedge.spark.runner import SparkRun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kedge.run.run import Run

Until = Callable[[Callable[[], bool]], None]


class Committed(Place):
    """A place whose committed batches are looked at."""

    def by_spark(self) -> list[bool]:
        """For every batch, whether it was done on Spark: only there a node counts the tables that it missed."""
        return ["tables_missed" in record["figures"] for record in self.batches()]

    def batches(self) -> list[Any]:
        ledger = RunDirectory(local(), self.path).ledger()
        ledger.refresh()
        return [record for record in ledger.records() if record["kind"] == "batch"]


@pytest.fixture
def place(tmp_path: Path) -> Committed:
    return Committed(tmp_path, rows_max=4000, nodes=2)


def handed_over(place: Committed, until: Until, run: Run, fed: int) -> int:
    """Feed until Spark commits; how much was fed."""
    before = len(place.by_spark())
    while not any(place.by_spark()[before:]):
        version = run.status().version
        feed(place.source, fed, fed + 1)
        fed += 1
        until(lambda version=version: run.status().version > version or not run.active)
        assert run.active
    return fed


@pytest.mark.slow
def test_driver_and_spark_alternate_over_restarts(spark: SparkSession, place: Committed, until: Until) -> None:
    fed, made = 0, []
    for _ in range(2):
        feed(place.source, fed, fed + 3)
        with place.start(spark) as run:
            fed = handed_over(place, until, run, fed + 3)
            feed(place.source, fed, fed + 2)
            fed += 2
            run.drain()
            made = place.by_spark()
        with place.start(None, nodes=3):
            pass
    changes = [a for a, b in zip([None, *made], made, strict=False) if a != b]
    assert len(changes) == 4, f"driver, Spark, driver, Spark: {made}"
    with place.start(spark) as run:
        run.finish()
    assert run.status().rows_late == 0
    assert results(place.into) == oracle(spark, fed)


@pytest.mark.slow
def test_spark_finds_the_tables_that_the_driver_leaves(spark: SparkSession, place: Committed, until: Until) -> None:
    feed(place.source, 0, 3)
    with place.start(spark) as run:
        handed_over(place, until, run, 3)
        assert open_tables(place) == [], "the driver gives its tables back"
    first = next(record for record in place.batches() if "tables_missed" in record["figures"])
    assert first["parent"]
    assert first["figures"]["tables_missed"] == 0


def open_tables(place: Committed) -> list[str]:
    """Files of this run's tables that this process has open or mapped."""
    definition = RunDirectory(local(), place.path).definition()
    assert definition is not None
    with open("/proc/self/maps") as maps:
        found = [line.split()[-1] for line in maps if definition.id in line]
    for name in os.listdir("/proc/self/fd"):
        try:
            found += [one for one in [os.readlink(f"/proc/self/fd/{name}")] if definition.id in one]
        except FileNotFoundError:
            continue
    return found


@pytest.mark.slow
def test_finish_may_be_the_drivers_alone(spark: SparkSession, place: Committed) -> None:
    feed(place.source, 0, 4)
    run = place.start(spark)
    run.finish()
    assert run.status().final
    assert not run.active
    assert not any(place.by_spark())
    assert open_tables(place) == []
    assert not [one.name for one in threading.enumerate() if one.name.startswith(("kedge-run", "kedge-fragment"))]
    assert results(place.into) == oracle(spark, 4)


@pytest.mark.slow
def test_stopped_at_once_and_started_again(spark: SparkSession, place: Committed) -> None:
    feed(place.source, 0, 4)
    run = place.start(spark)
    run.stop()
    feed(place.source, 4, 5)
    with pytest.raises(ClosedError, match="Start it again"):
        run.drain()
    with place.start(spark, driver_rows=0) as run:
        run.finish()
    assert results(place.into) == oracle(spark, 5)


@pytest.mark.slow
@pytest.mark.parametrize("driver_rows", [0, 4000])
def test_a_query_that_begins_with_nothing_to_do(
    spark: SparkSession, place: Committed, until: Until, driver_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []
    true_commit = SparkRun._commit

    def commit(self: SparkRun, frame: Any, batch: int) -> None:
        true_commit(self, frame, batch)
        begun.append(batch)

    monkeypatch.setattr(SparkRun, "_commit", commit)
    with place.start(spark, driver_rows=driver_rows) as run:
        until(lambda: bool(begun) or not run.active)
        assert run.active
        feed(place.source, 0, 2)
        run.finish()
    assert place.by_spark() == [True] * len(place.by_spark())
    assert results(place.into) == oracle(spark, 2)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [0, 4], ids=["idle", "at work"])
def test_who_is_taken_over_at_the_start_stops_with_a_conflict(
    spark: SparkSession, place: Committed, rows: int
) -> None:
    feed(place.source, 0, rows)
    first = place.start(spark)
    with place.start(None) as second:
        feed(place.source, rows, 6)
        second.drain()
        with pytest.raises(ConflictError, match=r"taken over|another coordinator|claim"):
            first.wait(120)
        second.finish()
    assert not first.active
    assert results(place.into) == oracle(spark, 6)


@pytest.mark.slow
def test_a_failure_of_the_drivers_batches_is_the_runs(
    spark: SparkSession, place: Committed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    feed(place.source, 0, 2)
    monkeypatch.setattr("kedge.run.embedded.Embedded._assemble", staticmethod(full))
    run = place.start(spark)
    with pytest.raises(OSError, match="No space left"):
        run.wait(120)
    assert not run.active
    assert place.batches() == []
    monkeypatch.undo()
    with place.start(spark) as run:
        run.finish()
    assert results(place.into) == oracle(spark, 2)


@pytest.mark.slow
def test_much_state_is_left_to_spark(
    spark: SparkSession, place: Committed, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed(place.source, 0, 2)
    with place.start(None) as run:
        run.drain()
    monkeypatch.setattr("kedge.spark.first._STATE_HERE", run.status().state_bytes - 1)
    feed(place.source, 2, 4)
    with place.start(spark) as run:
        run.finish()
    assert place.by_spark()[-1]
    assert results(place.into) == oracle(spark, 4)


def test_a_planner_waits_until_the_driver_has_stopped(tmp_path: Path) -> None:
    clock, driver = local().clock, Handover(str(tmp_path / "handover"))
    planner = Handover(str(tmp_path / "handover"))
    driver.open()
    assert not driver.asked()
    with pytest.raises(UnavailableError, match="driver_rows"):
        planner.ask(clock, wait_s=0.02)
    assert driver.asked()
    driver.grant()
    planner.ask(clock)
    planner.ask(clock)  # as a planner does that Spark has started again
    driver.refuse()
    with pytest.raises(ClosedError, match="ended before Spark"):
        planner.ask(clock)
