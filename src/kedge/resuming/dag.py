"""A query as operations and data: the plain graph on which checkpoints are chosen.

Invariants, made here once so that nothing downstream checks again:
- Operations are in topological order, and each of them leads to a result: dead ones were dropped.
- Times are integer microseconds, sizes integer bytes; zero is allowed for both.
- A datum has at most one producer; one without is base data, always there and never saved.
- Several results are one end: a run ends when the last of them is there (the paper has one leaf).

It does not know what an operation does, nor how fast a disk is (`kedge.resuming.schedule`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kedge.errors import UsageError


@dataclass(frozen=True, slots=True)
class Datum:
    """Something an operation makes, and what it would cost to save."""

    name: str
    bytes: int = 0
    saveable: bool = True


@dataclass(frozen=True, slots=True)
class Operation:
    """Work that needs all its inputs and makes all its outputs at its end; both are indexes of data."""

    name: str
    time_us: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class Dag:
    """Operations in topological order over data; `build` makes one that keeps the invariants."""

    data: tuple[Datum, ...]
    operations: tuple[Operation, ...]
    results: frozenset[int]

    @cached_property
    def producer(self) -> tuple[int, ...]:
        """For each datum the index of the operation that makes it; -1 for base data."""
        found = [-1] * len(self.data)
        for index, operation in enumerate(self.operations):
            for datum in operation.outputs:
                found[datum] = index
        return tuple(found)

    @cached_property
    def candidates(self) -> tuple[int, ...]:
        """The data that may be saved: produced by an operation, and not excluded by the caller."""
        return tuple(d for d, made_by in enumerate(self.producer) if made_by >= 0 and self.data[d].saveable)

    @cached_property
    def tail_us(self) -> tuple[int, ...]:
        """For each operation the longest time from its start to the end of the run, with unlimited workers."""
        after = [0] * len(self.data)
        tails = [0] * len(self.operations)
        for index in range(len(self.operations) - 1, -1, -1):
            operation = self.operations[index]
            tails[index] = operation.time_us + max((after[d] for d in operation.outputs), default=0)
            for datum in operation.inputs:
                after[datum] = max(after[datum], tails[index])
        return tuple(tails)

    def bytes_of(self, chosen: Iterable[int]) -> int:
        """What saving these data takes."""
        return sum(self.data[d].bytes for d in chosen)

    def names(self, chosen: Iterable[int]) -> tuple[str, ...]:
        """Their names, in the order in which they are made."""
        return tuple(self.data[d].name for d in sorted(chosen, key=lambda d: (self.producer[d], d)))


def build(data: Sequence[Datum], operations: Sequence[Operation], results: Iterable[int] | None = None) -> Dag:
    """Check, order and prune. Without `results`, the data that no operation reads are the results."""
    producer: dict[int, int] = {}
    for index, operation in enumerate(operations):
        if operation.time_us < 0:
            raise UsageError(
                f"Operation {operation.name!r} takes {operation.time_us} us; a time can't be negative."
            )
        for datum in operation.outputs:
            if datum in producer:
                raise UsageError(f"{data[datum].name!r} is made twice, the second time by {operation.name!r}.")
            producer[datum] = index
    for datum in data:
        if datum.bytes < 0:
            raise UsageError(f"{datum.name!r} has {datum.bytes} bytes; a size can't be negative.")
    read = {d for operation in operations for d in operation.inputs}
    ends = frozenset(producer) - read if results is None else frozenset(results)
    live = _live(operations, producer, ends)
    ordered = _ordered(operations, producer, live)
    return Dag(tuple(data), tuple(operations[index] for index in ordered), ends)


def _live(operations: Sequence[Operation], producer: Mapping[int, int], ends: Iterable[int]) -> set[int]:
    found: set[int] = set()
    stack = [producer[d] for d in ends if d in producer]
    while stack:
        index = stack.pop()
        if index not in found:
            found.add(index)
            stack.extend(producer[d] for d in operations[index].inputs if d in producer)
    return found


def _ordered(operations: Sequence[Operation], producer: Mapping[int, int], live: set[int]) -> list[int]:
    waits = {i: {producer[d] for d in operations[i].inputs if d in producer} for i in live}
    unlocks: dict[int, list[int]] = {i: [] for i in live}
    for index, needs in waits.items():
        for need in needs:
            unlocks[need].append(index)
    ready = sorted((i for i, needs in waits.items() if not needs), reverse=True)
    ordered: list[int] = []
    while ready:
        index = ready.pop()
        ordered.append(index)
        for later in sorted(unlocks[index], reverse=True):
            waits[later].discard(index)
            if not waits[later]:
                ready.append(later)
    if len(ordered) < len(live):
        stuck = sorted(operations[i].name for i in live if waits[i])
        raise UsageError(f"These operations wait for each other: {', '.join(stuck[:5])}. A plan has no cycles.")
    return ordered


def from_tasks(tasks: Mapping[str, Mapping[str, Any]]) -> Dag:
    """A graph from a plain dictionary, one entry a task.

    A task is `{"seconds": 3.2, "bytes": 10_000, "inputs": ["a", "b"]}`: its output bears its name. With
    `"outputs": {"x": 10, "y": 20}` it makes several data of these sizes. `inputs` name outputs of other tasks;
    names that no task makes are base data. `"saveable": False` keeps a task's outputs from being chosen.
    """
    data: list[Datum] = []
    index: dict[str, int] = {}
    outputs: dict[str, tuple[int, ...]] = {}
    for name, task in tasks.items():
        sizes: Mapping[str, int] = task.get("outputs") or {name: task.get("bytes", 0)}
        made: list[int] = []
        for output, size in sizes.items():
            if output in index:
                raise UsageError(f"{output!r} is made by two tasks, one of them {name!r}; give outputs own names.")
            index[output] = len(data)
            made.append(len(data))
            data.append(Datum(output, int(size), bool(task.get("saveable", True))))
        outputs[name] = tuple(made)
    operations: list[Operation] = []
    for name, task in tasks.items():
        inputs: list[int] = []
        for need in task.get("inputs", ()):
            if need not in index:
                index[need] = len(data)
                data.append(Datum(str(need), 0, False))
            inputs.append(index[need])
        if "seconds" not in task:
            raise UsageError(f"Task {name!r} has no 'seconds'; say how long it takes.")
        operations.append(Operation(name, round(float(task["seconds"]) * 1e6), tuple(inputs), outputs[name]))
    return build(data, operations)


def from_networkx(graph: Any) -> Dag:
    """A graph from a networkx DiGraph: nodes are tasks with `seconds` and `bytes`, edges are dependencies."""
    tasks = {
        str(node): {**attributes, "inputs": [str(before) for before in graph.predecessors(node)]}
        for node, attributes in graph.nodes(data=True)
    }
    return from_tasks(tasks)


def as_dag(dag: Any) -> Dag:
    """Whatever the caller has: a Dag, a dictionary of tasks, or a networkx DiGraph."""
    if isinstance(dag, Dag):
        return dag
    if isinstance(dag, Mapping):
        return from_tasks(dag)
    if hasattr(dag, "predecessors") and hasattr(dag, "nodes"):
        return from_networkx(dag)
    raise UsageError(
        f"A {type(dag).__name__} is not a task graph; pass a dictionary of tasks or a networkx DiGraph."
    )
