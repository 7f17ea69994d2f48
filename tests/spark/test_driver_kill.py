"""SIGKILL of the driver at random moments; a new process goes on, and nothing is lost or doubled."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from rows import QUERY, WATERMARK, feed, make, oracle, results

from kedge.run.query import sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

DRIVER = """
import sys
sys.path.insert(0, sys.argv[2])
from rows import QUERY, WATERMARK
from kedge.run.query import sql
from kedge.spark.session import session
from kedge.streams import stream
folder = sys.argv[1]
spark = session("killed", cores="local[2]", **{"spark.local.dir": f"{folder}/local"})
query = sql(QUERY, watermark=WATERMARK, rides=stream(f"{folder}/in"))
run = query.start(f"{folder}/run", into=f"{folder}/out", spark=spark, tasks=16, rows_max=4000, nodes=2)
print("running", flush=True)
run.wait()
"""


def kill_tree(driver: subprocess.Popen[bytes]) -> None:
    """As when a container is killed: the driver first, then what it had started."""
    if driver.poll() is not None:
        return  # its JVM sees that, and ends with all of Spark
    family = psutil.Process(driver.pid).children(recursive=True)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    for process in family:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(family, timeout=30)


def test_a_killed_driver_loses_nothing(spark: SparkSession, tmp_path: Path, lane: Any) -> None:
    source = make(str(tmp_path / "in"))
    query = sql(QUERY, watermark=WATERMARK, rides=source)
    query.start(str(tmp_path / "run"), into=str(tmp_path / "out"), tasks=16).stop()
    fed = 0
    for seed in lane.seeds(1, 1, 20):
        feed(source, fed, fed + 6)
        fed += 6
        command = [sys.executable, "-c", DRIVER, str(tmp_path), os.path.dirname(__file__)]
        driver = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            assert driver.stdout is not None
            assert driver.stdout.readline() == b"running\n"
            time.sleep(random.Random(seed).uniform(0.0, 8.0))
        finally:
            kill_tree(driver)
    with query.start(str(tmp_path / "run"), into=str(tmp_path / "out"), spark=spark) as run:
        run.finish()
    assert run.status().rows_late == 0
    assert results(str(tmp_path / "out")) == oracle(spark, fed)


AT_A_MOMENT = """
import os, signal, sys
from kedge.run.coordinator import Coordinator
from kedge.spark.handover import Handover
def dies(kind, name, count, late):
    true, calls = getattr(kind, name), []
    def call(*given):
        calls.append(given)
        if late or len(calls) < count:
            true(*given)
        if len(calls) == count:
            os.kill(os.getpid(), signal.SIGKILL)
    setattr(kind, name, call)
kind, name = sys.argv[3].split(".")
dies({"Coordinator": Coordinator, "Handover": Handover}[kind], name, int(sys.argv[4]), sys.argv[5] == "late")
"""


@pytest.mark.parametrize(
    ("moment", "count", "late"),
    [
        ("Coordinator.commit", 1, "early"),
        ("Coordinator.commit", 2, "late"),
        ("Handover.grant", 1, "early"),
        ("Handover.grant", 1, "late"),
    ],
)
def test_killed_before_and_at_the_handover(
    spark: SparkSession, tmp_path: Path, moment: str, count: int, late: str
) -> None:
    source = make(str(tmp_path / "in"))
    query = sql(QUERY, watermark=WATERMARK, rides=source)
    query.start(str(tmp_path / "run"), into=str(tmp_path / "out"), tasks=16).stop()
    feed(source, 0, 6)
    command = [sys.executable, "-c", AT_A_MOMENT + DRIVER, str(tmp_path), os.path.dirname(__file__)]
    command += [moment, str(count), late]
    driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert driver.wait(timeout=120) == -signal.SIGKILL, "it died before its moment"
    finally:
        kill_tree(driver)
    feed(source, 6, 8)
    with query.start(str(tmp_path / "run"), into=str(tmp_path / "out"), spark=spark) as run:
        run.finish()
    assert run.status().rows_late == 0
    assert results(str(tmp_path / "out")) == oracle(spark, 8)
