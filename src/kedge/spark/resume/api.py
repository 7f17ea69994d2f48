"""`kedge.resume`, `kedge.explain_resume` and `kedge.step`: a query that survives the death of its driver.

A job is a directory. Every run claims it, withdraws what no longer belongs to the query and says why, chooses what
to save, runs those stages, and gives back a DataFrame of the rest. Results are those of the plain query.
"""

from __future__ import annotations

import atexit
import sys
import warnings
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from kedge.errors import KedgeError, UsageError
from kedge.spark.resume import identity as identities
from kedge.spark.resume import report
from kedge.spark.resume.engine import Engine, unsaveable
from kedge.spark.resume.job import Cut, Job
from kedge.spark.resume.learn import Learner
from kedge.spark.resume.model import Stage, measure, parse_budget, select
from kedge.spark.resume.plan import MARK, Planned

OVERHEAD = 0.05


def resume(
    df: DataFrame,
    *,
    at: str,
    budget: str | int | None = None,
    overhead: float = OVERHEAD,
    failures_per_hour: float | None = None,
    keep: bool = False,
) -> DataFrame:
    """The same rows as `df`, by way of what an earlier run of this job has saved in the directory `at`.

    Stages worth their bytes are saved, partition by partition, while they run: inside this call. What is above them
    runs when the DataFrame is used. `budget` bounds the bytes, `overhead` the time that saving may take. What is
    saved goes when the process ends without an error; `keep=True` keeps it.

    >>> report = kedge.resume(df, at="jobs/monthly", budget="2 GB")          # doctest: +SKIP
    """
    run = _Run(df, Job(at), parse_budget(budget), overhead, failures_per_hour)
    result = run.go()
    if not keep:
        _clean_at_exit(run.job)
    return result


def explain_resume(
    df: DataFrame,
    *,
    at: str | None = None,
    budget: str | int | None = None,
    overhead: float = OVERHEAD,
    failures_per_hour: float | None = None,
) -> str:
    """The plan as a tree: what would be saved, its bytes, the predicted worst time, and the plan's ceiling."""
    run = _Run(df, Job(at) if at is not None else None, parse_budget(budget), overhead, failures_per_hour)
    run.choose()
    return report.tree(run.described())


def step(df: DataFrame, name: str, *, at: str | None = None, keep: bool = False) -> DataFrame:
    """Mark a point of a query by hand.

    Without `at`: `kedge.resume` of a query above this point always saves it. With `at` it is saved now, through
    public DataFrame calls only, so that this form works on Spark Connect as well; another process that makes the
    same step over the same files reads it back.
    """
    if not name or not all(c.isalnum() or c in "-_." for c in name):
        raise UsageError(f"step name {name!r}: use letters, digits, '-', '_' and '.'.")
    if df.isStreaming:
        raise UsageError("This is a streaming DataFrame; kedge.step is for batch queries, use a run for streams.")
    if at is None:
        return df.observe(MARK + name, F.count(F.lit(1)).alias("rows"))
    from kedge.spark.resume.steps import saved_step

    job = Job(at)
    result = saved_step(df, name, job)
    if not keep:
        _clean_at_exit(job)
    return result


