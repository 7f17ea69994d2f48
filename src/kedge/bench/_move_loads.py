"""Loads for the migration benchmark: what each task works and holds, hour by hour, and how many nodes that needs.

The paper's two applications on made data, since its tweets are not public: word count (Zipf popularity that drifts,
with bursts of a word), and maximal frequent patterns of baskets in a sliding window. And the sample data of the
application queries, its keys spread over tasks by hash. Everything is seeded.
"""

from __future__ import annotations

import itertools
import lzma
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
LOWEST, HIGHEST = 8, 16
_STATE_BYTES = 48  # a word or pattern, its counter and its place in a hash table


@dataclass(frozen=True)
class Hour:
    """Work and bytes of each task in one hour (or slice) of the stream, and its rows."""

    work: Ints
    size: Ints
    rows: int


def spread(keys: NDArray[np.uint64], tasks: int) -> Ints:
    """The task of each key, by splitmix64."""
    x = keys * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((x ^ (x >> np.uint64(31))) % np.uint64(tasks)).astype(np.int64)


def rate(hours: int, seed: int) -> NDArray[np.float64]:
    """Rows per hour: a day's and a week's rhythm, noise that lasts some hours, now and then a burst."""
    rng = np.random.default_rng(seed)
    hour = np.arange(hours)
    day = 1 - 0.45 * np.cos(2 * np.pi * (hour - 4) / 24) - 0.12 * np.cos(2 * np.pi * hour / 168)
    noise = np.empty(hours)
    level = 0.0
    for h in range(hours):
        level = 0.7 * level + 0.1 * rng.standard_normal()
        noise[h] = level
    burst = np.where(rng.random(hours) < 0.02, rng.uniform(0.2, 0.5, hours), 0.0)
    return np.maximum(0.1, day + noise + burst)


def nodes_for(rates: NDArray[np.float64]) -> Ints:
    """Node counts in proportion to the rate, brought into 8 to 16, without repeats (a repeat is no migration)."""
    low, high = float(rates.min()), float(rates.max())
    counts = np.rint(LOWEST + (HIGHEST - LOWEST) * (rates - low) / (high - low)).astype(np.int64)
    return counts[np.concatenate(([True], np.diff(counts) != 0))]


