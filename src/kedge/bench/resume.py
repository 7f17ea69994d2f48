"""Resuming queries: the paper's table 1 and figures 2 and 3, and what saving by partition buys on Spark.

Written beside the figures: `resume-table1.md`, `resume-figure2-*.svg`, `resume-figure3-*.svg`,
`resume-spark-plans.md` (Spark's own plans, TPC-H too) and `resume-tpch-kills.md`.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kedge.bench import Figure, note
from kedge.bench import _resume_kills as kills
from kedge.bench import _resume_plans as plans
from kedge.bench import _resume_spark as on_spark
from kedge.bench import _resume_tpch as tpch

_SAVED_AS = {
    "sequential": "one thread, one worker; long row-wise operations saved by quarter",
    "parallel4": "in four by MonetDB, as the paper ran it; whole intermediates",
}
PROTECTS = 0.005  # a scheme that takes less than this off the worst case does not protect
QUICK_DATA_MAX = {"sequential": 62, "parallel4": 200}


def run(quick: bool, out: Path) -> list[Figure]:
    """Every aim of issue 6."""
    return [*_on_monetdb(quick, out), *_on_spark(quick, out)]


def _on_monetdb(quick: bool, out: Path) -> list[Figure]:
    rows: list[plans.Row] = []
    for kind in _SAVED_AS:
        for query, dag in plans.load(kind).items():
            if quick and len(dag.data) > QUICK_DATA_MAX[kind]:
                continue
            method, seconds = ("primal-dual", 1.0) if quick else ("auto", 5.0)
            with _silent():
                rows.append(plans.row(kind, query, dag, method, seconds, whole=not quick))
            note(f"resume: MonetDB {kind}, query {query}")
    (out / "resume-table1.md").write_text(plans.table(rows))
    if not quick:
        plans.pictures(rows, out)
    figures: list[Figure] = []
    for kind, how in _SAVED_AS.items():
        mine = [r for r in rows if r.plan == kind]
        size = f"{how}; {'the smaller ' if quick else ''}{len(mine)} plans"
        ratios = [r.finer_as_halfway / r.halfway[1] for r in mine if r.halfway[0] >= PROTECTS and r.halfway[1]]
        median = statistics.median(ratios)
        what = f"MonetDB {kind}: our bytes for the halfway scheme's true protection, of its bytes ({size})"
        figures.append(Figure(what, median, "median ratio", "<= 0.20", median <= 0.20))
        near = [r.finer_near_ceiling <= 0.25 * r.everything[1] for r in mine]
        share = sum(near) / len(near)
        what = f"MonetDB {kind}: plans with 90% of their ceiling at <= 25% of all bytes ({size})"
        figures.append(Figure(what, share, "share of plans", ">= 0.80", share >= 0.80))
    if not quick:
        mine = [r for r in rows if r.plan == "sequential" and r.halfway[0] >= PROTECTS and r.halfway[1]]
        whole = statistics.median(r.ours_as_halfway / r.halfway[1] for r in mine)
        what = "MonetDB sequential: bytes for the halfway scheme's protection with whole intermediates, the optimum"
        figures.append(Figure(what, whole, "median ratio"))
    top = max(r.single[0] for r in rows)
    what = "largest reduction of one checkpoint on any plan (the paper prints 29.8%)"
    figures.append(Figure(what, 100 * top, "%", "<= 25, its proven limit", top <= 0.25))
    return figures


@contextmanager
def _silent() -> Generator[None]:
    """HiGHS has remarks for the standard output, where the figures go."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def _on_spark(quick: bool, out: Path) -> list[Figure]:
    try:
        from kedge.spark.session import session
    except ImportError:
        return [
            Figure(what, None, "", aim, None, "pyspark is not installed: install kedge[spark]")
            for what, aim in _SPARK_AIMS
        ]
    spark = session("kedge-bench-resume")
    folder = Path(tempfile.mkdtemp(prefix="kedge-resume-"))
    rows = 2_400_000 if quick else 20_000_000
    try:
        on_spark.tables(spark, folder / "tables", rows, 16)
        names = ("scan",) if quick else tuple(on_spark.QUERIES)
        measured = [on_spark.measure(spark, name, folder / f"job-{name}", 2 if quick else 5) for name in names]
        texts = {} if quick else tpch.make(folder / "tpch", 0.1)
        own = [] if quick else on_spark.own_plans(spark, folder, texts)
        dead = [] if quick else _killed_on_tpch(spark, folder, texts)
        again = [] if quick else [on_spark.killed(spark, folder / "tables", folder / "job-killed", 8)]
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
    if own:
        (out / "resume-spark-plans.md").write_text(on_spark.plan_table(own))
        (out / "resume-tpch-kills.md").write_text(kills.table(dead))
    for m in measured:
        note(f"resume: {m}")
    overhead = statistics.median(m.resume_s / m.plain_s - 1 for m in measured)
    gain = statistics.median(m.parts_less / max(m.single_less, 0.01) for m in measured)
    saved = sum(m.saved for m in measured)
    size = f"{', '.join(names)} over {rows:,} rows"
    return [
        Figure(
            f"Spark: overhead without a failure, default budget ({size}; {saved} stages saved)",
            overhead, "share", "<= 0.05", overhead <= 0.05,
        ),
        Figure(
            f"Spark: measured reduction by partition over single checkpoint ({size})",
            gain, "times", ">= 2", gain >= 2 and all(m.same_rows for m in measured),
        ),
        *(
            Figure(
                f"Spark: rerun after SIGKILL at 8 of 16 partitions, of a plain run ({rows:,} rows)",
                again_s / plain_s if same else None, "ratio",
            )
            for same, again_s, plain_s in again
        ),
        Figure(
            "TPC-H: queries killed at two points that give the same rows", sum(k.same_rows for k in dead) or None,
            "queries", "22", None if quick else sum(k.same_rows for k in dead) == 22,
            "takes minutes: measured without --quick, and tested by `make soak`" if quick else None,
        ),
    ]  # fmt: skip


def _killed_on_tpch(spark: Any, folder: Path, texts: dict[int, str]) -> list[kills.Killed]:
    kills.views(spark, folder / "tpch", tpch.TABLES)
    with kills.Drivers() as drivers:
        return [
            kills.kill_and_resume(
                spark,
                drivers,
                f"TPC-H {query}",
                text,
                (folder / "tpch", tpch.TABLES, folder / f"kill-{query}"),
                (4, 12),
                {},
            )
            for query, text in texts.items()
        ]


_SPARK_AIMS = (
    ("Spark: overhead without a failure, default budget", "<= 0.05"),
    ("Spark: measured reduction by partition over single checkpoint", ">= 2"),
    ("TPC-H: queries killed at two points that give the same rows", "22"),
)
