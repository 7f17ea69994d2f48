"""kedge.resume in one process: same rows, reuse by partition, invalidation, refusals."""

from __future__ import annotations

import json
import os
import subprocess
import warnings

import pytest
from resume_data import QUERIES, make, views

from kedge.errors import ConflictError, UsageError
from kedge.spark.resume import api
from kedge.spark.resume import run as runs
from kedge.spark.resume.job import Job
from kedge.spark.resume.plan import settings

pytestmark = pytest.mark.slow

EVERYTHING = {"overhead": 1e6}


@pytest.fixture(scope="module")
def tables(spark, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("tables"))
    make(spark, folder, rows=20_000, files=4)
    views(spark, folder)
    return folder


def rows(df):
    return sorted(map(tuple, df.collect()), key=repr)


def parts_of(at):
    return sorted(name for name in Job(at).store.list("parts"))


def drop_some(at, every=2):
    """As if the driver had died: some partitions of each cut are not there."""
    job = Job(at)
    gone = parts_of(at)[::every]
    for name in gone:
        job.store.delete(name)
    return gone


def test_same_rows_and_only_missing_partitions_again(spark, tables, tmp_path, everything):
    for name, text in QUERIES.items():
        at = str(tmp_path / name)
        want = rows(spark.sql(text))
        assert rows(api.resume(spark.sql(text), at=at, keep=True)) == want
        before = parts_of(at)
        assert before
        gone = drop_some(at)
        kept = {n: os.stat(f"{at}/{n}").st_mtime_ns for n in parts_of(at)}
        assert rows(api.resume(spark.sql(text), at=at, keep=True)) == want
        again = {n: os.stat(f"{at}/{n}").st_mtime_ns for n in parts_of(at) if n in kept}
        assert {n: t for n, t in kept.items() if n in again} == again  # what was there was not written again
        assert gone


def test_everything_that_stands_in_a_plan(spark, tables, tmp_path, everything):
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import LongType

    orders, lines = spark.table("orders"), spark.table("lineitem")
    twice = F.udf(lambda x: x * 2, LongType())
    cached = orders.filter("custkey % 3 = 0").cache()
    window = Window.partitionBy("custkey").orderBy("orderkey")
    queries = {
        "union": orders.select("orderkey").union(lines.select("orderkey")).groupBy("orderkey").count(),
        "window": orders.withColumn("n", F.row_number().over(window)).filter("n = 1"),
        "udf": orders.withColumn("d", twice("custkey")).groupBy("d").count(),
        "cache": cached.groupBy("custkey").agg(F.max("orderkey")).orderBy("custkey"),
        "same name twice": orders.groupBy("custkey").agg(F.count("*"), F.count("orderkey")),
        "strings and nulls": lines.select(
            "flag", F.when(F.col("orderkey") % 2 == 0, F.col("shipped")).alias("s")
        ).distinct(),
        "times": orders.groupBy(F.to_timestamp("ordered").alias("t")).agg(F.collect_set(F.col("custkey") % 2)),
        "nothing": orders.filter("custkey < 0").groupBy("custkey").count(),
        "no exchange": orders.filter("custkey = 5"),
    }
    for name, df in queries.items():
        at = str(tmp_path / name.replace(" ", "-"))
        want = rows(df)
        assert rows(api.resume(df, at=at, keep=True)) == want, name
        drop_some(at, 3)
        assert rows(api.resume(df, at=at, keep=True)) == want, name
    cached.unpersist()


def test_a_sorted_result_stays_sorted(spark, tables, tmp_path, everything):
    df = (
        spark.table("lineitem")
        .repartition(3, "orderkey")
        .orderBy("orderkey", "price", "quantity", "shipped", "flag")
    )
    first = api.resume(df, at=str(tmp_path / "j"), keep=True).collect()
    assert api.resume(df, at=str(tmp_path / "j"), keep=True).collect() == first == df.collect()


def test_a_changed_input_invalidates_what_depends_on_it_and_says_why(spark, tables, tmp_path, everything):
    at, data = str(tmp_path / "j"), str(tmp_path / "t")
    spark.range(100).selectExpr("id", "id % 7 AS k").write.parquet(data)
    other = spark.table("orders").groupBy("custkey").count()

    def query():
        return (
            spark.read.parquet(data).groupBy("k").count().join(other, other.custkey == spark.range(1).count() - 1)
        )

    df = spark.read.parquet(data).groupBy("k").count().unionByName(other.selectExpr("custkey AS k", "count"))
    rows(api.resume(df, at=at, keep=True))
    ids = {cut.id: cut for cut in Job(at).cuts().values()}
    spark.range(50).selectExpr("id", "id % 5 AS k").write.mode("overwrite").parquet(data)
    df = spark.read.parquet(data).groupBy("k").count().unionByName(other.selectExpr("custkey AS k", "count"))
    with pytest.warns(UserWarning, match="is gone|is new|changed"):
        got = rows(api.resume(df, at=at, keep=True))
    assert got == rows(df)
    kept = [cut for cut in Job(at).cuts().values() if cut.id in ids]
    assert kept  # the branch over orders did not change
    assert all("orders" in cut.label and "t" not in cut.label.split() for cut in kept)


