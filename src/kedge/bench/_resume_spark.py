"""Spark's side of the resume benchmark: queries with long stages, run plainly, with saving, and after a failure.

The failure is played at its worst moment by taking files away: a driver that dies just before a save leaves exactly
the files of the partitions that were finished. Real kills are in tests/spark/test_resume_kills.py, and one here.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kedge.bench._resume_tpch import TABLES
from kedge.resuming import Datum, Operation, Speeds, build, select_checkpoints
from kedge.resuming.pieces import split
from kedge.resuming.schedule import schedule
from kedge.resuming.schemes import halfway, singles

SCAN = """SELECT k % 97 AS g, count(*) AS n, sum(v) AS s,
                 max(sha2(concat(sha2(cast(k AS string), 512), v), 512)) AS h
          FROM facts GROUP BY k % 97 ORDER BY g"""
JOIN = """SELECT d.name, count(*) AS n, sum(f.v) AS s, max(sha2(sha2(cast(f.v AS string), 512), 512)) AS h
          FROM facts f JOIN dims d ON d.k = f.k % 1000 GROUP BY d.name ORDER BY d.name"""
QUERIES = {"scan": SCAN, "join": JOIN}


@dataclass(frozen=True)
class Measured:
    """One query: seconds of each kind of run; `less` is 1 - worst / 2T from measured runs."""

    query: str
    plain_s: float
    resume_s: float
    saved: int
    single_less: float
    parts_less: float
    predicted_less: float
    same_rows: bool


def tables(spark: Any, folder: Path, rows: int, files: int) -> None:
    """The tables of the queries above."""
    facts = spark.range(0, rows, 1, files).selectExpr("id * 7919 % 1000003 AS k", "id % 1000 AS v")
    facts.write.mode("overwrite").parquet(f"{folder}/facts")
    dims = spark.range(0, 1000, 1, 1).selectExpr("id AS k", "concat('d', id % 50) AS name")
    dims.write.mode("overwrite").parquet(f"{folder}/dims")
    views(spark, folder)


def views(spark: Any, folder: Path | str) -> None:
    """Name them for SQL."""
    for name in ("facts", "dims"):
        spark.read.parquet(f"{folder}/{name}").createOrReplaceTempView(name)


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds, and what was returned."""
    began = time.perf_counter()
    got = call()
    return time.perf_counter() - began, got


def measure(spark: Any, query: str, at: Path, repeats: int) -> Measured:
    """Plain and saving runs alternate; then the worst failures of both granularities."""
    from kedge.spark.resume import api

    text = QUERIES[query]

    def plain() -> Any:
        return spark.sql(text).collect()

    def saving() -> Any:
        return api.resume(spark.sql(text), at=str(at), keep=True).collect()

    def protecting() -> Any:
        return api.resume(spark.sql(text), at=str(at), overhead=1.0, keep=True).collect()

    want = plain()
    saving()  # learns; its files must not be reused below
    plains: list[float] = []
    savings: list[float] = []
    same = True
    for _ in range(repeats):
        plains.append(timed(plain)[0])
        shutil.rmtree(at / "parts", ignore_errors=True)
        seconds, got = timed(saving)
        savings.append(seconds)
        same = same and got == want
    total = min(plains)
    run, saved = _last_run(at), len(_complete(at))
    shutil.rmtree(at / "parts", ignore_errors=True)
    protecting()  # may save more, so that there is something to compare
    after_all, got = timed(protecting)
    same = same and got == want
    stage_s = _saved_seconds(at, total)
    last_wave_s, got = _without_last_wave(at, protecting, spark.sparkContext.defaultParallelism)
    same = same and got == want
    # Whole intermediates: a failure just before the stage ends loses all of it.
    single = max(stage_s + total, total + after_all) if stage_s else 2 * total
    parts = max(stage_s + last_wave_s, total + after_all) if stage_s else 2 * total
    predicted = 1 - run["worst_us"] / (2 * run["end_us"]) if run["end_us"] else 0.0
    return Measured(
        query=query,
        plain_s=total,
        resume_s=min(savings),
        saved=saved,
        single_less=1 - single / (2 * total),
        parts_less=1 - parts / (2 * total),
        predicted_less=predicted,
        same_rows=same,
    )


def _last_run(at: Path) -> Mapping[str, Any]:
    from kedge.spark.resume.job import Job

    return [record for record in Job(str(at)).records() if record["kind"] == "run"][-1]


def _complete(at: Path) -> set[str]:
    """The plans of the stages that are saved whole."""
    from kedge.spark.resume.job import Job

    return {cut.record["plan"] for cut in Job(str(at)).cuts().values() if cut.done}


def _saved_seconds(at: Path, total: float) -> float:
    """How long the saved stages run, at most the whole query."""
    from kedge.spark.resume.job import Job

    done, job = _complete(at), Job(str(at))
    return min(total, sum(known[0] for plan, known in job.learned().items() if plan in done) / 1e6)


