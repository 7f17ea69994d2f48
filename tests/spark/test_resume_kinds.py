"""What may stand in a plan: functions, rows of the driver, subqueries, partitions, and what is not deterministic."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.functions import pandas_udf, udtf
from pyspark.sql.types import LongType

from kedge.errors import UsageError
from kedge.spark.resume import api, clock
from kedge.spark.resume.job import Job
from kedge.spark.resume.plan import settings

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("everything")]


@pytest.fixture(scope="module")
def table(spark, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("plans") / "t")
    spark.range(0, 3_000, 1, 4).selectExpr("id", "id % 17 AS k", "id * 1.5 AS v").write.parquet(path)
    return path


def rows(df):
    return sorted(map(tuple, df.collect()), key=repr)


def resumed(df, at):
    """Twice, the second time quietly and from files; the rows, and how many stages were reused whole."""
    first = rows(api.resume(df, at=at, keep=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert rows(api.resume(df, at=at, keep=True)) == first
    run = Job(at).records()[-1]
    return first, sum(stage["reused"] == stage["partitions"] > 0 for stage in run["stages"])


@udtf(returnType="a bigint")
class Twice:
    def eval(self, x: int):
        yield (x,)
        yield (x,)


def test_python_functions_of_every_kind(spark, table, tmp_path):
    df = spark.read.parquet(table)
    spark.udtf.register("twice", Twice)
    df.createOrReplaceTempView("plans_t")

    @pandas_udf("double")
    def half(v: pd.Series) -> pd.Series:
        return v / 2

    @pandas_udf("double")
    def spread(v: pd.Series) -> float:
        return float(v.max() - v.min())

    def batches(frames):
        for frame in frames:
            yield frame.assign(v=frame.v + 1)

    def tables(frames):
        yield from frames

    kinds = {
        "scalar": df.groupBy(F.udf(lambda x: x % 3, LongType())("id").alias("m")).count(),
        "pandas": df.select("k", half("v").alias("h")).groupBy("k").agg(F.sum("h")),
        "grouped": df.groupBy("k").agg(spread("v")),
        "map-pandas": df.mapInPandas(batches, df.schema).groupBy("k").agg(F.sum("v")),
        "map-arrow": df.mapInArrow(tables, df.schema).groupBy("k").count(),
        "apply": df.groupBy("k").applyInPandas(lambda f: f.head(1)[["k"]], "k bigint").groupBy("k").count(),
        "table function": spark.sql("SELECT a, count(*) FROM plans_t, LATERAL twice(k) GROUP BY a"),
    }
    for name, query in kinds.items():
        got, reused = resumed(query, str(tmp_path / name.replace(" ", "-")))
        assert got == rows(query), name
        assert reused, name


def test_another_function_is_another_query(spark, table, tmp_path):
    df, at = spark.read.parquet(table), str(tmp_path / "j")

    def query(by):
        return df.groupBy(F.udf(lambda x: x % by, LongType())("id").alias("m")).count()

    api.resume(query(3), at=at, keep=True)
    with pytest.warns(UserWarning, match="the query changed"):
        got = rows(api.resume(query(4), at=at, keep=True))
    assert got == rows(query(4))
    rates = spark.sparkContext.broadcast({1: 2})
    shared = df.groupBy(F.udf(lambda x: rates.value.get(x, 0), LongType())("id").alias("m")).count()
    assert "broadcast variable" in api.explain_resume(shared)
    assert rows(api.resume(shared, at=str(tmp_path / "b"), keep=True)) == rows(shared)


def test_rows_of_the_driver_count_by_content(spark, table, tmp_path):
    df, at = spark.read.parquet(table), str(tmp_path / "j")

    def query(name):
        names = spark.createDataFrame([(1, name), (2, "b")], ["k", "name"])
        return df.join(names, "k").groupBy("name").count()

    got, reused = resumed(query("a"), at)
    assert got == rows(query("a"))
    assert reused
    with pytest.warns(UserWarning, match="is not reused"):
        assert rows(api.resume(query("x"), at=at, keep=True)) == rows(query("x"))


def test_an_rdd_of_unknown_rows_is_not_saved_and_the_rest_is(spark, table, tmp_path):
    lines = spark.sparkContext.textFile(f"{table}/*").map(lambda _: (1,)).toDF(["k"])
    df = spark.read.parquet(table).groupBy("k").count().join(lines.groupBy("k").agg(F.count("*").alias("n")), "k")
    got, reused = resumed(df, str(tmp_path / "j"))
    assert got == rows(df)
    assert reused
    assert "no identity" in api.explain_resume(df)


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_subqueries_unions_caches_and_windows_with_and_without_adaptive_execution(spark, table, tmp_path, adaptive):
    spark.read.parquet(table).createOrReplaceTempView("plans_t")
    texts = {
        "scalar": "SELECT k, sum(v) FROM plans_t WHERE v > (SELECT avg(v) FROM plans_t) GROUP BY k",
        "exists": "SELECT count(*) FROM plans_t a WHERE EXISTS (SELECT 1 FROM plans_t b WHERE b.id = a.id + 5)",
        "in": "SELECT k, count(*) FROM plans_t WHERE id IN (SELECT max(id) FROM plans_t GROUP BY k) GROUP BY k",
        "union": "SELECT k, count(*) FROM (SELECT k FROM plans_t UNION ALL SELECT id FROM plans_t) GROUP BY k",
        "rank": "SELECT * FROM (SELECT *, rank() OVER (PARTITION BY k ORDER BY v) r FROM plans_t) WHERE r < 3",
        "self": "WITH s AS (SELECT k, sum(v) s FROM plans_t GROUP BY k) SELECT * FROM s a JOIN s b ON a.k = b.k",
        "grouping": "SELECT k, id % 2 m, count(DISTINCT v) FROM plans_t GROUP BY CUBE (k, id % 2)",
        "empty": "SELECT k, count(*) FROM plans_t WHERE v < 0 GROUP BY k",
    }
    with settings(spark, {"spark.sql.adaptive.enabled": adaptive}):
        for name, text in texts.items():
            got, _ = resumed(spark.sql(text), str(tmp_path / name))
            assert got == rows(spark.sql(text)), name


def test_partitions_that_the_query_does_not_read_may_change(spark, tmp_path):
    path, at = str(tmp_path / "t"), str(tmp_path / "j")
    spark.range(100).selectExpr("id", "id % 3 AS month").write.partitionBy("month").parquet(path)

    def query():
        return spark.read.parquet(path).where("month = 1").groupBy("id").count()

    api.resume(query(), at=at, keep=True)
    spark.range(5).selectExpr("id", "2L AS month").write.mode("append").partitionBy("month").parquet(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        api.resume(query(), at=at, keep=True)
    spark.range(5).selectExpr("id", "1L AS month").write.mode("append").partitionBy("month").parquet(path)
    with pytest.warns(UserWarning, match="is new"):
        assert rows(api.resume(query(), at=at, keep=True)) == rows(query())


@pytest.mark.parametrize("expression", ["rand()", "uuid()", "dice()", "monotonically_increasing_id()"])
def test_pinned_rows_stay_those_of_the_first_run(spark, table, tmp_path, expression):
    import random

    spark.udf.register("dice", F.udf(random.random, "double").asNondeterministic())
    at = str(tmp_path / "j")

    def query():
        drawn = spark.read.parquet(table).selectExpr("k", f"{expression} AS r")
        return drawn.repartition(3, "k").groupBy("r", "k").count()

    with pytest.raises(UsageError, match="pin=True"):
        api.resume(query(), at=at)
    first = rows(api.resume(query(), at=at, pin=True, keep=True))
    assert rows(api.resume(query(), at=at, pin=True, keep=True)) == first
    job = Job(at)
    for cut in job.cuts().values():
        job.store.delete(cut.parts[0].file)  # neither the pinned stage nor those above it are complete
    second = api.resume(query(), at=at, pin=True, keep=True)
    whys = [record["why"] for record in Job(at).records() if record["kind"] == "withdrawn"]
    assert any("pinned" in why for why in whys)
    again = rows(second)
    assert sum(row[-1] for row in again) == 3_000
    assert rows(api.resume(query(), at=at, pin=True, keep=True)) == again
    if expression in ("rand()", "uuid()"):  # drawn anew, as the others may be
        assert again != first


def test_the_clock_can_be_pinned_to_the_first_run(spark, table, tmp_path):
    spark.read.parquet(table).createOrReplaceTempView("plans_t")
    at = str(tmp_path / "j")
    text = """SELECT k, max(now()) AS t, max(localtimestamp()) AS l, (SELECT max(current_timestamp()) FROM plans_t) AS s
              FROM plans_t WHERE current_date() > DATE'2020-01-01' GROUP BY k"""
    with pytest.raises(UsageError, match=r"reads the clock.*pin=True"):
        api.resume(spark.sql(text), at=at)
    got, reused = [], 0
    for _ in range(2):
        got.append(rows(api.resume(spark.sql(text), at=at, pin=True, keep=True)))
        reused = sum(stage["reused"] for stage in Job(at).records()[-1]["stages"])
    assert got[0] == got[1]
    assert reused
    Job(at).claim()
    job = Job(at)
    job.claim()
    job.clean()
    assert rows(api.resume(spark.sql(text), at=at, pin=True, keep=True)) != got[0]  # another month


def test_a_stopped_clock_shows_one_moment_in_every_form(spark):
    zone = {"spark.sql.session.timeZone": "Asia/Tokyo"}
    text = "SELECT current_timestamp() AS a, now() AS b, current_date() AS c, localtimestamp() AS d"
    with settings(spark, zone):
        row = clock.stopped(spark.sql(text), 1_600_000_000_123_456).selectExpr(*(f"string({x})" for x in "abcd"))
        assert list(row.collect()[0]) == [
            "2020-09-13 21:26:40.123456",
            "2020-09-13 21:26:40.123456",
            "2020-09-13",
            "2020-09-13 21:26:40.123456",
        ]


def test_a_step_of_rows_that_changed_is_not_reused(spark, tmp_path):
    path, at = str(tmp_path / "t"), str(tmp_path / "j")

    def step():
        return rows(api.step(spark.read.parquet(path), "read", at=at, keep=True))

    spark.range(10).coalesce(1).write.parquet(path)
    assert len(step()) == 10
    file = next(Path(path).glob("*.parquet"))
    replaced = str(tmp_path / "u")
    spark.range(7).coalesce(1).write.parquet(replaced)
    os.replace(next(Path(replaced).glob("*.parquet")), file)  # the same name, other rows
    Path(f"{file.parent}/.{file.name}.crc").unlink(missing_ok=True)
    with pytest.warns(UserWarning, match="step read is not reused: .* changed"):
        assert len(step()) == 7
    local = [
        rows(api.step(spark.createDataFrame([(x,)], ["x"]), "local", at=f"{at}2", keep=True)) for x in (1, 1, 2)
    ]
    assert local == [[(1,)], [(1,)], [(2,)]]


def test_a_random_step_keeps_its_rows(spark, table, tmp_path):
    def step():
        drawn = spark.read.parquet(table).select("k", F.rand())
        return sorted(tuple(row) for row in api.step(drawn, "drawn", at=tmp_path / "j", keep=True).collect())

    with pytest.warns(UserWarning, match="not deterministic"):
        first = step()
    assert step() == first


CONNECT = """
import sys, warnings
from kedge.spark import session as sessions
sessions._prepare_environment("auto")
from pyspark.sql import SparkSession
import kedge
from kedge.errors import UsageError
spark = SparkSession.builder.remote("local[2]").getOrCreate()
table, at = sys.argv[1:]
df = spark.read.parquet(table).groupBy("k").count()
want = sorted(df.collect())
assert sorted(kedge.step(df, "joined").collect()) == want
for call in (lambda: kedge.resume(df, at=at), lambda: kedge.explain_resume(df, at=at)):
    try:
        call()
        raise SystemExit("it was not refused")
    except UsageError as error:
        assert "kedge.step" in str(error), error