def test_another_option_that_changes_results_is_another_query(spark, tables, tmp_path, everything):
    at = str(tmp_path / "j")
    api.resume(spark.sql(QUERIES["summary"]), at=at, keep=True)
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        with pytest.warns(UserWarning, match=r"option spark.sql.session.timeZone changed from UTC to Asia/Tokyo"):
            api.resume(spark.sql(QUERIES["summary"]), at=at, keep=True)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_options_that_change_no_result_invalidate_nothing(spark, tables, tmp_path, everything):
    import kedge

    at, text = str(tmp_path / "j"), QUERIES["summary"]
    name = "spark.sql.python.filterPushdown.enabled"
    spark.conf.unset(name)
    want = rows(api.resume(spark.sql(text), at=at, keep=True))
    saved = parts_of(at)
    harmless = {
        "spark.sql.adaptive.coalescePartitions.enabled": "false",
        "spark.sql.codegen.maxFields": "99",
        "spark.sql.caseSensitive": "false",  # Spark's default
    }
    with warnings.catch_warnings(), settings(spark, harmless):
        warnings.simplefilter("error")
        kedge.register(spark)
        assert rows(api.resume(spark.sql(text), at=at, keep=True)) == want
    assert parts_of(at) == saved
    with (
        settings(spark, {"spark.sql.files.ignoreCorruptFiles": "true"}),
        pytest.warns(UserWarning, match="ignoreC"),
    ):
        api.resume(spark.sql(text), at=at, keep=True)


@pytest.mark.parametrize("expression", ["rand()", "uuid()", "monotonically_increasing_id()", "current_timestamp()"])
def test_what_is_not_deterministic_is_refused(spark, tables, tmp_path, expression):
    df = spark.table("orders").selectExpr("custkey", f"{expression} AS r").groupBy("r").count()
    with pytest.raises(UsageError, match=r"not deterministic|reads the clock"):
        api.resume(df, at=str(tmp_path / "j"))


def test_two_drivers_the_older_one_stops(spark, tables, tmp_path, everything, monkeypatch):
    at, real = str(tmp_path / "j"), runs.Engine.save

    def other_driver_comes(self, stage, cut):
        Job(at).claim()
        return real(self, stage, cut)

    monkeypatch.setattr(runs.Engine, "save", other_driver_comes)
    with pytest.raises(ConflictError):
        api.resume(spark.sql(QUERIES["summary"]), at=at)


def test_a_full_disk_gives_a_plain_run_with_a_warning(spark, tables, tmp_path, everything, monkeypatch):
    from kedge.spark.resume import engine

    def full(*_):
        def save(batches):
            raise OSError(28, "kedge-can't-save: No space left on device")
            yield

        return save

    monkeypatch.setattr(engine, "saver", full)
    with pytest.warns(UserWarning, match="not saved"):
        got = rows(api.resume(spark.sql(QUERIES["nations"]), at=str(tmp_path / "j"), keep=True))
    assert got == rows(spark.sql(QUERIES["nations"]))
    assert parts_of(str(tmp_path / "j")) == []


def test_a_disk_that_is_really_full(spark, tables, tmp_path, everything):
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody mount a small file system")
    text = QUERIES["largest"]
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            got = rows(api.resume(spark.sql(text), at=str(place / "j"), keep=True))
        assert got == rows(spark.sql(text))
        assert any("not saved" in str(w.message) or "plainly" in str(w.message) for w in told)
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_ledger_that_takes_no_more_gives_a_plain_run(spark, tables, tmp_path, everything, monkeypatch):
    real = Job.add

    def full(self, kind, **fields):
        if kind == "saved":
            monkeypatch.setattr(self.ledger, "commit", no_space)
        real(self, kind, **fields)

    def no_space(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Job, "add", full)
    with pytest.warns(UserWarning, match="runs plainly"):
        got = rows(api.resume(spark.sql(QUERIES["nations"]), at=str(tmp_path / "j"), keep=True))
    assert got == rows(spark.sql(QUERIES["nations"]))


