"""What a failure costs, given what is saved.

`worst_us`: the total time of a run that one failure hits at the worst moment: what ran before it, and the recovery
from what was saved by then. The loss before a checkpoint is the whole time until it is saved (the paper's text
subtracts one). `expected_us`: the mean total time when failures come at a rate, also during recovery.
`floor_us` and `expected_floor_us`: what no choice can beat; 1 - floor / 2T is the plan's ceiling.

A recovery restores what was saved and does not save worse: it uses the newest datum on each way.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from kedge.resuming.dag import Dag
from kedge.resuming.schedule import NEVER_US, Schedule, Speeds, needed, schedule


def saved_us(dag: Dag, run: Schedule, speeds: Speeds) -> list[int]:
    """When each datum would be durable in this run: its end and bytes / bandwidth."""
    return [
        at if at == NEVER_US else at + speeds.save_us(datum.bytes)
        for at, datum in zip(run.ready_us, dag.data, strict=True)
    ]


def moments(dag: Dag, run: Schedule, speeds: Speeds, chosen: Iterable[int]) -> list[tuple[int, list[int]]]:
    """(when, what became durable then), in order, of those `chosen` that are saved before the run ends."""
    at = saved_us(dag, run, speeds)
    groups: dict[int, list[int]] = {}
    for datum in chosen:
        if at[datum] < run.end_us:
            groups.setdefault(at[datum], []).append(datum)
    return sorted(groups.items())


def worst_us(dag: Dag, chosen: Iterable[int], speeds: Speeds | None = None) -> int:
    """The longest total time with one failure: just before a save, or just before the end."""
    speeds = speeds or Speeds()
    run = schedule(dag, speeds=speeds)
    have: set[int] = set()
    worst = 0
    for at, made in moments(dag, run, speeds, chosen):
        worst = max(worst, at + schedule(dag, have, speeds).end_us)
        have.update(made)
    return max(worst, run.end_us + schedule(dag, have, speeds).end_us)


def mean_us(dag: Dag, chosen: Iterable[int], speeds: Speeds | None = None) -> float:
    """The mean total time with exactly one failure, equally likely at every moment of the run."""
    speeds = speeds or Speeds()
    run = schedule(dag, speeds=speeds)
    if not run.end_us:
        return 0.0
    have: set[int] = set()
    area, since = 0.0, 0
    for at, made in [*moments(dag, run, speeds, chosen), (run.end_us, [])]:
        area += (at - since) * (schedule(dag, have, speeds).end_us + (at + since) / 2)
        since = at
        have.update(made)
    return area / run.end_us


SETS_MAX = 1_000


def expected_us(dag: Dag, chosen: Iterable[int], failures_per_second: float, speeds: Speeds | None = None) -> float:
    """The mean total time when failures are a Poisson process that recoveries suffer as well."""
    speeds = speeds or Speeds()
    rate = failures_per_second / 1e6
    wanted = frozenset(chosen)
    known: dict[frozenset[int], float] = {}

    def mean(saved: frozenset[int]) -> float:
        if saved in known:
            return known[saved]
        run = schedule(dag, saved, speeds)
        known[saved] = run.end_us  # stands in where a set comes back or the limit is reached
        steps = moments(dag, run, speeds, [d for d in wanted - saved if run.ready_us[d] != NEVER_US])
        total, since, have, stays = math.exp(-rate * run.end_us) * run.end_us, 0, saved, 0.0
        for at, made in [*steps, (run.end_us, [])]:
            fails = math.exp(-rate * since) - math.exp(-rate * at)
            total += _time_lost(rate, since, at)
            if have == saved:
                stays += fails
            else:
                total += fails * (mean(have) if len(known) < SETS_MAX else schedule(dag, have, speeds).end_us)
            since, have = at, have | frozenset(made)
        known[saved] = total / max(1.0 - stays, 1e-300)
        return known[saved]

    return mean(frozenset())


def _time_lost(rate: float, since: float, until: float) -> float:
    """The integral of t * rate * exp(-rate * t): the time before a failure that falls into this stretch."""
    if rate == 0:
        return 0.0
    return (since + 1 / rate) * math.exp(-rate * since) - (until + 1 / rate) * math.exp(-rate * until)


def floor_us(dag: Dag, speeds: Speeds | None = None) -> int:
    """A worst case that no choice of saved data can beat: everything saved, each datum used only where it helps."""
    return max((until + least for until, least in _least_recoveries(dag, speeds or Speeds())), default=0)


def expected_floor_us(dag: Dag, failures_per_second: float, speeds: Speeds | None = None) -> float:
    """A mean that no choice can beat: the first failure counts, everything is saved, and recovery does not fail."""
    rate = failures_per_second / 1e6
    end = schedule(dag, speeds=speeds).end_us
    total, since = math.exp(-rate * end) * end, 0
    for until, least in _least_recoveries(dag, speeds or Speeds()):
        total += _time_lost(rate, since, until) + (math.exp(-rate * since) - math.exp(-rate * until)) * least
        since = until
    return total


def _least_recoveries(dag: Dag, speeds: Speeds) -> list[tuple[int, int]]:
    """For each stretch between saves: its end, and a lower bound of the recovery from a failure in it."""
    run = schedule(dag, speeds=speeds)
    have: set[int] = set()
    found: list[tuple[int, int]] = []
    for at, made in [*moments(dag, run, speeds, dag.candidates), (run.end_us, [])]:
        found.append((at, _least_us(dag, have, speeds)))
        have.update(made)
    return found


def _least_us(dag: Dag, have: set[int], speeds: Speeds) -> int:
    ready = [0] * len(dag.data)
    for operation in dag.operations:
        done = max((ready[d] for d in operation.inputs), default=0) + operation.time_us
        for datum in operation.outputs:
            ready[datum] = min(done, speeds.restore_us(dag.data[datum].bytes)) if datum in have else done
    longest = max((ready[d] for d in dag.results), default=0)
    if speeds.workers is None:
        return longest
    runs = needed(dag, have)
    work = sum(operation.time_us for operation, run in zip(dag.operations, runs, strict=True) if run)
    return max(longest, -(-work // speeds.workers))
