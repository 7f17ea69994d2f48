"""A forecast for sizes where no table can be made: a price for each interval, trained by the cross-entropy method.

The partitions of 64 tasks over 8 to 16 nodes number 10^4 to 10^13, so their projected costs are not computed.
Computed instead is a value function that adds up over the intervals of a partition: V(P) = sum of price(interval),
where a price is a weighted sum of eight features and the weights are linear in the number of nodes. Then the best
partition of all, cost now + V, is one call of the programme in direct.py; and training is a search in 16 numbers,
scored by simulated moves. (Least-squares value iteration on the same features did not converge.)

Weights of nought are SSM: they are taken where the trained ones do worse on fresh paths.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kedge.jit import jit
from kedge.move import direct, intervals, ssm
from kedge.move.forecast import Floats, Map, blocks
from kedge.move.limits import Ints, Problem
from kedge.move.mtm import Transitions
from kedge.move.partitions import cap_and_floor

FEATURES = 8


@dataclass(frozen=True)
class Learned:
    """Weights of the interval prices. `error` is how far above the optimum a replica of the instance came out."""

    transitions: Transitions
    gamma: float
    tau: float
    weights: Floats
    gain: float
    error: float | None = None

    def choose(self, given: Problem, sums: Ints, old: Ints, cap: int, floor: int) -> Ints | None:
        """The bounds that are cheapest now plus priced later, over all partitions within the limits."""
        first, last = ssm.windows(sums, cap, floor)
        at, _, _ = pairs(first)
        kept = intervals.prefix(given.size)
        total = max(1, int(kept[-1]))
        features = interval_features(kept, sums, first, self.transitions, self.tau)
        price = features @ weights_for(self.weights, given.nodes, self.transitions)
        band = band_for(sums, given.nodes, cap, floor)
        empty, nowhere = np.zeros(0), np.zeros(0, np.int64)
        bounds, _, _ = direct.best_bounds(kept / total, old, empty, nowhere, first, last, price, at, band)
        return bounds if len(bounds) and (not floor or len(bounds) == given.nodes + 1) else None


def pairs(first: Ints) -> tuple[Ints, Ints, Ints]:
    """Where the price of [a, b) stands (at[b] + a), and the starts and ends of all intervals in that order."""
    width = np.arange(len(first)) - first
    offsets = np.cumsum(width) - width
    ends = np.repeat(np.arange(len(first)), width)
    starts = np.arange(int(width.sum())) - np.repeat(offsets - first, width)
    return offsets - first, starts, ends


def band_for(sums: Ints, nodes: int, cap: int, floor: int) -> Ints:
    """The ends that k intervals may have; where every node has to get its share, fewer than all may not end."""
    band = intervals.band(sums, nodes, cap)
    if floor:
        band[:-1, 1] = np.minimum(band[:-1, 1], len(sums) - 2)
    return band


def interval_features(kept: Ints, sums: Ints, first: Ints, transitions: Transitions, tau: float) -> Floats:
    """Eight features of each interval, in the order of `pairs`; summed over a partition each is of the order of one.

    Four say what an interval has to give up, from its ends, to keep the cap of a larger number of nodes.
    """
    at, starts, ends = pairs(first)
    size = (kept[ends] - kept[starts]) / max(1, int(kept[-1]))
    work = (sums[ends] - sums[starts]) / max(1, int(sums[-1]))
    lowest, highest = transitions.counts[0], transitions.counts[-1]
    middle = (lowest + highest) / 2
    columns: list[NDArray[np.float64]] = []
    for part in (0.25, 0.5, 0.75, 1.0):
        nodes = round(lowest + part * (highest - lowest))
        cap, _ = cap_and_floor(sums, nodes, tau, 0.0)
        columns.append(_given_up(kept, sums, first, at, cap, len(starts)) / max(1, int(kept[-1])))
    columns += [np.minimum(size, 0.5 / middle), middle * size**2, middle * work**2]
    columns.append(np.full(len(size), 1 / middle))
    return np.column_stack(columns)


@jit
def _given_up(kept: Ints, sums: Ints, first: Ints, at: Ints, cap: int, count: int) -> Ints:
    """The bytes of each interval that are outside the best part of it with work of at most `cap`."""
    best = np.zeros(count, np.int64)
    lost = np.zeros(count, np.int64)
    for b in range(1, len(kept)):
        for a in range(b - 1, first[b] - 1, -1):
            own = kept[b] - kept[a]
            here = at[b] + a
            if sums[b] - sums[a] <= cap:
                best[here] = own
            elif a < b - 1:
                best[here] = max(best[here + 1], best[at[b - 1] + a])
            lost[here] = own - best[here]
    return lost


def weights_for(weights: Floats, nodes: int, transitions: Transitions) -> Floats:
    """The eight weights for one number of nodes."""
    lowest, highest = transitions.counts[0], transitions.counts[-1]
    slope = (2 * nodes - lowest - highest) / max(1, highest - lowest)
    return weights[:FEATURES] + slope * weights[FEATURES:]


@dataclass
class Arena:
    """One job of the map: the discounted cost of following each candidate's policy along common paths."""

    kept: Floats
    lowest: int
    first: Ints
    last: Ints
    bands: Ints
    at: Ints
    features: Floats
    by_count: Floats
    gamma: float
    paths: Ints
    starts: list[Ints]
    candidates: Floats

    def __call__(self, start: int, stop: int) -> Floats:
        discount = self.gamma ** np.arange(self.paths.shape[1])
        scores = np.empty(stop - start)
        for row in range(start, stop):
            costs, _ = self.follow(self.candidates[row])
            scores[row - start] = float((costs @ discount).mean() / discount.sum())
        return scores

    def follow(self, weights: Floats) -> tuple[Floats, list[Ints]]:
        """The cost of each step of each path, and where each path ends."""
        prices = self.by_count @ weights.reshape(2, FEATURES) @ self.features.T
        costs = np.empty(self.paths.shape)
        ends = [
            direct.rollout(
                self.kept,
                self.starts[i],
                path,
                self.lowest,
                self.first,
                self.last,
                self.bands,
                prices,
                self.at,
                costs[i],
            )
            for i, path in enumerate(self.paths)
        ]
        return costs, ends


