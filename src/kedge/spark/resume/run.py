"""One call of `kedge.resume`: claim the job, withdraw what no longer belongs, choose, save, and give back the rest.

Invariants:
- A stage that is not deterministic is never mixed from two attempts: it is refused, or pinned, that is saved whole
  before anything above it. When a pinned stage has to start again, what was saved above it is withdrawn first.
- What was saved by an earlier process is checked before it is used; a damaged file counts as missing.
- Inputs are looked at again after every stage: what was read from a file that changed is withdrawn.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame

from kedge.errors import UsageError
from kedge.spark.resume import clock, identity
from kedge.spark.resume.engine import Engine, unsaveable
from kedge.spark.resume.job import Cut, Job
from kedge.spark.resume.learn import Learner
from kedge.spark.resume.model import Stage, Wish, measure, select
from kedge.spark.resume.parts import damaged
from kedge.spark.resume.plan import Node, Planned


class Run:
    """One call of resume."""

    def __init__(self, df: DataFrame, job: Job | None, wish: Wish) -> None:
        self._job, self._wish, self._df = job, wish, df
        self._reads_clock = clock.read_by(df)
        if self._reads_clock and wish.pin and job is not None:
            df = clock.stopped(df, job.moment_us())
        self.planned = Planned(df)
        self.cores = df.sparkSession.sparkContext.defaultParallelism
        self.files = identity.Files(df.sparkSession)
        self.stages = self._stages()
        self.known: dict[str, Cut] = {}
        self.selection: Any = None
        self.said: list[str] = []

    @property
    def job(self) -> Job:
        """The job of a run that saves; to explain needs none."""
        assert self._job is not None
        return self._job

    def go(self) -> DataFrame:
        """The DataFrame of what is left when the chosen stages are saved."""
        now = self.job.clock.monotonic_ns
        began = now()
        self.choose()
        self._check_stable()
        self._withdraw_strangers()
        self._withdraw_damaged()
        self.job.add("plan", **self.described())
        engine = Engine(self.planned, self.job, self.stages)
        learner = Learner(self.planned, self.stages, self.cores)
        for stage in self._needed():
            cut = self.known.get(stage.identity.id)
            if id(stage.node) in engine.scans:
                continue
            if cut is not None and cut.done:
                stage.partitions = stage.reused = cut.partitions
                engine.use(stage, cut)
            elif stage.chosen or (cut is not None and cut.parts and not stage.refused):
                if stage.pinned:
                    self._withdraw_above(stage)
                before = now()
                saved = engine.save(stage, cut)
                self._check_inputs()
                if saved is not None and not stage.reused:
                    learner.saved(stage, saved, (now() - before) // 1000)
        result = engine.result()
        self._check_inputs()
        learner.rest(engine)
        if learner.found:
            self.job.add("learned", stages=learner.found)
        self.job.add("run", seconds=(now() - began) / 1e9, **self.described())
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
        self.selection = select(self.stages, self.cores, self._wish)
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
            "budget_bytes": self._wish.budget_bytes,
            "mean_us": chosen.mean_us,
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
            stages.append(self._stage(node, sorted(inputs), at, stages))
        return stages

    def _stage(self, node: Node, inputs: list[int], at: Mapping[int, int], below: Sequence[Stage]) -> Stage:
        found = identity.of(node, self.files, pinned=self._wish.pin)
        own = [part for part in _own(node, at) if self.files.facts(part).unstable]
        # Spark takes every table function for random unless it is told otherwise: their rows are pinned unasked.
        pinned = bool(own) and (self._wish.pin or all("UDTF" in part.kind for part in own))
        pinned = pinned and node is not self.planned.root
        unstable = self.files.facts(own[0]).unstable if own else ""
        random = "" if pinned else unstable or next((below[i].random for i in inputs if below[i].random), "")
        refused = unsaveable(node.jvm) or (found.unknown and f"its input has no identity ({found.unknown})")
        return Stage(
            node,
            found,
            inputs,
            label=node.label,
            step=node.step,
            whole=pinned or identity.order_matters(node),
            refused=refused or (random and f"it is not deterministic ({random})"),
            random=random,
            pinned=pinned,
        )

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
        if self._reads_clock and not self._wish.pin:
            raise UsageError(
                f"The query reads the clock ({self._reads_clock}), so a rerun would be another query. Keep to the "
                "time of the first run with pin=True, or pass the time as a literal that your program keeps.",
                code="nondeterministic",
            )
        for stage in self.stages[:-1]:
            if stage.random:
                raise UsageError(
                    f"{stage.label} is not deterministic: {stage.random}. A rerun would mix its rows with others. "
                    "Keep to the rows of the first run with pin=True, save that part with "
                    "kedge.step(df, name, at=...), or remove the expression.",
                    code="nondeterministic",
                )
            if stage.pinned and stage.refused:
                raise UsageError(
                    f"{stage.label} is not deterministic and can't be pinned: {stage.refused}.",
                    code="nondeterministic",
                )

    def _withdraw_strangers(self) -> None:
        ids = {stage.identity.id for stage in self.stages}
        for cut in list(self.known.values()):
            if cut.id not in ids:
                same = [s.identity for s in self.stages if s.identity.plan == cut.record["plan"]]
                near = same or [s.identity for s in self.stages if s.label == cut.label]
                why = identity.differences(cut.record, near[0]) if near else "the query changed"
                self.said.append(f"{cut.label} is not reused: {why}.")
                warnings.warn(f"{self.job.at}: {self.said[-1]}", stacklevel=4)
                self.job.withdraw(cut, why)
                del self.known[cut.id]
        for stage in self.stages:
            if stage.refused and not stage.random:
                self.said.append(f"{stage.label} is not saved: {stage.refused}.")

    def _withdraw_damaged(self) -> None:
        """Check what this run would read; what is damaged is computed again."""
        checked: set[str] = set()
        while True:
            cuts = [self.known.get(stage.identity.id) for stage in self._needed()]
            parts = [part for cut in cuts if cut and cut.id not in checked for part in cut.parts.values()]
            if not parts:
                return
            checked |= {cut.id for cut in cuts if cut}
            for part in damaged(self._df.sparkSession, self.job.at, parts):
                self.said.append(f"{part.file} is damaged: its partition is computed again.")
                warnings.warn(f"{self.job.at}: {self.said[-1]}", stacklevel=4)
                self.job.store.delete(part.file)
                for cut in cuts:
                    if cut is not None and cut.parts.get(part.partition) == part:
                        del cut.parts[part.partition]

    def _withdraw_above(self, pinned: Stage) -> None:
        """A pinned stage starts again with other rows: what was made of the old ones is worth nothing."""
        below = {self.stages.index(pinned)}
        for index, stage in enumerate(self.stages):
            if below & set(stage.inputs):
                below.add(index)
                cut = self.known.pop(stage.identity.id, None)
                if cut is not None:
                    self.job.withdraw(cut, f"{pinned.label}, to which it is pinned, was not complete")

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


def _own(node: Node, at: Mapping[int, int]) -> Iterator[Node]:
    """The nodes of a stage, without those of the stages that it reads."""
    yield node
    for below in node.held:
        yield from below.walk()
    for child in node.children:
        if id(child) not in at:
            yield from _own(child, at)
