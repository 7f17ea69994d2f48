"""A run on several executors, each with a folder of tables of its own: the tables are found again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rows import oracle, results

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

DRIVER = """
import glob, json, os, shutil, sys
sys.path.insert(0, sys.argv[2])
from rows import QUERY, WATERMARK, feed, make
from kedge.run.directory import RunDirectory
from kedge.host import local
from kedge.run.query import sql
from kedge.spark.session import session
from pyspark.find_spark_home import _find_spark_home
folder = sys.argv[1]
settings = {"spark.shuffle.reduceLocality.enabled": False, "spark.executor.memory": "512m"}
spark = session("hosts", cores="local-cluster[2,1,1024]", **settings)
source = make(f"{folder}/in")
query = sql(QUERY, watermark=WATERMARK, rides=source)
ledger = RunDirectory(local(), f"{folder}/run").ledger()

def missed():  # by batch; None for those of the driver
    ledger.refresh()
    return [r["figures"].get("tables_missed") for r in ledger.records() if r["kind"] == "batch"]

run = query.start(f"{folder}/run", into=f"{folder}/out", spark=spark, tasks=16, rows_max=4000, nodes=2, tables="tables",
                  driver_rows=int(sys.argv[3]))
fed = 0
while not [one for one in missed() if one is not None]:
    feed(source, fed, fed + 1)
    fed += 1
    run.drain()
feed(source, fed, fed + 10)
run.finish()
work = os.path.join(_find_spark_home(), "work", spark.sparkContext.applicationId)
folders = len(glob.glob(f"{work}/*/tables/*"))
spark.stop()
shutil.rmtree(work, ignore_errors=True)  # a local cluster works in Spark's own folder
print(json.dumps([missed(), folders, fed + 10]))
"""


@pytest.mark.parametrize("driver_rows", [0, pytest.param(4000, marks=pytest.mark.soak)])
def test_tables_are_found_again_on_their_executors(spark: SparkSession, tmp_path: Path, driver_rows: int) -> None:
    """Every batch but Spark's first finds all of its tables, though each executor sees only its own folder.

    The driver is no executor here: what it does before Spark is ready it does on tables in its memory.
    """
    command = [sys.executable, "-c", DRIVER, str(tmp_path), os.path.dirname(__file__), str(driver_rows)]
    source = os.pathsep.join(
        os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path
    )
    environment = {**os.environ, "PYTHONPATH": source}  # executors have working directories of their own
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=500)
    assert ran.returncode == 0, ran.stderr
    missed, folders, fed = json.loads(ran.stdout.splitlines()[-1])
    by_driver = missed.index(16)
    assert missed == [*[None] * by_driver, 16, *[0] * (len(missed) - by_driver - 1)]
    assert len(missed) - by_driver >= 10
    assert bool(by_driver) == bool(driver_rows)
    assert folders == 2, "one for each executor"
    assert results(str(tmp_path / "out")) == oracle(spark, fed)
