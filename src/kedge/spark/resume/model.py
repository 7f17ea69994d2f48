"""The stages of a plan as a graph with times and sizes: learned from an earlier run, or estimated.

An estimate starts from the sizes of the files and shrinks them by operator; it only has to rank the stages, and the
first run that finishes replaces it by what was measured. A stage is split into pieces, because its finished
partitions are saved while it runs: that is what lifts the ceiling of a plan with few long stages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kedge.errors import UsageError
from kedge.resuming import Dag, Datum, Operation, Selection, Speeds, build, select_checkpoints
from kedge.resuming.pieces import split
from kedge.spark.resume import layout
from kedge.spark.resume.identity import Identity
from kedge.spark.resume.plan import Node

PIECES_MAX = 4  # enough to rank stages; choosing must not cost more than it saves
READ_BYTES_PER_SECOND = 50e6  # of compressed input by one core, before anything was measured
WRITE_BYTES_PER_SECOND = 60e6  # of one core, from rows to a durable Parquet file
CUT_US = 250_000  # what a cut costs by itself: a job, and its Python workers
PARTITION_US = 15_000  # what a partition costs a core by itself: Arrow, a file, and its sync
_NO_IDEA = 2.0**62  # what Spark says of rows that it knows nothing of
_SHRINK = {
    "Filter": 0.4,
    "HashAggregate": 0.1,
    "ObjectHashAggregate": 0.2,
    "SortAggregate": 0.1,
    "FileSourceScan": 0.4,
}


@dataclass(frozen=True, slots=True)
class Wish:
    """What the caller asked for."""

    budget_bytes: int | None
    overhead: float
    failures_per_hour: float | None
    pin: bool


@dataclass(slots=True)
class Stage:
    """One thing that may be saved, and what is known of it."""

    node: Node
    identity: Identity
    inputs: list[int]
    label: str
    step: str
    whole: bool
    refused: str
    time_us: int = 0
    bytes: int = 0
    tasks: int = 1
    random: str = ""  # what is not deterministic in it or below it, and is not pinned
    pinned: bool = False
    learned: bool = False
    chosen: bool = False
    reused: int = 0
    partitions: int = 0
    splits: dict[str, str] = field(default_factory=dict[str, str])

    def to_json(self) -> dict[str, Any]:
        """What the ledger keeps, for `kedge resume show`."""
        names = ("inputs", "label", "step", "whole", "refused", "time_us", "bytes", "tasks", "learned", "chosen")
        told = {name: getattr(self, name) for name in (*names, "reused", "partitions")}
        return {"id": self.identity.id, **told}


def measure(stages: Sequence[Stage], learned: Mapping[str, Any], cores: int) -> None:
    """Give every stage a time, a size and a number of tasks."""
    for stage in stages:
        known = learned.get(stage.identity.plan)
        read = sum(size for size, _ in _own_files(stage, stages).values())
        read += sum(stages[i].bytes for i in stage.inputs) + _own_rows(stage, stages)
        if known is not None:
            stage.time_us, stage.bytes, stage.tasks, stage.learned = *known, True
            _cut_finer(stage, stages, cores)
            continue
        stage.time_us = max(50_000, round(read / READ_BYTES_PER_SECOND / cores * 1e6))
        stage.bytes = round(_estimate(stage.node, stage, stages))
        stage.tasks = max(1, min(2 * cores, round(read / 16e6)))


def _cut_finer(stage: Stage, stages: Sequence[Stage], cores: int) -> None:
    """Give a long stage whose tasks read files more partitions than Spark would: finished ones can be saved."""
    wanted = layout.tasks_wanted(stage.time_us, stage.tasks, cores)
    files = _own_files(stage, stages)
    if wanted > stage.tasks and files and not stage.pinned and _by_files(stage, stages):
        stage.splits, stage.tasks = layout.splits([size for size, _ in files.values()], wanted), wanted


def _by_files(stage: Stage, stages: Sequence[Stage]) -> bool:
    """Whether files alone say what a task reads: every stage below is broadcast to all of them."""
    below = {id(stages[i].node) for i in stage.inputs}
    stack = [stage.node]
    while stack:
        node = stack.pop()
        if id(node) in below:
            return False
        if "BroadcastExchange" not in node.kind:
            stack.extend(node.children)
    return True


def _own_files(stage: Stage, stages: Sequence[Stage]) -> dict[str, list[int]]:
    below = {path for i in stage.inputs for path in stages[i].identity.inputs}
    return {path: facts for path, facts in stage.identity.inputs.items() if path not in below and facts[0] > 0}


def _own_rows(stage: Stage, stages: Sequence[Stage]) -> float:
    """What Spark thinks of leaves that are no files: ranges, caches, rows of the driver."""
    above = {id(stages[i].node) for i in stage.inputs}
    found, stack = 0.0, [stage.node]
    while stack:
        node = stack.pop()
        if id(node) not in above:
            stack.extend(node.children)
            if not node.children and "FileSourceScan" not in node.kind:
                found += _by_spark(node)
    return found


def _by_spark(node: Node) -> float:
    """Spark's own estimate of the bytes that a node makes; a megabyte where it has none."""
    link = node.jvm.logicalLink()
    known = float(str(link.get().stats().sizeInBytes())) if link.isDefined() else _NO_IDEA
    return known if known < _NO_IDEA else 1e6


