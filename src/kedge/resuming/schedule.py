"""When everything is done: a run from the start, or from what was saved.

Unlimited workers: an operation starts when its last input is there (the paper's model). With `workers`, list
scheduling, the operation with the longest way to the end first. A saved datum is there after its restore time, and
whatever only led to it is not run again.
"""

from __future__ import annotations

import heapq
from collections.abc import Set
from dataclasses import dataclass

from kedge.errors import UsageError
from kedge.resuming.dag import Dag

NEVER_US = 1 << 62


@dataclass(frozen=True, slots=True)
class Speeds:
    """How fast data are saved and restored (None: at once), and how many operations run at a time (None: all)."""

    write_bytes_per_second: float | None = None
    restore_bytes_per_second: float | None = None
    workers: int | None = None

    def __post_init__(self) -> None:
        for name in ("write_bytes_per_second", "restore_bytes_per_second", "workers"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise UsageError(f"{name}={value} must be above zero; leave it out for no limit.")

    def save_us(self, size: int) -> int:
        """How long `size` bytes take to become durable."""
        return _transfer_us(size, self.write_bytes_per_second)

    def restore_us(self, size: int) -> int:
        """How long `size` bytes take to be read back."""
        return _transfer_us(size, self.restore_bytes_per_second)


def _transfer_us(size: int, bytes_per_second: float | None) -> int:
    return 0 if bytes_per_second is None else -int(-size * 1_000_000 // bytes_per_second)


@dataclass(frozen=True, slots=True)
class Schedule:
    """When each datum is there (NEVER_US: not made in this run), and when the run ends."""

    ready_us: list[int]
    end_us: int


def needed(dag: Dag, saved: Set[int]) -> list[bool]:
    """Which operations a run from `saved` has to do."""
    wanted = [False] * len(dag.data)
    for datum in dag.results:
        wanted[datum] = datum not in saved
    runs = [False] * len(dag.operations)
    for index in range(len(dag.operations) - 1, -1, -1):
        operation = dag.operations[index]
        if any(wanted[d] for d in operation.outputs):
            runs[index] = True
            for datum in operation.inputs:
                if datum not in saved:
                    wanted[datum] = True
    return runs


def schedule(dag: Dag, saved: Set[int] = frozenset(), speeds: Speeds | None = None) -> Schedule:
    """The run that starts with base data and `saved`."""
    speeds = speeds or Speeds()
    ready = [0 if made_by < 0 else NEVER_US for made_by in dag.producer]
    for datum in saved:
        ready[datum] = speeds.restore_us(dag.data[datum].bytes)
    runs = needed(dag, saved)
    if speeds.workers is None:
        _unlimited(dag, runs, ready, saved)
    else:
        _listed(dag, runs, ready, saved, speeds.workers)
    return Schedule(ready, max((ready[d] for d in dag.results), default=0))


def _unlimited(dag: Dag, runs: list[bool], ready: list[int], saved: Set[int]) -> None:
    for operation, run in zip(dag.operations, runs, strict=True):
        if run:
            done = max((ready[d] for d in operation.inputs), default=0) + operation.time_us
            for datum in operation.outputs:
                if datum not in saved:
                    ready[datum] = done


def _listed(dag: Dag, runs: list[bool], ready: list[int], saved: Set[int], workers: int) -> None:
    waits = [0] * len(dag.operations)
    readers: dict[int, list[int]] = {}
    start = [0] * len(dag.operations)
    arriving: list[tuple[int, int]] = []  # (when its inputs are there, operation)
    for index, operation in enumerate(dag.operations):
        if not runs[index]:
            continue
        for datum in set(operation.inputs):
            if ready[datum] == NEVER_US:
                waits[index] += 1
                readers.setdefault(datum, []).append(index)
            else:
                start[index] = max(start[index], ready[datum])
        if not waits[index]:
            heapq.heappush(arriving, (start[index], index))
    queue: list[tuple[int, int]] = []  # (minus the way to the end, operation)
    busy: list[tuple[int, int]] = []  # (when it ends, operation)
    now = 0
    while arriving or queue or busy:
        while arriving and arriving[0][0] <= now:
            index = heapq.heappop(arriving)[1]
            heapq.heappush(queue, (-dag.tail_us[index], index))
        while queue and len(busy) < workers:
            index = heapq.heappop(queue)[1]
            heapq.heappush(busy, (now + dag.operations[index].time_us, index))
        if busy and (not arriving or len(busy) >= workers or busy[0][0] <= arriving[0][0]):
            now, index = heapq.heappop(busy)
            for datum in dag.operations[index].outputs:
                if datum not in saved:
                    ready[datum] = now
                    for reader in readers.get(datum, ()):
                        waits[reader] -= 1
                        if not waits[reader]:
                            heapq.heappush(arriving, (now, reader))
        elif arriving:
            now = max(now, arriving[0][0])
