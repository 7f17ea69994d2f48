"""What a run teaches the next one: time, size and tasks of its stages, by the identity of their plan.

Sources: our own files for stages that were saved; the SQL metrics of exchanges and Spark's stage times for the
rest, adaptive execution included: the exchanges of the final plan are read, not of the first one. An exchange that
adaptive execution replaced by another teaches nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kedge.spark.resume.job import Cut
from kedge.spark.resume.model import Stage, cut_us
from kedge.spark.resume.plan import BROADCAST, SHUFFLE, Planned, kind, seq

_STAGES_MAX = 200  # of a session, the newest
_PACKED = 0.4  # bytes in a compressed Parquet file per byte of Spark's rows, roughly


class Learner:
    """Collects what is measured in one run."""

    def __init__(self, planned: Planned, stages: Sequence[Stage], cores: int) -> None:
        self._planned, self._stages, self._cores = planned, stages, cores
        self.found: dict[str, list[int]] = {}

    def saved(self, stage: Stage, cut: Cut, took_us: int) -> None:
        """A stage that was saved whole in this run; stages below it that ran inside it are part of its time."""
        computing_us = max(1, took_us // 4, took_us - cut_us(cut.partitions, self._cores))  # the price is a guess
        self.found[stage.identity.plan] = [computing_us, cut.bytes, cut.partitions]

    def rest(self, engine: Any) -> None:
        """The exchanges that ran while the result was made ready, found again by their canonical plans."""
        if engine.final is None or kind(engine.final) != "AdaptiveSparkPlanExec":
            return
        wanted = [
            s for s in self._stages if id(s.node) in self._planned.exchange and id(s.node) not in engine.scans
        ]
        shapes = {id(s): self._planned.exchange[id(s.node)].jvm.canonicalized() for s in wanted}
        times = _StageTimes(self._planned)
        for ran in _query_stages(engine.final.executedPlan()):
            shape = ran.canonicalized()
            for stage in wanted:
                if stage.identity.plan not in self.found and shapes[id(stage)].equals(shape):
                    self._learn(stage, ran.plan(), times)

    def _learn(self, stage: Stage, exchange: Any, times: _StageTimes) -> None:
        if kind(exchange) not in (BROADCAST, SHUFFLE):
            return
        metrics = {str(e._1()): e._2() for e in seq(exchange.metrics().toSeq())}
        if kind(exchange) == BROADCAST:  # its data size is that of the hash table; rows tell more
            took = 1000 * (int(metrics["collectTime"].value()) + int(metrics["buildTime"].value()))
            width = 8 * max(1, len(seq(stage.node.jvm.output())))
            self.found[stage.identity.plan] = [max(1, took), width * int(metrics["numOutputRows"].value()), 1]
            return
        ran = times.of(int(exchange.shuffleDependency().rdd().id()))
        if ran is not None:
            run_ms, tasks = ran
            size = round(int(metrics["dataSize"].value()) * _PACKED)
            self.found[stage.identity.plan] = [
                max(1, 1000 * run_ms // min(self._cores, max(1, tasks))),
                size,
                tasks,
            ]


def _query_stages(plan: Any) -> list[Any]:
    found: list[Any] = []

    def visit(node: Any) -> None:
        if kind(node).endswith("QueryStageExec"):
            found.append(node)
            visit(node.plan())
        for child in seq(node.children()):
            visit(child)

    visit(plan)
    return found


class _StageTimes:
    """(time of all tasks in ms, tasks) of the stages that ran, by an RDD in them; the newest are looked at first."""

    def __init__(self, planned: Planned) -> None:
        store = planned.session.sparkContext._jsc.sc().statusStore()  # pyright: ignore
        self._found: dict[int, tuple[int, int]] = {}
        self._left: Iterator[Any] = iter(())
        try:
            none, quantiles = getattr(store, "stageList$default$5")(), getattr(store, "stageList$default$4")()
            stages = store.stageList(None, False, False, quantiles, none)
        except Exception:  # another version of Spark: the store is no public interface, and learning is optional
            return
        self._left = (stages.apply(i) for i in range(min(_STAGES_MAX, stages.size())))

    def of(self, rdd: int) -> tuple[int, int] | None:
        """What ran this RDD; every look at a stage is a few calls into the JVM, so no more than it takes."""
        while rdd not in self._found:
            data = next(self._left, None)
            if data is None:
                return None
            if int(data.executorRunTime()):
                for made in seq(data.rddIds()):
                    self._found.setdefault(int(made), (int(data.executorRunTime()), int(data.numTasks())))
        return self._found[rdd]