def _estimate(node: Node, stage: Stage, stages: Sequence[Stage]) -> float:
    """From the files upwards, never more than Spark thinks: for a join that is often the product of its sides."""
    for index in stage.inputs:
        if stages[index].node is node:
            return float(stages[index].bytes)
    below = [_estimate(child, stage, stages) for child in node.children]
    if below:
        size = sum(below)
        link = node.jvm.logicalLink()
        most = float(str(link.get().stats().sizeInBytes())) if link.isDefined() else size
        return min(size * _SHRINK.get(node.kind.removesuffix("Exec"), 1.0), most)
    files = _own_files(stage, stages).values()
    if "FileSourceScan" not in node.kind:
        return _by_spark(node)
    scans = sum("FileSourceScan" in part.kind for part in stage.node.walk()) or 1
    return sum(size for size, _ in files) / scans * _SHRINK["FileSourceScan"]


def graph(stages: Sequence[Stage], cores: int) -> Dag:
    """The stages as operations; what a cut costs by itself counts as bytes."""
    data = [Datum(str(i), s.bytes + _own_cost(s, cores), not s.refused) for i, s in enumerate(stages)]
    operations = [Operation(str(i), stage.time_us, tuple(stage.inputs), (i,)) for i, stage in enumerate(stages)]
    return build(data, operations, [len(stages) - 1])


def _own_cost(stage: Stage, cores: int) -> int:
    """The bytes that the machine could write in the time that a cut takes, apart from its bytes."""
    return round(cut_us(stage.tasks, cores) / 1e6 * WRITE_BYTES_PER_SECOND * cores)


def cut_us(tasks: int, cores: int) -> int:
    """How long saving a stage takes apart from its computing and its bytes."""
    return round(CUT_US + PARTITION_US * tasks / cores)


def select(stages: Sequence[Stage], cores: int, wish: Wish) -> Selection:
    """Choose stages, and mark them; a point that the user marked and a pinned stage are always chosen."""
    dag, rate, budget = graph(stages, cores), wish.failures_per_hour, wish.budget_bytes
    fixed = sum(_own_cost(stage, cores) for stage in stages)
    write = WRITE_BYTES_PER_SECOND * cores
    most = PIECES_MAX if rate is None else 2  # sets of saved pieces grow fast when failures repeat
    pieces, groups = split(dag, [min(stages[int(op.name)].tasks, most) for op in dag.operations], cores)
    selection = select_checkpoints(
        pieces,
        budget_bytes=budget if budget is None else budget + fixed,
        overhead=wish.overhead,
        goal="worst" if rate is None else "expected",
        failures_per_hour=rate,
        speeds=Speeds(write, 4 * write, cores),
        groups=groups,
    )
    taken = {int(name.partition("[")[0]) for name in selection.saved}
    if rate is None and 2 * selection.end_us - selection.worst_us < selection.bytes / write * 1e6:
        taken = set()  # it protects less than it costs
    left = float("inf") if budget is None else float(budget)
    for index in sorted(taken, key=lambda i: stages[i].bytes):
        left -= stages[index].bytes
        stages[index].chosen = left >= 0
    for stage in stages:
        stage.chosen = (stage.chosen or bool(stage.step) or stage.pinned) and not stage.refused
    return selection


_UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
}


def parse_budget(budget: str | float | None) -> int | None:
    """Bytes of "2 GB", 500_000 or None."""
    if budget is None:
        return None
    if isinstance(budget, (int, float)) and not isinstance(budget, bool) and budget >= 0 and budget == budget // 1:
        return int(budget)
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", budget) if isinstance(budget, str) else None
    if not match or match[2].lower() not in _UNITS:
        raise UsageError(
            f"budget={budget!r} is not a size: write bytes as a number, or such as '2 GB' or '500 MB'."
        )
    return round(float(match[1]) * _UNITS[match[2].lower()])
