"""Slow models in plain Python, written from the definitions. They share no code with kedge.move."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction
from typing import NamedTuple


class Instance(NamedTuple):
    """One random small move."""

    route: list[int]
    work: list[int]
    size: list[int]
    nodes: int
    tau: float


def instance(seed: int, tasks_max: int = 9, nodes_max: int = 5) -> Instance:
    """A random move: empty loads, zero sizes, ties, shuffled node names, growth and shrinking all occur."""
    rng = random.Random(seed)
    tasks = rng.randint(1, tasks_max)
    old = rng.randint(1, min(tasks, nodes_max))
    cuts = sorted(rng.sample(range(1, tasks), old - 1))
    names = rng.sample(range(old + 2), old)
    route = [names[sum(cut <= t for cut in cuts)] for t in range(tasks)]
    top = rng.choice([1, 3, 20])
    work = [rng.randint(0, top) for _ in range(tasks)]
    size = [rng.randint(0, rng.choice([0, 1, 4, 30])) for _ in range(tasks)]
    return Instance(route, work, size, rng.randint(1, nodes_max), rng.choice([0.0, 0.1, 0.3, 0.6, 1.2]))


def partitions(tasks: int, at_most: int, exactly: bool = False):
    """All ways to cut [0, tasks) into intervals, as lists of (start, end)."""
    for count in range(at_most if exactly else 1, at_most + 1):
        for cuts in itertools.combinations(range(1, tasks), count - 1):
            yield list(itertools.pairwise((0, *cuts, tasks)))


def best_matching(gain: list[list[int]]) -> int:
    """The best one-to-one matching of rows to columns, by trying all."""
    best = {0: 0}
    for row in gain:
        after = dict(best)
        for mask, value in best.items():
            for column, g in enumerate(row):
                if g and not mask >> column & 1:
                    key = mask | 1 << column
                    after[key] = max(after.get(key, -1), value + g)
        best = after
    return max(best.values())


def stays(route: list[int], size: list[int], cut: list[tuple[int, int]]) -> int:
    """The most bytes that stay when the tasks are cut so and the pieces are given to nodes as well as can be."""
    owners = sorted(set(route))
    return best_matching([[sum(size[t] for t in range(a, b) if route[t] == o) for o in owners] for a, b in cut])


def within(cut: list[tuple[int, int]], work: list[int], nodes: int, tau: float, least: float = 0.0) -> bool:
    """Whether a partition keeps the limits, in exact fractions."""
    mean = Fraction(sum(work), nodes)
    loads = [sum(work[a:b]) for a, b in cut]
    high, low = (1 + Fraction(str(tau))) * mean, Fraction(str(least)) * mean
    return all(low <= load <= high for load in loads) and (least == 0 or sum(work) == 0 or len(cut) == nodes)


def least_moved(given: Instance, least: float = 0.0) -> int | None:
    """The fewest bytes that any assignment of intervals within the limits moves; None if there is none."""
    best = None
    exactly = least > 0 and sum(given.work) > 0
    for cut in partitions(len(given.route), given.nodes, exactly):
        if within(cut, given.work, given.nodes, given.tau, least):
            moved = sum(given.size) - stays(given.route, given.size, cut)
            best = moved if best is None else min(best, moved)
    return best


def smallest_cap(given: Instance) -> int:
    """The smallest possible load of the most loaded node."""
    return min(max(sum(given.work[a:b]) for a, b in cut) for cut in partitions(len(given.route), given.nodes))