def test_a_damaged_file_is_never_used(spark, tables, tmp_path, everything):
    at, want = str(tmp_path / "j"), rows(spark.sql(QUERIES["summary"]))
    api.resume(spark.sql(QUERIES["summary"]), at=at, keep=True)
    damaged = list(Job(at).cuts().values())[-1].parts[0].file  # of the result: it is what a rerun would read
    with open(f"{at}/{damaged}", "r+b") as file:
        file.seek(20)
        file.write(b"\xff\x00\xff")
    times = {name: os.stat(f"{at}/{name}").st_mtime_ns for name in parts_of(at) if name != damaged}
    with pytest.warns(UserWarning, match=f"{damaged} is damaged"):
        again = api.resume(spark.sql(QUERIES["summary"]), at=at, keep=True)
    assert rows(again) == want
    assert {name: os.stat(f"{at}/{name}").st_mtime_ns for name in times} == times
    with open(f"{at}/{list(Job(at).cuts().values())[-1].parts[0].file}", "r+b") as file:
        file.truncate(10)  # after it was checked: the task that reads it says so
    with pytest.raises(Exception, match="do not match the name"):
        again.collect()


def test_an_input_that_changes_during_the_run_is_an_error(spark, tables, tmp_path, everything, monkeypatch):
    at, data, real = str(tmp_path / "j"), str(tmp_path / "t"), runs.Engine.save
    spark.range(100).selectExpr("id", "id % 7 AS k").coalesce(1).write.parquet(data)
    file = next(f"{data}/{n}" for n in os.listdir(data) if n.endswith(".parquet"))

    def someone_writes(self, stage, cut):
        saved = real(self, stage, cut)
        os.utime(file, ns=(1, 1))
        return saved

    monkeypatch.setattr(runs.Engine, "save", someone_writes)
    with pytest.raises(UsageError, match="changed while the query ran"):
        api.resume(spark.read.parquet(data).groupBy("k").count(), at=at, keep=True)
    assert Job(at).cuts() == {}


def test_bad_calls(spark, tables, tmp_path):
    (tmp_path / "file").write_text("")
    df = spark.sql(QUERIES["summary"])
    with pytest.raises(UsageError, match="can't be written"):
        api.resume(df, at=str(tmp_path / "file" / "j"))
    with pytest.raises(UsageError, match="streaming"):
        api.resume(spark.readStream.format("rate").load(), at=str(tmp_path / "j"))
    with pytest.raises(UsageError, match="not a size"):
        api.resume(df, at=str(tmp_path / "j"), budget="much")
    for budget in (True, -1, 1.5, [], "2 GB or so"):
        with pytest.raises(UsageError, match="not a size"):
            api.resume(df, at=str(tmp_path / "j"), budget=budget)
    for call in (api.explain_resume, lambda x: api.resume(x, at=tmp_path / "j"), lambda x: api.step(x, "a")):
        with pytest.raises(UsageError, match="not a DataFrame"):
            call("SELECT 1")
    with pytest.raises(UsageError, match="nowhere://"):
        api.resume(df, at="nowhere://bucket/j")
    assert "ceiling" in api.explain_resume(df, at=tmp_path / "new", budget=2e9)
    assert not (tmp_path / "new").exists()
    with pytest.raises(UsageError, match="step name"):
        api.step(df, "a/b")


def test_steps(spark, tables, tmp_path):
    joined = api.step(spark.table("orders").join(spark.table("customer"), "custkey"), "joined")
    df = joined.groupBy("nationkey").count()
    at = str(tmp_path / "j")
    want = rows(spark.table("orders").join(spark.table("customer"), "custkey").groupBy("nationkey").count())
    for _ in range(2):
        assert rows(api.resume(df, at=at, budget=0, keep=True)) == want
    assert [record["step"] for record in Job(at).records()[-1]["stages"] if record["reused"]] == ["joined"]
    by_hand = str(tmp_path / "k")
    for _ in range(2):
        now = api.step(spark.table("orders").groupBy("custkey").count(), "counted", at=by_hand, keep=True)
        assert rows(now) == rows(spark.table("orders").groupBy("custkey").count())
        assert now.columns == ["custkey", "count"]
    kinds = [record["kind"] for record in Job(by_hand).records()]
    assert kinds.count("saved") == 1


def test_explain_and_command_line(spark, tables, tmp_path, everything, capsys):
    from kedge.cli import main

    at, df = str(tmp_path / "j"), spark.sql(QUERIES["nations"])
    told = api.explain_resume(df, at=at)
    assert "estimated" in told
    assert "ceiling" in told
    assert "First run" in told
    api.resume(df, at=at, keep=True)
    assert "measured" in api.explain_resume(df, at=at)
    assert main(["resume", "ls", at, "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed
    assert all(row["complete"] and row["bytes"] for row in listed)
    assert main(["resume", "show", at, "--svg", str(tmp_path / "plan.svg")]) == 0
    assert "worst case" in capsys.readouterr().out
    assert (tmp_path / "plan.svg").read_text().startswith("<svg")
    assert main(["resume", "clean", at]) == 0
    assert parts_of(at) == []
    assert main(["resume", "ls", str(tmp_path / "nowhere")]) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rows(api.resume(df, at=at)) == rows(df)