class _Run:
    """One call of resume."""

    def __init__(
        self, df: DataFrame, job: Job | None, budget: int | None, overhead: float, failures_per_hour: float | None
    ) -> None:
        self.planned = Planned(df)
        self._job, self._budget, self._overhead, self._rate = job, budget, overhead, failures_per_hour
        self.cores = df.sparkSession.sparkContext.defaultParallelism
        self.files = identities.Files(df.sparkSession)
        self.stages = self._stages()
        self.known: dict[str, Cut] = {}
        self.selection: Any = None
        self.said: list[str] = []

    @property
    def job(self) -> Job:
        assert self._job is not None
        return self._job

    def go(self) -> DataFrame:
        clock = self.job.clock
        self.job.claim()
        began = clock.monotonic_ns()
        self.choose()
        self._check_stable()
        self._withdraw_strangers()
        self.job.add("plan", **self.described())
        engine, learner = (
            Engine(self.planned, self.job, self.stages),
            Learner(self.planned, self.stages, self.cores),
        )
        for stage in self._needed():
            cut = self.known.get(stage.identity.id)
            if id(stage.node) in engine.scans:
                continue
            if cut is not None and cut.done:
                stage.partitions = stage.reused = cut.partitions
                engine.use(stage, cut)
            elif stage.chosen or (cut is not None and cut.parts and not stage.refused):
                before = clock.monotonic_ns()
                saved = engine.save(stage, cut)
                self._check_inputs()
                if saved is not None and not stage.reused:
                    learner.saved(stage, saved, (clock.monotonic_ns() - before) // 1000)
        result = engine.result()
        self._check_inputs()
        learner.rest(engine)
        if learner.found:
            self.job.add("learned", stages=learner.found)
        self.job.add("run", seconds=(clock.monotonic_ns() - began) / 1e9, **self.described())
        return result

    def choose(self) -> None:
        """Give stages their figures and mark those to save."""
        learned = {}
        if self._job is not None:
            self.known, learned = self._job.cuts(), self._job.learned()
        measure(self.stages, learned, self.cores)
        for stage in self.stages:
            cut = self.known.get(stage.identity.id)
            if cut is not None:
                stage.reused, stage.partitions = len(cut.parts), cut.partitions
        self.selection = select(self.stages, self.cores, self._budget, self._overhead, self._rate)
        if not any(stage.learned for stage in self.stages):
            self.said.append("First run: times and sizes are estimates; this run measures them for the next one.")

    def described(self) -> dict[str, Any]:
        """For people and for the ledger."""
        chosen = self.selection
        return {
            "stages": [stage.to_json() for stage in self.stages],
            "end_us": chosen.end_us,
            "worst_us": chosen.worst_us,
            "expected_us": chosen.expected_us,
            "floor_us": chosen.floor_us,
            "budget_bytes": self._budget,
            "said": self.said,
        }

    def _stages(self) -> list[Stage]:
        cuts = self.planned.cuts()
        at = {id(node): index for index, node in enumerate(cuts)}
        stages: list[Stage] = []
        for node in cuts:
            inputs: list[int] = []
            stack = list(node.children)
            while stack:
                below = stack.pop()
                if id(below) in at:
                    inputs.append(at[id(below)])
                else:
                    stack.extend(below.children)
            found = identities.of(node, self.files)
            refused = unsaveable(node.jvm) or (found.unknown and f"its input has no identity ({found.unknown})")
            refused = refused or (found.unstable and f"it is not deterministic ({found.unstable})")
            whole = identities.order_matters(node)
            stages.append(Stage(node, found, sorted(inputs), node.label, node.step, whole, refused))
        return stages

    def _needed(self) -> list[Stage]:
        """The stages that this run reads from files or has to run, inputs first."""
        wanted: set[int] = set()
        stack = [len(self.stages) - 1]
        while stack:
            index = stack.pop()
            cut = self.known.get(self.stages[index].identity.id)
            if index not in wanted:
                wanted.add(index)
                if cut is None or not cut.done:
                    stack.extend(self.stages[index].inputs)
        return [self.stages[index] for index in sorted(wanted)]

    def _check_stable(self) -> None:
        clock = self.planned.clock
        if clock:
            raise UsageError(
                f"The query reads the clock ({clock}), so a rerun would be another query. Pass the time as a "
                "literal that your program keeps, or save that part with kedge.step(df, name, at=...).",
                code="nondeterministic",
            )
        unstable = [stage for stage in self.stages if stage.identity.unstable]
        below = [stage for stage in unstable if any(self.stages.index(stage) in s.inputs for s in self.stages)]
        if below:
            raise UsageError(
                f"{below[0].label} is not deterministic: {below[0].identity.unstable}. A rerun would mix its rows "
                "with others. Save it first with kedge.step(df, name, at=...), or remove the expression.",
                code="nondeterministic",
            )

    def _withdraw_strangers(self) -> None:
        ids = {stage.identity.id for stage in self.stages}
        for cut in list(self.known.values()):
            if cut.id not in ids:
                same = [s.identity for s in self.stages if s.identity.plan == cut.record["plan"]]
                near = same or [s.identity for s in self.stages if s.label == cut.label]
                why = identities.differences(cut.record, near[0]) if near else "the query changed"
                self.said.append(f"{cut.label} is not reused: {why}.")
                warnings.warn(f"{self.job.at}: {self.said[-1]}", stacklevel=4)
                self.job.withdraw(cut, why)
                del self.known[cut.id]
        for stage in self.stages:
            if stage.refused and not stage.identity.unstable:
                self.said.append(f"{stage.label} is not saved: {stage.refused}.")

    def _check_inputs(self) -> None:
        changed = self.files.changed()
        if changed:
            for cut in self.job.cuts().values():
                if set(changed) & set(cut.record["inputs"]):
                    self.job.withdraw(cut, f"{changed[0]} changed while it was read")
            raise UsageError(
                f"{changed[0]} changed while the query ran: its rows can't be trusted. Read it again and resume.",
                code="input-changed",
            )


def _clean_at_exit(job: Job) -> None:
    """Remove what is saved when the process ends well; after an error or a kill the next run needs it."""

    def clean() -> None:
        failed = getattr(sys, "last_value", None) is not None or getattr(sys, "last_exc", None) is not None
        if not failed:
            try:
                job.clean()
            except KedgeError:
                return  # another driver has the job now

    atexit.register(clean)
