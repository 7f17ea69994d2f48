"""The driver is killed with SIGKILL at several points; another process goes on and gives the same rows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from resume_data import QUERIES, TABLES, make, save_everything, views

from kedge.spark.resume import api
from kedge.spark.resume import run as runs
from kedge.spark.resume.job import Job

HERE = os.path.dirname(os.path.abspath(__file__))
SPLITS = {"spark.sql.files.maxPartitionBytes": "200000", "spark.sql.files.openCostInBytes": "0"}


def killed_driver(tables, at, text, names, parts):
    """Start a driver, wait until `parts` partitions are saved, kill it and its JVM; how many it had saved."""
    query = f"{at}.sql"
    with open(query, "w") as file:
        file.write(text)
    child = subprocess.Popen(
        [sys.executable, f"{HERE}/resume_child.py", tables, at, query, ",".join(names)], start_new_session=True
    )
    try:
        waited = 0
        while child.poll() is None and waited < 6_000:
            saved = count(at)
            if saved >= parts:
                break
            time.sleep(0.02)
            waited += 1
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    return child.returncode


def count(at):
    return sum(
        n.endswith(".parquet") and not n.startswith(".") for _, _, names in os.walk(f"{at}/parts") for n in names
    )


def rows(df):
    return sorted((tuple(round(x, 6) if isinstance(x, float) else x for x in r) for r in df.collect()), key=repr)


@pytest.fixture
def splits(spark, monkeypatch):
    before = {name: spark.conf.get(name) for name in SPLITS}
    monkeypatch.setattr(runs, "select", runs.select)  # put back what save_everything replaces
    save_everything()
    for name, value in SPLITS.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)


def kill_and_resume(spark, tables, names, at, text, points):
    want = rows(spark.sql(text))
    for parts in points:
        returned = killed_driver(tables, at, text, names, parts)
        assert returned in (-signal.SIGKILL, 0)
    saved = count(at)
    assert saved
    assert rows(api.resume(spark.sql(text), at=at, keep=True)) == want
    run = [record for record in Job(at).records() if record["kind"] == "run"][-1]
    reused = sum(stage["reused"] for stage in run["stages"])
    return saved, reused


@pytest.mark.slow
@pytest.mark.parametrize("name", list(QUERIES))
def test_killed_once(spark, tmp_path_factory, tmp_path, splits, name):
    tables = str(tmp_path / "tables")
    make(spark, tables, rows=200_000, files=8)
    views(spark, tables)
    _, reused = kill_and_resume(spark, tables, TABLES, str(tmp_path / "job"), QUERIES[name], [3])
    assert reused >= 3


TPCH = os.environ.get("KEDGE_TPCH", "")  # a folder with the eight tables and queries.json (docs/resume.md says how)
TPCH_TABLES = ("customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier")


@pytest.mark.soak
@pytest.mark.skipif(not TPCH, reason="KEDGE_TPCH does not name a folder with TPC-H tables; see docs/resume.md")
@pytest.mark.parametrize("query", range(1, 23))
def test_tpch_killed_at_several_points(spark, tmp_path, splits, query):
    with open(f"{TPCH}/queries.json") as file:
        text = json.load(file)[str(query)].strip().rstrip(";")
    views(spark, TPCH, TPCH_TABLES)
    kill_and_resume(spark, TPCH, TPCH_TABLES, str(tmp_path / "job"), text, [1, 4, 9])
