"""The driver is killed with SIGKILL at several points; another process goes on and gives the same rows."""

from __future__ import annotations

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
    found = kills.kill_and_resume(spark, drivers, name, QUERIES[name], (own, TABLES, tmp_path / "job"), [4])
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
    found = kills.kill_and_resume(
        spark, drivers, f"TPC-H {query}", texts[query], place, [1 + query % 3, 6 + query % 5]
    )
    report.append(found)
    assert found.kills
    assert found.reused
    assert found.same_rows
