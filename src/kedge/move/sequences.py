"""OMS: a known sequence of node counts, planned as a whole.

Exact by dynamic programming over all partitions where these can be listed (the paper's Figure 8 enumerates the
same, without remembering). Elsewhere: local search. With its neighbours fixed, the best partition of one step is
one call of the two-sided programme in direct.py; steps are improved in turn until none changes. It starts
from SSM repeated, and from SSM with intervals priced by what later counts would make them give up, so it never
costs more than SSM repeated.

Moving through a route can't be cheaper than moving past it, so the dearest single move from the first route to any
later count is a lower bound for the whole sequence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from kedge.errors import UsageError
from kedge.move import direct, intervals, page, ssm
from kedge.move.learn import band_for, pairs
from kedge.move.limits import Ints, Problem, problem, tau_of
from kedge.move.partitions import cap_and_floor, count, listed
from kedge.move.planners import by_intervals, least_moved, name
from kedge.move.plans import Plan, finish

_LISTED_MAX = 1_000_000

# how many later counts the starts look at, and how much they weigh the first of them; none is SSM repeated
_STARTS = ((0, 0.0), (2, 0.3), (4, 0.5), (4, 1.0))


@dataclass(frozen=True)
class Course:
    """The plans of a sequence, in order; no sequence costs less than `bound_bytes`.

    Of each plan `bound_bytes` is what its move alone would have to cost.
    """

    plans: tuple[Plan, ...]
    bound_bytes: int

    @property
    def cost_bytes(self) -> int:
        """All bytes that move."""
        return sum(plan.cost_bytes for plan in self.plans)

    @property
    def exact(self) -> bool:
        """Whether the cost is proven to be the smallest."""
        return self.cost_bytes == self.bound_bytes

    def __iter__(self) -> Iterator[Plan]:
        return iter(self.plans)

    def __len__(self) -> int:
        return len(self.plans)

    def to_json(self) -> dict[str, Any]:
        """The sequence as plain values."""
        plans = [plan.to_json() for plan in self.plans]
        return {"cost_bytes": self.cost_bytes, "bound_bytes": self.bound_bytes, "exact": self.exact, "plans": plans}

    def _repr_html_(self) -> str:
        return page.of_course(self)


def sequence(
    assignment: ArrayLike,
    work: ArrayLike,
    size: ArrayLike,
    nodes: Sequence[int],
    tau: float,
    *,
    least: float = 0.0,
    method: Literal["auto", "exact", "search"] = "auto",
    states_max: int = 5_000,
) -> Course:
    """Plan moves to each of the node counts in turn, so that all of them together move the fewest bytes.

    The paper's Table 3 gives 10 for SSM repeated and 9 for its alternative; the optimum leaves a node idle:

    >>> course = sequence([0] * 13 + [1] * 7, [1] * 20, [1] * 20, [3, 4], 0.4)
    >>> course.cost_bytes, course.exact
    (6, True)
    """
    nodes = _counts(nodes)
    if method not in ("auto", "exact", "search"):
        raise UsageError(f'method is "auto", "exact" or "search", not {method!r}.')
    given = problem(assignment, work, size, max(nodes))
    old, _ = intervals.runs(given.route)
    sums = intervals.prefix(given.work)
    steps = _Steps(
        intervals.prefix(given.size), sums, old, [cap_and_floor(sums, n, tau, least) for n in nodes], nodes
    )
    small = all(count(sums, n, *limit) <= states_max for n, limit in zip(nodes, steps.limits, strict=True))
    if method == "exact" or (method == "auto" and small):
        bounds = _exact(steps, max(states_max, _LISTED_MAX if method == "exact" else 0))
    else:
        bounds = _searched(steps)
    plans = _plans(given, bounds, steps, tau, least)
    cost = sum(plan.cost_bytes for plan in plans)
    exact = method == "exact" or (method == "auto" and small)
    singles = [by_intervals(problem(given.route, given.work, given.size, n), tau, least).cost_bytes for n in nodes]
    return Course(tuple(plans), cost if exact else max(singles))


def _counts(nodes: Sequence[int]) -> list[int]:
    counts = np.asarray(nodes)
    if counts.ndim != 1 or len(counts) == 0 or counts.dtype.kind not in "iu" or int(counts.min()) < 1:
        raise UsageError("A sequence is a list of one or more node counts, each of them one or more.")
    return [int(count) for count in counts]


@dataclass
class _Steps:
    kept: Ints
    sums: Ints
    old: Ints
    limits: list[tuple[int, int]]
    nodes: list[int]


def _exact(steps: _Steps, states_max: int) -> list[Ints]:
    """Backward over the tables of all partitions, then forward along the best."""
    lists = [listed(steps.sums, n, *limit, states_max) for n, limit in zip(steps.nodes, steps.limits, strict=True)]
    later = np.zeros(len(lists[-1]))
    nexts: list[Ints] = []
    for here, after in zip(reversed(lists[:-1]), reversed(lists[1:]), strict=True):
        best = np.empty(len(here), np.int64)
        value = np.empty(len(here))
        for row in range(len(here)):
            total = _moved(steps.kept, here[row], after) + later
            best[row] = int(np.argmin(total))
            value[row] = total[best[row]]
        nexts.append(best)
        later = value
    at = int(np.argmin(_moved(steps.kept, steps.old, lists[0]) + later))
    path = [lists[0][at]]
    for step, best in enumerate(reversed(nexts)):
        at = int(best[at])
        path.append(lists[step + 1][at])
    return [bounds[: int(np.searchsorted(bounds, bounds[-1])) + 1] for bounds in path]


def _moved(kept: Ints, bounds: Ints, news: Ints) -> Ints:
    out = np.empty(len(news), np.int64)
    intervals.moved_rows(kept, bounds, news, out)
    return out


def _searched(steps: _Steps) -> list[Ints]:
    best: list[Ints] = []
    best_cost = -1
    for ahead, weight in _STARTS:
        bounds = _forward(steps, ahead, weight)
        cost = _improve(steps, bounds)
        if best_cost < 0 or cost < best_cost:
            best, best_cost = bounds, cost
    return best


def _forward(steps: _Steps, ahead: int, weight: float) -> list[Ints]:
    """One move after the other; a price is what an interval would give up at later counts, less and less."""
    bounds: list[Ints] = []
    now = steps.old
    for step, (nodes, (cap, floor)) in enumerate(zip(steps.nodes, steps.limits, strict=True)):
        caps = [steps.limits[t][0] for t in range(step + 1, min(len(steps.nodes), step + 1 + ahead))]
        if ahead:
            now = _one(steps, step, now, None, caps, weight)
        else:
            now = least_moved(steps.kept, steps.sums, now, nodes, cap, floor)[0]
        bounds.append(now)
    return bounds


def _one(steps: _Steps, step: int, before: Ints, after: Ints | None, caps: list[int], weight: float = 0.0) -> Ints:
    """The best partition at one step between the one before and, if there is one, the one after."""
    cap, floor = steps.limits[step]
    nodes = steps.nodes[step]
    first, last = ssm.windows(steps.sums, cap, floor)
    at, starts, ends = pairs(first)
    price = np.zeros(len(starts))
    size = (steps.kept[ends] - steps.kept[starts]).astype(float)
    work = (steps.sums[ends] - steps.sums[starts]).astype(float)
    for distance, later in enumerate(caps):
        price += weight * 0.7**distance * size * np.maximum(0.0, 1 - later / np.maximum(work, 1.0))
    band = band_for(steps.sums, nodes, cap, floor)
    kept = steps.kept.astype(float)
    beyond = np.zeros(0) if after is None else kept
    there = np.zeros(0, np.int64) if after is None else after
    return direct.best_bounds(kept, before, beyond, there, first, last, price, at, band)[0]


def _improve(steps: _Steps, bounds: list[Ints]) -> int:
    """Improve each step between its neighbours until a whole round changes nothing; return the cost."""
    cost = _cost(steps, bounds)
    while True:
        for step in range(len(bounds)):
            before = bounds[step - 1] if step else steps.old
            after = bounds[step + 1] if step + 1 < len(bounds) else None
            bounds[step] = _one(steps, step, before, after, [])
        now = _cost(steps, bounds)
        if now >= cost:
            return now
        cost = now


def _cost(steps: _Steps, bounds: list[Ints]) -> int:
    total, now = 0, steps.old
    for after in bounds:
        total += int(steps.kept[-1] - intervals.kept(steps.kept, now, after))
        now = after
    return total


def _plans(given: Problem, bounds: list[Ints], steps: _Steps, tau: float, least: float) -> list[Plan]:
    plans: list[Plan] = []
    route = given.route
    for target, nodes in zip(bounds, steps.nodes, strict=True):
        here = problem(route, given.work, given.size, nodes)
        old, owners = intervals.runs(route)
        names, serving = name(here, owners, intervals.matching(intervals.prefix(here.weights()), old, target))
        effective = max(tau, tau_of(int(intervals.bottleneck(steps.sums, nodes)), int(steps.sums[-1]), nodes))
        alone = by_intervals(here, effective, least).cost_bytes
        plans.append(finish(here, intervals.route_of(target, names), serving, "oms", (tau, effective), alone))
        route = plans[-1].after
    return plans