def arena(work: Ints, size: Ints, transitions: Transitions, tau: float, gamma: float, least: float) -> Arena:
    """Tables of all node counts for training on fixed loads."""
    sums, kept = intervals.prefix(work), intervals.prefix(size)
    counts = transitions.counts
    firsts, lasts = [], []
    bands = np.zeros((len(counts), counts[-1] + 1, 2), np.int64)
    for row, n in enumerate(counts):
        cap, floor = cap_and_floor(sums, n, tau, least)
        first, last = ssm.windows(sums, cap, floor)
        firsts.append(first)
        lasts.append(last)
        band = band_for(sums, n, cap, floor)
        bands[row, : len(band)] = band
    widest = np.minimum.reduce(firsts)
    at, _, _ = pairs(widest)
    features = interval_features(kept, sums, widest, transitions, tau)
    by_count = np.array([[1.0, (2 * n - counts[0] - counts[-1]) / max(1, counts[-1] - counts[0])] for n in counts])
    nothing = np.zeros((1, 2 * FEATURES))
    return Arena(
        kept / max(1, int(kept[-1])), counts[0], np.array(firsts), np.array(lasts), bands, at, features, by_count,
        gamma, np.zeros((0, 0), np.int64), [], nothing,
    )  # fmt: skip


def train(
    work: Ints,
    size: Ints,
    transitions: Transitions,
    tau: float,
    gamma: float,
    *,
    least: float,
    run: Map,
    seed: int = 0,
    rounds: int = 24,
    population: int = 48,
    paths: int = 6,
) -> Learned:
    """Search for the weights whose policy moves the least, by the cross-entropy method.

    On fixed loads a policy ends in a cycle of few partitions, and SSM stays in a good one that it would never have
    entered. So half of the paths start where SSM alone has led, the others go on from where the policy is.
    """
    rng = np.random.default_rng(seed)
    field = arena(work, size, transitions, tau, gamma, least)
    steps = int(np.clip(3 / max(1e-9, 1 - gamma), 4, 60))
    mean, spread = np.zeros(2 * FEATURES), np.full(2 * FEATURES, 0.4)
    spread[FEATURES:] = 0.2
    plain = np.zeros_like(mean)
    alone = _Places([np.array([0, len(work)], np.int64)] * paths, np.full(paths, transitions.counts[0]))
    alone = alone.after(field, plain, transitions, steps, rng)[1]
    ours = alone
    for turn in range(rounds):
        tried = mean + spread * rng.standard_normal((population, 2 * FEATURES))
        tried[0] = mean
        mixed = _Places(
            [(ours if i % 2 else alone).bounds[i] for i in range(paths)],
            np.where(np.arange(paths) % 2, ours.counts, alone.counts),
        )
        walk = mixed.walk(transitions, steps, rng)
        field = replace(field, paths=walk, starts=mixed.bounds, candidates=tried)
        scores = np.concatenate(run(field, blocks(population, 8)))
        elite = tried[np.argsort(scores, kind="stable")[: population // 6]]
        mean = 0.3 * mean + 0.7 * elite.mean(axis=0)
        spread = 0.3 * spread + 0.7 * elite.std(axis=0) + 0.1 * 0.9**turn * 0.4
        ours = mixed.after(field, mean, transitions, steps, rng)[1]
        alone = alone.after(field, plain, transitions, steps, rng)[1]
    walk = alone.walk(transitions, 100, rng)
    field = replace(field, paths=walk, starts=alone.bounds)
    cost, before = (float(field.follow(weights)[0].mean()) for weights in (mean, plain))
    gain = 1 - cost / before if before > 0 else 0.0
    return Learned(transitions, gamma, tau, mean if gain >= 0 else plain, max(0.0, gain))


@dataclass(frozen=True)
class _Places:
    """Where some paths are now: a partition and a node count each."""

    bounds: list[Ints]
    counts: Ints

    def walk(self, transitions: Transitions, steps: int, rng: np.random.Generator) -> Ints:
        """Random node counts to come, a row for each path."""
        return np.array([transitions.path(int(n), steps, int(rng.integers(1 << 31))) for n in self.counts])

    def after(
        self, field: Arena, weights: Floats, transitions: Transitions, steps: int, rng: np.random.Generator
    ) -> tuple[Floats, _Places]:
        """The costs of following a policy from here, and where that leads."""
        walk = self.walk(transitions, steps, rng)
        costs, ends = replace(field, paths=walk, starts=self.bounds).follow(weights)
        return costs, _Places(ends, walk[:, -1])