def words(hours: int, tasks: int, *, seed: int, drift: float = 0.02, skew: float = 0.9) -> list[Hour]:
    """Word count: `drift` is the share of words that trade places with a neighbour in popularity each hour."""
    rng = np.random.default_rng(seed)
    vocabulary = 50_000
    task = spread(np.arange(vocabulary, dtype=np.uint64) + np.uint64(seed << 32), tasks)
    popularity = (np.arange(vocabulary) + 1.0) ** -skew
    popularity /= popularity.sum()
    seen = np.zeros(vocabulary, np.bool_)
    found: list[Hour] = []
    for rows in (rate(hours, seed) * 200_000).astype(int):
        trade = rng.random(vocabulary // 2) < drift
        left, right = 2 * np.flatnonzero(trade), 2 * np.flatnonzero(trade) + 1
        popularity[left], popularity[right] = popularity[right], popularity[left]
        popularity[1:-1:2], popularity[2::2] = _traded(popularity[1:-1:2], popularity[2::2], rng, drift)
        counts = rng.poisson(popularity * rows)
        if drift and rng.random() < 0.1:
            counts[rng.integers(vocabulary)] += int(rows * 0.01)
        seen |= counts > 0
        work = np.bincount(task, counts, tasks).astype(np.int64)
        size = np.bincount(task[seen], minlength=tasks).astype(np.int64) * _STATE_BYTES
        found.append(Hour(work, size, int(counts.sum())))
    return found


def _traded(
    left: NDArray[np.float64], right: NDArray[np.float64], rng: np.random.Generator, drift: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    trade = rng.random(len(left)) < drift
    return np.where(trade, right, left), np.where(trade, left, right)


class Baskets:
    """Seeded baskets in the manner of the Quest generator: mixtures of a pool of patterns, with noise."""

    def __init__(self, seed: int, items: int = 400, pool: int = 120, drift: float = 0.02) -> None:
        self.rng = np.random.default_rng(seed)
        self.items, self.drift = items, drift
        self.pool = [self.rng.choice(items, self.rng.integers(2, 5), replace=False) for _ in range(pool)]
        self.weights = self.rng.exponential(size=pool) ** 2

    def draw(self, count: int) -> Iterator[tuple[int, ...]]:
        """The next baskets, of two to eight items; the weights of patterns drift as they come."""
        self.weights *= np.exp(self.drift * self.rng.standard_normal(len(self.weights)))
        chances = self.weights / self.weights.sum()
        for first, second in self.rng.choice(len(self.pool), (count, 2), p=chances):
            noise = self.rng.integers(0, self.items, 2)
            yield tuple(sorted({*self.pool[first][:4].tolist(), *self.pool[second][:2].tolist(), *noise.tolist()}))


def patterns_of(basket: tuple[int, ...], longest: int = 3) -> Iterator[tuple[int, ...]]:
    """All combinations of up to `longest` items: what the generator of the paper's Figure 10 emits."""
    for length in range(1, longest + 1):
        yield from itertools.combinations(basket, length)


def maximal(counts: Counter[tuple[int, ...]], support: int) -> set[tuple[int, ...]]:
    """The frequent patterns that no frequent pattern contains."""
    frequent = {pattern for pattern, count in counts.items() if count >= support}
    inner = {part for p in frequent for n in range(1, len(p)) for part in itertools.combinations(p, n)}
    return frequent - inner


@dataclass
class Patterns:
    """Frequent patterns over a sliding window: each basket counts +1 as it enters and -1 as it leaves."""

    window_s: int
    tasks: int
    seed: int
    per_second: int = 2
    slice_s: int = 30

    def hours(self, count: int) -> Iterator[tuple[Hour, int]]:
        """Loads per slice, and how many maximal frequent patterns there are at its end."""
        baskets = Baskets(self.seed)
        counts: Counter[tuple[int, ...]] = Counter()
        window: list[list[tuple[int, ...]]] = []
        place: dict[tuple[int, ...], int] = {}
        for pace in rate(count + self.window_s // self.slice_s, self.seed):
            entering = list(baskets.draw(int(pace * self.per_second * self.slice_s)))
            window.append(entering)
            leaving = window.pop(0) if len(window) > self.window_s // self.slice_s else []
            work = np.zeros(self.tasks, np.int64)
            for sign, group in ((1, entering), (-1, leaving)):
                for pattern in itertools.chain.from_iterable(map(patterns_of, group)):
                    counts[pattern] += sign
                    if counts[pattern] == 0:
                        del counts[pattern]
                    if pattern not in place:
                        key = sum((item + 1) * 1009**i for i, item in enumerate(pattern))
                        place[pattern] = int(spread(np.array([key], np.uint64), self.tasks)[0])
                    work[place[pattern]] += 1
            if len(window) == self.window_s // self.slice_s:
                size = np.zeros(self.tasks, np.int64)
                for pattern in counts:
                    size[place[pattern]] += _STATE_BYTES
                found = len(maximal(counts, max(3, sum(map(len, window)) // 50)))
                yield Hour(work, size, len(entering)), found


def sample(name: str, key: int, tasks: int, slices: int) -> list[Hour]:
    """A sample file cut into slices of equal time; column `key` is spread over tasks; state is one entry per key."""
    packed = resources.files("kedge.bench").joinpath("data", f"{name}.txt.xz").read_bytes()
    lines = [line.split() for line in lzma.decompress(packed).decode("ascii").splitlines()]
    time = np.array([int(line[0]) for line in lines])
    keys = np.array([int(line[key]) for line in lines])
    task = spread(keys.astype(np.uint64), tasks)
    edges = np.linspace(time[0], time[-1] + 1, slices + 1)
    seen = np.zeros(tasks, np.int64)
    held: set[int] = set()
    found: list[Hour] = []
    for low, high in itertools.pairwise(edges):
        here = (time >= low) & (time < high)
        for one in np.unique(keys[here]):
            if int(one) not in held:
                held.add(int(one))
                seen[spread(np.array([one]).astype(np.uint64), tasks)[0]] += _STATE_BYTES
        found.append(Hour(np.bincount(task[here], minlength=tasks).astype(np.int64), seen.copy(), int(here.sum())))
    return found
