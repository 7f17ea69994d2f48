"""`kedge.resume`, `kedge.explain_resume` and `kedge.step`: a query that survives the death of its driver.

A job is a directory or a prefix of an object store. Results are those of the plain query: what can't be saved is
computed, and where nothing can be saved the query runs plainly, with a warning.
"""

from __future__ import annotations

import atexit
import os
import sys
import warnings
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from kedge.errors import KedgeError, UnavailableError, UsageError
from kedge.spark.resume import report
from kedge.spark.resume.job import Job
from kedge.spark.resume.model import Wish, parse_budget
from kedge.spark.resume.plan import MARK, classic
from kedge.spark.resume.run import Run

OVERHEAD = 0.05
Place = str | os.PathLike[str]


def resume(
    df: DataFrame,
    *,
    at: Place,
    budget: str | float | None = None,
    overhead: float = OVERHEAD,
    failures_per_hour: float | None = None,
    pin: bool = False,
    keep: bool = False,
) -> DataFrame:
    """The same rows as `df`, by way of what an earlier run of this job has saved in `at`.

    Stages worth their bytes are saved, partition by partition, while they run: inside this call. What is above them
    runs when the DataFrame is used. `budget` bounds the bytes, `overhead` the time that saving may take. `pin` keeps
    to the first run's rows where an expression is not deterministic, and to its clock. What is saved goes when the
    process ends without an error; `keep=True` keeps it.

    >>> report = kedge.resume(df, at="jobs/monthly", budget="2 GB")          # doctest: +SKIP
    """
    classic(df)
    wish = Wish(parse_budget(budget), overhead, failures_per_hour, pin)
    job = Job(at)
    job.claim()
    try:
        result = Run(df, job, wish).go()
    except UnavailableError as error:
        warnings.warn(f"The query runs plainly, nothing more of it is saved: {error}", stacklevel=2)
        return df
    if not keep:
        _clean_at_exit(job, df)
    return result


def explain_resume(
    df: DataFrame,
    *,
    at: Place | None = None,
    budget: str | float | None = None,
    overhead: float = OVERHEAD,
    failures_per_hour: float | None = None,
    pin: bool = False,
) -> str:
    """The plan as a tree: what would be saved, its bytes, the predicted worst and expected time, and the ceiling."""
    classic(df)
    wish = Wish(parse_budget(budget), overhead, failures_per_hour, pin)
    run = Run(df, Job(at) if at is not None else None, wish)
    run.choose()
    return report.tree(run.described())


def step(df: DataFrame, name: str, *, at: Place | None = None, keep: bool = False) -> DataFrame:
    """Mark a point of a query by hand.

    Without `at`: `kedge.resume` of a query above this point always saves it. With `at` it is saved now, through
    public DataFrame calls only, so that this form works on Spark Connect as well; another process that makes the
    same step over the same files reads it back.
    """
    if not name or not all(c.isalnum() or c in "-_." for c in name):
        raise UsageError(f"step name {name!r}: use letters, digits, '-', '_' and '.'.")
    if not hasattr(df, "isStreaming"):
        raise UsageError(f"A {type(df).__name__} is not a DataFrame of Spark: pass a pyspark.sql.DataFrame.")
    if df.isStreaming:
        raise UsageError("This is a streaming DataFrame; kedge.step is for batch queries, use a run for streams.")
    if at is None:
        return df.observe(MARK + name, F.count(F.lit(1)).alias("rows"))
    from kedge.spark.resume.steps import saved_step

    job = Job(at)
    try:
        result = saved_step(df, name, job)
    except UnavailableError as error:
        warnings.warn(f"step {name} is not saved, the query goes on without it: {error}", stacklevel=2)
        return df
    if not keep:
        _clean_at_exit(job, df)
    return result


def _clean_at_exit(job: Job, df: DataFrame) -> None:
    """Remove what is saved when the process ends well; after an error or a kill the next run needs it."""
    since = _last_job(df)[0]

    def clean() -> None:
        failed = getattr(sys, "last_value", None) is not None or getattr(sys, "last_exc", None) is not None
        number, status = _last_job(df)
        if failed or (number > since and status == "FAILED"):
            return
        try:
            job.clean()
        except KedgeError:
            return  # another driver has the job now

    atexit.register(clean)


def _last_job(df: DataFrame) -> tuple[int, str]:
    """Number and state of the newest job of Spark; (-1, "") where nobody can say (Connect, or Spark has stopped)."""
    try:
        context: Any = df.sparkSession.sparkContext
        found = context._jsc.sc().statusStore().jobsList(None)
        newest = max((found.apply(i) for i in range(min(found.size(), 20))), key=lambda j: int(j.jobId()))
        return int(newest.jobId()), str(newest.status().toString())
    except Exception:  # no public interface, and asked only to keep what a failed program may need
        return -1, ""
