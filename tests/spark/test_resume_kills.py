"""The driver is killed with SIGKILL at several points; another process goes on and gives the same rows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from resume_data import QUERIES, TABLES, make

from kedge.bench import _resume_kills as kills
from kedge.bench import _resume_tpch as tpch
from kedge.spark.resume.plan import settings


@pytest.fixture(scope="module")
def drivers():
    with kills.Drivers() as found:
        yield found


@pytest.fixture
def splits(spark):
    with settings(spark, kills.SPLITS):
        yield


@pytest.fixture(scope="module")
def own(spark, tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    make(spark, str(folder), rows=200_000, files=8)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", list(QUERIES))
def test_killed_once(spark, own, drivers, tmp_path, splits, name):
    kills.views(spark, own, TABLES)
    place = (own, TABLES, tmp_path / "job")
    found = kills.kill_and_resume(spark, drivers, name, QUERIES[name], place, [4], kills.SPLITS)
    assert found.kills == 1
    assert found.saved >= 4
    assert found.reused >= 3  # the last driver may have been killed before it knew of its last file
    assert found.same_rows


@pytest.fixture(scope="module")
def tpch_tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tpch")
    return folder, tpch.make(folder, 0.01)


@pytest.fixture(scope="module")
def report():
    found = []
    yield found
    out = Path("bench-out")
    out.mkdir(exist_ok=True)
    (out / "resume-tpch-kills.md").write_text(kills.table(found))
    print("\n" + kills.table(found))


@pytest.mark.soak
@pytest.mark.parametrize("query", range(1, 23))
def test_tpch_killed_at_several_points(spark, drivers, tpch_tables, report, tmp_path, splits, query):
    folder, texts = tpch_tables
    kills.views(spark, folder, tpch.TABLES)
    place = (folder, tpch.TABLES, tmp_path / "job")
    points = [1 + query % 3, 6 + query % 5]
    found = kills.kill_and_resume(spark, drivers, f"TPC-H {query}", texts[query], place, points, kills.SPLITS)
    report.append(found)
    assert found.kills
    assert found.reused
    assert found.same_rows


PROGRAM = """
import sys
import kedge
from kedge.bench import _resume_kills as kills
from kedge.spark.session import session
spark = session("program")
table, at, ends = sys.argv[1:]
with kills.saving_everything():
    df = kedge.resume(spark.read.parquet(table).groupBy("custkey").count(), at=at)
assert kills.files(__import__("pathlib").Path(at))
if ends == "well":
    df.collect()
elif ends == "raises":
    raise RuntimeError("the program has failed")
else:
    try:
        df.selectExpr("raise_error('a failed action')").collect()
    except Exception:
        sys.exit(1)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("ends", "kept"), [("well", False), ("raises", True), ("fails", True)])
def test_what_was_saved_goes_only_when_the_process_ends_well(own, tmp_path, ends, kept):
    at = tmp_path / "job"
    command = [sys.executable, "-c", PROGRAM, str(own / "orders"), str(at), ends]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode == 0) == (ends == "well"), done.stderr[-2000:]
    assert bool(kills.files(at)) == kept