def _without_last_wave(at: Path, run: Callable[[], Any], cores: int) -> tuple[float, Any]:
    from kedge.spark.resume.job import Job

    job = Job(str(at))
    for cut in job.cuts().values():
        for part in list(cut.parts.values())[-cores:]:
            job.store.delete(part.file)
    return timed(run)


@dataclass(frozen=True)
class PlanRow:
    """One query of Spark's own: reductions and bytes, whole intermediates beside finished partitions."""

    query: str
    end_us: int
    single: tuple[float, int]
    halfway: tuple[float, int]
    parts: tuple[float, int]
    ceiling: float
    measured: int
    stages: int


def plan_row(query: str, run: Mapping[str, Any], cores: int) -> PlanRow:
    """The schemes on the stages that a run recorded."""
    stages = run["stages"]
    data = [Datum(str(i), stage["bytes"], not stage["refused"]) for i, stage in enumerate(stages)]
    operations = [Operation(str(i), s["time_us"], tuple(s["inputs"]), (i,)) for i, s in enumerate(stages)]
    dag, one = build(data, operations, [len(stages) - 1]), Speeds(workers=1)
    end = schedule(dag, speeds=one).end_us
    single, half = singles(dag, one)[:1], halfway(dag, one)
    counts = [min(stages[int(operation.name)]["tasks"], 8) for operation in dag.operations]
    pieces, groups = split(dag, counts, cores)
    parts = select_checkpoints(pieces, speeds=Speeds(workers=cores), groups=groups)
    return PlanRow(
        query=query,
        end_us=end,
        single=(1 - single[0].worst_us / (2 * end), single[0].bytes) if single else (0.0, 0),
        halfway=(1 - half.worst_us / (2 * end), half.bytes),
        parts=(parts.reduction, parts.bytes),
        ceiling=parts.ceiling,
        measured=sum(stage["learned"] for stage in stages),
        stages=len(stages),
    )


def own_plans(spark: Any, folder: Path, tpch: Mapping[int, str]) -> list[PlanRow]:
    """Spark's plans of the queries above and of TPC-H; run twice, so that times are measured."""
    from kedge.spark.resume import api

    queries = QUERIES | {f"TPC-H {number}": text for number, text in tpch.items()}
    for table in TABLES if tpch else ():
        spark.read.parquet(f"{folder}/tpch/{table}").createOrReplaceTempView(table)
    rows: list[PlanRow] = []
    for name, text in queries.items():
        at = folder / f"plan-{name.replace(' ', '-')}"
        for _ in range(2):
            api.resume(spark.sql(text), at=str(at), overhead=0.0, keep=True).collect()
        rows.append(plan_row(name, _last_run(at), spark.sparkContext.defaultParallelism))
    return rows


def plan_table(rows: Sequence[PlanRow]) -> str:
    """Table 1 on Spark's own plans."""
    lines = [
        "| query | T (s) | single (% less) | single (MB) | halfway (% less, true) | halfway (MB) | "
        "by partition (% less) | by partition (MB) | ceiling (%) | stages measured |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        pairs = " | ".join(f"{100 * less:.1f} | {size / 1e6:.3f}" for less, size in (r.single, r.halfway, r.parts))
        lines.append(
            f"| {r.query} | {r.end_us / 1e6:.2f} | {pairs} | {100 * r.ceiling:.1f} | {r.measured} of {r.stages} |"
        )
    return "\n".join(lines) + "\n"


DRIVER = """
import sys
from kedge.bench import _resume_spark as bench
bench.driver(sys.argv[1], sys.argv[2])
"""


def driver(folder: str, at: str) -> None:
    """The process that is killed."""
    from kedge.spark.resume import api
    from kedge.spark.session import session

    spark = session("kedge-bench-killed")
    views(spark, folder)
    api.resume(spark.sql(SCAN), at=at, overhead=1.0, keep=True).collect()


def killed(spark: Any, folder: Path, at: Path, parts: int) -> tuple[bool, float, float]:
    """Kill a driver when it has saved `parts` partitions; (same rows, seconds of the rerun, of a plain run)."""
    from kedge.spark.resume import api

    api.resume(spark.sql(SCAN), at=str(at), overhead=0.0, keep=True).collect()  # learns, saves nothing
    child = subprocess.Popen([sys.executable, "-c", DRIVER, str(folder), str(at)], start_new_session=True)
    while child.poll() is None and len(list(at.glob("parts/*/*/*.parquet"))) < parts:
        time.sleep(0.02)
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    plain_s, want = timed(lambda: spark.sql(SCAN).collect())
    again_s, got = timed(lambda: api.resume(spark.sql(SCAN), at=str(at), overhead=1.0, keep=True).collect())
    return got == want, again_s, plain_s