assert sorted(kedge.step(df, "counted", at=at, keep=True).collect()) == want
local = spark.createDataFrame([(int(sys.argv[1] != ""), "a")], ["x", "y"])
assert kedge.step(local, "local", at=at, keep=True).collect() == local.collect()
spark.stop()
"""


def test_steps_on_spark_connect(table, tmp_path):
    pytest.importorskip("grpc")
    at, kinds = str(tmp_path / "j"), []
    for _ in range(2):
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))
        }
        done = subprocess.run(
            [sys.executable, "-c", CONNECT, table, at], env=environment, capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, done.stderr[-2000:]
        kinds.append([record["kind"] for record in Job(at).records()].count("saved"))
    assert kinds == [2, 2]  # two steps, saved by the first process only


def test_partitions_of_another_layout_are_not_mixed(spark, table, tmp_path):
    """The number of cores and the options of files decide which rows a partition holds."""
    at = str(tmp_path / "j")

    def query():
        return spark.read.parquet(table).groupBy("k").agg(F.sum("v"), F.count("*"))

    want = rows(query())
    for size in ("6000", "5000"):
        with settings(spark, {"spark.sql.files.maxPartitionBytes": size, "spark.sql.files.openCostInBytes": "0"}):
            assert rows(api.resume(query(), at=at, keep=True)) == want
        job = Job(at)
        for cut in job.cuts().values():
            for part in list(cut.parts.values())[::2]:
                job.store.delete(part.file)
    whys = [record["why"] for record in Job(at).records() if record["kind"] == "withdrawn"]
    assert any("can't be told apart" in why for why in whys)


@pytest.mark.parametrize("joined", [False, True])
def test_a_long_stage_is_cut_into_waves_and_the_same_ones_again(spark, table, tmp_path, monkeypatch, joined):
    from pyspark.sql import functions as F  # noqa: N812

    from kedge.spark.resume import layout

    def query():
        found = spark.read.parquet(table)
        if joined:  # every task has all of the other side: files alone say what it reads
            found = found.join(F.broadcast(spark.range(5).withColumnRenamed("id", "k")), "k")
        return found.groupBy("k").count()

    at, want = str(tmp_path / "j"), rows(query())
    monkeypatch.setattr(layout, "WAVE_US", 1)
    monkeypatch.setattr(layout, "_SPLIT_BYTES_MIN", 1 << 10)
    seen = []
    for _ in range(3):  # the first run learns, the second cuts, the third has to finish what the second left
        assert rows(api.resume(query(), at=at, keep=True)) == want
        job = Job(at)
        first = max(job.cuts().values(), key=lambda cut: cut.partitions)
        seen.append((first.partitions, first.attempt))
        if len(seen) == 1:
            job.claim()
            job.clean()
        else:
            for cut in job.cuts().values():
                job.store.delete(cut.parts[0].file)
    assert seen[1][0] > seen[0][0]
    assert seen[2] == seen[1]
