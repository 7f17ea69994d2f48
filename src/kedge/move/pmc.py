"""PMC, exactly: the projected cost of every partition, by value iteration (the paper's Figure 9, corrected).

As printed the sum runs over all partitions P' with an undefined M[P, P']. What is meant, and computed here:
C[P] = sum over n' of M[n, n'] * min over the partitions P' of n' nodes of (cost(P, P') + gamma C[P']).

Rows of a sweep are independent, so a sweep is a map over blocks of rows; the map function is handed in. The error
is certified: after each sweep the true values lie within gamma / (1 - gamma) of the change's range (MacQueen).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kedge.errors import UsageError
from kedge.jit import jit
from kedge.move import intervals
from kedge.move.forecast import Block, Floats, Map, blocks
from kedge.move.limits import Ints, Problem
from kedge.move.mtm import Transitions
from kedge.move.partitions import cap_and_floor, count, listed


@dataclass(frozen=True)
class Table:
    """The projected cost of every partition, as a share of all state, to within `error` (a share too)."""

    transitions: Transitions
    gamma: float
    states: dict[int, Ints]
    costs: dict[int, Floats]
    error: float
    sweeps: int

    def choose(self, given: Problem, sums: Ints, old: Ints, cap: int, floor: int) -> Ints | None:
        """The listed partition that is cheapest now plus later, among those that keep today's limits."""
        if given.nodes not in self.states:
            return None
        states = self.states[given.nodes]
        if int(states[0, -1]) != given.tasks:
            raise UsageError(f"The forecast is for {int(states[0, -1])} tasks, and there are {given.tasks}.")
        loads = np.diff(sums[states], axis=1)
        good = (loads <= cap).all(axis=1) & (loads >= floor).all(axis=1)
        if not good.any():
            return None
        now = np.empty((1, len(states)), np.float32)
        intervals.cost_rows(intervals.prefix(given.size), old[None, :], states, now)
        total = np.where(good, now[0] + self.gamma * self.costs[given.nodes], np.inf)
        bounds = states[int(np.argmin(total))]
        return bounds[: int(np.searchsorted(bounds, bounds[-1])) + 1]


@jit
def _sweep(costs: NDArray[np.float32], values: Floats, groups: Ints, chances: Floats, out: Floats) -> None:
    """out[i]: the expected cost of row i; chances[i] are the probabilities of the groups of columns."""
    for i in range(len(costs)):
        expected = 0.0
        for g in range(len(groups) - 1):
            if chances[i, g] > 0.0:
                best = np.inf
                for j in range(groups[g], groups[g + 1]):
                    best = min(best, costs[i, j] + values[j])
                expected += chances[i, g] * best
        out[i] = expected


@dataclass
class Sweep:
    """One job of the map: value iteration for a block of rows. Cost rows are kept between sweeps while they fit."""

    sums: Ints
    states: Ints
    groups: Ints
    chances: Floats
    values: Floats
    rows_kept: int
    kept: dict[Block, NDArray[np.float32]] = field(default_factory=dict)

    def __call__(self, start: int, stop: int) -> Floats:
        costs = self.kept.get((start, stop))
        if costs is None:
            costs = np.empty((stop - start, len(self.states)), np.float32)
            intervals.cost_rows(self.sums, self.states[start:stop], self.states, costs)
            if stop <= self.rows_kept:
                self.kept[start, stop] = costs
        out = np.empty(stop - start, np.float64)
        _sweep(costs, self.values, self.groups, self.chances[start:stop], out)
        return out

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "kept": {}, "rows_kept": 0}


def states_count(work: Ints, transitions: Transitions, tau: float, least: float) -> int:
    """How many partitions the table would have."""
    sums = intervals.prefix(work)
    return sum(count(sums, n, *cap_and_floor(sums, n, tau, least)) for n in transitions.counts)


def table(
    work: Ints,
    size: Ints,
    transitions: Transitions,
    tau: float,
    gamma: float,
    *,
    least: float,
    run: Map,
    tolerance: float = 1e-5,
    states_max: int = 50_000,
    memory_max: int = 1 << 30,
    jobs: int = 64,
) -> Table:
    """List all partitions and iterate their projected costs until they are known to within `tolerance`."""
    sums = intervals.prefix(work)
    lists = [listed(sums, n, *cap_and_floor(sums, n, tau, least), states_max) for n in transitions.counts]
    groups = np.concatenate(([0], np.cumsum([len(rows) for rows in lists]))).astype(np.int64)
    states = _padded(lists)
    chances = np.repeat(transitions.matrix, np.diff(groups), axis=0)
    rows_kept = memory_max // (4 * len(states))
    sweep = Sweep(intervals.prefix(size), states, groups, chances, np.zeros(len(states)), rows_kept)
    parts = blocks(len(states), jobs)
    values = np.zeros(len(states))
    sweeps, error = 0, np.inf
    while error > tolerance:
        sweep.values = gamma * values
        after = np.concatenate(run(sweep, parts))
        change = after - values
        low, high = float(change.min()), float(change.max())
        factor = gamma / (1 - gamma)
        error = factor * (high - low) / 2
        values = after if error > tolerance else after + factor * (high + low) / 2
        sweeps += 1
    costs = {n: values[a:b] for n, a, b in zip(transitions.counts, groups[:-1], groups[1:], strict=True)}
    return Table(transitions, gamma, dict(zip(transitions.counts, lists, strict=True)), costs, error, sweeps)


def _padded(lists: Sequence[Ints]) -> Ints:
    width = max(rows.shape[1] for rows in lists)
    return np.vstack([np.pad(rows, ((0, 0), (0, width - rows.shape[1])), mode="edge") for rows in lists])
