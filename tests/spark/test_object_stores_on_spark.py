"""Spark over streams, runs and jobs in an object store: nothing but Python, no JAR for the store.

The tasks of Spark find the store by the environment that they were started with, so this Spark is a process of its
own, started after the server.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from s3_server import BUCKET, Server

pytest.importorskip("moto")
pytestmark = pytest.mark.slow

CHILD = f"""
import json, sys
import pyarrow as pa, kedge
from kedge.bench._resume_kills import saving_everything
from kedge.spark.resume.job import Job
from kedge.spark.session import session

base = "s3://{BUCKET}"
spark = session("objects", cores="local[2]", **{{"spark.sql.shuffle.partitions": "2"}})
kedge.register(spark)
found = {{}}

frame = spark.sql("SELECT timestamp_micros(id * 10000) AS ts, id AS v FROM range(0, 4000, 1, 2)")
frame.write.format("kedge").option("partitions", 2).option("eventTime", "ts").mode("append").save(base + "/rides")
read = spark.read.format("kedge").load(base + "/rides")
found["written"] = kedge.stream(base + "/rides").to_table().num_rows
found["read"] = read.selectExpr("sum(v)").first()[0]

copy = spark.readStream.format("kedge").load(base + "/rides").writeStream.format("kedge")
checkpoint = sys.argv[1] + "/checkpoint"
copy = copy.option("checkpointLocation", checkpoint).trigger(availableNow=True)
copy.start(base + "/copied").awaitTermination()
found["copied"] = sorted(kedge.stream(base + "/copied").to_table()["v"].to_pylist()) == list(range(4000))

query = "SELECT window(ts, '1 seconds') AS w, count(*) AS n FROM rides GROUP BY window(ts, '1 seconds')"
rides = kedge.stream(base + "/rides")
run = kedge.sql(query, rides=rides).start(base + "/run", into=base + "/out", spark=spark, rows_max=1000, driver_rows=0)
run.finish()
found["run"] = sorted(kedge.stream(base + "/out").to_table()["n"].to_pylist()) == [100] * 40

jobs = spark.sql("SELECT id % 10 AS k, count(*) AS n FROM range(0, 1000, 1, 4) GROUP BY id % 10")
with saving_everything():
    for name in ("resumed", "again"):
        report = kedge.resume(jobs, at=base + "/job", budget="1 GB", keep=True)
        found[name] = sorted(row.n for row in report.collect()) == [100] * 10
run = [record for record in Job(base + "/job").records() if record["kind"] == "run"][-1]
found["reused"] = sum(stage["reused"] for stage in run["stages"])
print(json.dumps(found))
spark.stop()
"""


def test_spark_reads_writes_runs_and_resumes_there(tmp_path: Path) -> None:
    server = Server(tmp_path)
    job = f"s3://{BUCKET}/job"
    try:
        found = said(server, "-c", CHILD, str(tmp_path))
        cuts = said(server, "-m", "kedge.cli", "resume", "ls", job, "--json")
        shown = said(server, "-m", "kedge.cli", "resume", "show", job, "--json")
        freed = said(server, "-m", "kedge.cli", "resume", "clean", job, "--json")
        left = said(server, "-m", "kedge.cli", "resume", "ls", job, "--json")
    finally:
        server.kill()
    assert all(cut["saved"] == cut["partitions"] and cut["complete"] for cut in cuts)
    assert shown["kind"] == "run"
    assert freed["freed_bytes"] >= sum(cut["bytes"] for cut in cuts) > 0
    assert left == []
    assert found.pop("reused") >= 1
    assert found == {
        "written": 4000,
        "read": sum(range(4000)),
        "copied": True,
        "run": True,
        "resumed": True,
        "again": True,
    }


def said(server: Server, *command: str) -> Any:
    """What a process of its own prints at the end, as JSON."""
    done = subprocess.run(
        [sys.executable, *command],
        env={**os.environ, **server.environment()},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    try:
        return json.loads(done.stdout)
    except ValueError:
        return json.loads(done.stdout.splitlines()[-1])
