"""A forecast for sizes where no table can be made: a price for each interval, trained by the cross-entropy method.

The partitions of 64 tasks over 8 to 16 nodes number 10^4 to 10^13, so their projected costs are not computed.
Computed instead is a value function that adds up over the intervals of a partition: V(P) = sum of price(interval),
where a price is a weighted sum of eight features and the weights are linear in the number of nodes. Then the best
partition of all, cost now + V, is one call of the programme in direct.py; and training is a search in 16 numbers,
scored by simulated moves. (Least-squares value iteration on the same features did not converge.)

Training never ends worse than SSM on its own validation paths: weights of nought are SSM, and they compete.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

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
        at, starts, ends = pairs(first)
        kept = intervals.prefix(given.size)
        total = max(1, int(kept[-1]))
        features = interval_features(kept, sums, starts, ends, self.transitions, self.tau)
        price = features @ weights_for(self.weights, given.nodes, self.transitions)
        band = intervals.band(sums, given.nodes, cap)
        if floor:
            band[:-1, 1] = np.minimum(band[:-1, 1], len(sums) - 2)
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


def interval_features(
    kept: Ints, sums: Ints, starts: Ints, ends: Ints, transitions: Transitions, tau: float
) -> NDArray[np.float64]:
    """Eight features of each interval; summed over a partition each is of the order of one."""
    size = (kept[ends] - kept[starts]) / max(1, int(kept[-1]))
    work = (sums[ends] - sums[starts]) / max(1, int(sums[-1]))
    lowest, highest = transitions.counts[0], transitions.counts[-1]
    middle = (lowest + highest) / 2
    columns: list[NDArray[np.float64]] = []
    for part in (0.25, 0.5, 0.75, 1.0):
        cap = (1 + tau) / (lowest + part * (highest - lowest))
        columns.append(size * np.maximum(0.0, 1 - cap / np.maximum(work, 1e-12)))
    columns += [np.minimum(size, 0.5 / middle), middle * size**2, middle * work**2]
    columns.append(np.full(len(size), 1 / middle))
    return np.column_stack(columns)


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
        bands[row, : n + 1] = intervals.band(sums, n, cap)
    at, starts, ends = pairs(np.minimum.reduce(firsts))
    features = interval_features(kept, sums, starts, ends, transitions, tau)
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
    """Search for the weights whose policy moves the least, by the cross-entropy method."""
    rng = np.random.default_rng(seed)
    field = arena(work, size, transitions, tau, gamma, least)
    steps = int(np.clip(3 / max(1e-9, 1 - gamma), 4, 60))
    whole = np.array([0, len(work)], np.int64)
    pool = [whole] * paths
    mean, spread = np.zeros(2 * FEATURES), np.full(2 * FEATURES, 0.4)
    spread[FEATURES:] = 0.2
    counts = np.full(paths, transitions.counts[0])
    for turn in range(rounds):
        walk = np.array([transitions.path(int(counts[i]), steps, int(rng.integers(1 << 31))) for i in range(paths)])
        tried = mean + spread * rng.standard_normal((population, 2 * FEATURES))
        tried[0] = mean
        if turn == 0:
            field = replace(field, paths=walk, starts=pool)
            pool = field.follow(mean)[1]
            counts = walk[:, -1]
            walk = np.array([transitions.path(int(n), steps, int(rng.integers(1 << 31))) for n in counts])
        field = replace(field, paths=walk, starts=pool, candidates=tried)
        scores = np.concatenate(run(field, blocks(population, 8)))
        elite = tried[np.argsort(scores, kind="stable")[: population // 6]]
        mean = 0.3 * mean + 0.7 * elite.mean(axis=0)
        spread = 0.3 * spread + 0.7 * elite.std(axis=0) + 0.1 * 0.9**turn * 0.4
        pool = field.follow(mean)[1]
        counts = walk[:, -1]
    return _validated(field, mean, transitions, tau, gamma, pool, counts, rng)


def _validated(
    field: Arena, mean: Floats, transitions: Transitions, tau: float, gamma: float, pool: list[Ints], counts: Ints,
    rng: np.random.Generator,
) -> Learned:  # fmt: skip
    """Measure the weights on fresh paths beside SSM; keep SSM's if they are better."""
    walk = np.array([transitions.path(int(n), 60, int(rng.integers(1 << 31))) for n in counts])
    field = replace(field, paths=walk, starts=pool)
    ours, plain = (float(field.follow(weights)[0].mean()) for weights in (mean, np.zeros_like(mean)))
    gain = 1 - ours / plain if plain > 0 else 0.0
    return Learned(transitions, gamma, tau, mean if gain > 0 else np.zeros_like(mean), max(0.0, gain))
