"""Compiled kernels do what their own source does uncompiled, and the two dynamic programmes agree."""

from __future__ import annotations

import itertools

import numpy as np
import oracle

from kedge.move import anymap, bounds, direct, intervals, phases, ssm
from kedge.move.learn import pairs
from kedge.move.limits import problem, share


def tables(seed: int, tasks_max: int = 24):
    one = oracle.instance(seed, tasks_max=tasks_max, nodes_max=6)
    given = problem(one.route, one.work, one.size, one.nodes)
    sums = intervals.prefix(given.work)
    cap = max(share(int(sums[-1]), one.nodes, one.tau), int(intervals.bottleneck(sums, one.nodes)))
    return given, sums, cap, intervals.runs(given.route)[0]


def test_ssm_compiled_and_not(lane) -> None:
    for seed in lane.seeds(15, 100, 2_000):
        given, sums, cap, old = tables(seed)
        kept = intervals.prefix(given.weights())
        first, last = ssm.windows(sums, cap, 0)
        assert all(
            np.array_equal(x, y) for x, y in zip((first, last), ssm.windows.py_func(sums, cap, 0), strict=True)
        )
        band = intervals.band(sums, given.nodes, cap)
        fast = ssm.layers(kept, old, first, last, band)
        slow = ssm.layers.py_func(kept, old, first, last, band)
        assert all(np.array_equal(x, y) for x, y in zip(fast, slow, strict=True))
        count = 1 + int(np.argmax(fast[0][1:, -1]))
        cut = ssm.trace(*fast, kept, sums, old, first, last, count)
        again = ssm.trace.py_func(*fast, kept, sums, old, first, last, count)
        assert all(np.array_equal(x, y) for x, y in zip(cut, again, strict=True))


def test_both_programmes_find_the_same_value(lane) -> None:
    for seed in lane.seeds(60, 600, 20_000):
        given, sums, cap, old = tables(seed)
        kept = intervals.prefix(given.size)
        first, last = ssm.windows(sums, cap, 0)
        band = intervals.band(sums, given.nodes, cap)
        best = int(ssm.layers(kept, old, first, last, band)[0][1:, -1].max())
        at, starts, _ = pairs(first)
        free = np.zeros(len(starts))
        none, nowhere = np.zeros(0), np.zeros(0, np.int64)
        found, stays, paid = direct.best_bounds(kept.astype(float), old, none, nowhere, first, last, free, at, band)
        assert (stays, paid) == (best, 0.0)
        assert intervals.kept(kept, old, found) == best
        # a route before and the same one after: whatever is kept is kept twice
        floats = kept.astype(float)
        assert direct.best_bounds(floats, old, floats, old, first, last, free, at, band)[1] == 2 * best


def test_prices_are_paid(lane) -> None:
    """One price on every interval but one: the programme takes the cheapest cut, as listing all cuts says."""
    for seed in lane.seeds(40, 400, 5_000):
        given, sums, cap, old = tables(seed, tasks_max=8)
        rng = np.random.default_rng(seed)
        first, last = ssm.windows(sums, cap, 0)
        at, starts, ends = pairs(first)
        price = rng.integers(0, 40, len(starts)).astype(float)
        cost = {(int(a), int(b)): p for a, b, p in zip(starts, ends, price, strict=True)}
        size = given.size.tolist()
        route = given.route.tolist()
        cuts = [cut for cut in oracle.partitions(len(size), given.nodes) if all(pair in cost for pair in cut)]
        want = max(oracle.stays(route, size, cut) - sum(cost[pair] for pair in cut) for cut in cuts)
        kept = intervals.prefix(given.size).astype(float)
        band = intervals.band(sums, given.nodes, cap)
        _, stays, paid = direct.best_bounds(
            kept, old, np.zeros(0), np.zeros(0, np.int64), first, last, price, at, band
        )
        assert stays - paid == want, seed


def test_matchings_along_the_staircase_are_the_best(lane) -> None:
    for seed in lane.seeds(200, 2_000, 50_000):
        rng = np.random.default_rng(seed)
        tasks = int(rng.integers(1, 12))
        before, after = (
            np.array([0, *sorted(rng.integers(0, tasks + 1, rng.integers(0, 5))), tasks]) for _ in range(2)
        )
        sums = intervals.prefix(rng.integers(0, 6, tasks))
        lows, highs = np.maximum.outer(after[:-1], before[:-1]), np.minimum.outer(after[1:], before[1:])
        shared = np.where(highs > lows, sums[highs] - sums[np.minimum(lows, tasks)], 0)
        best = oracle.best_matching(shared.tolist())
        match = intervals.matching(sums, before, after)
        chosen = [(j, int(i)) for j, i in enumerate(match) if i >= 0]
        assert len({i for _, i in chosen}) == len(chosen)
        assert sum(shared[pair] for pair in chosen) == best == intervals.kept(sums, before, after)


def test_the_knapsack_bound_is_exact_and_falls_back_to_a_bound(lane) -> None:
    for seed in lane.seeds(100, 1_000, 20_000):
        rng = np.random.default_rng(seed)
        work, size = rng.integers(1, 12, 8), rng.integers(0, 12, 8)
        order = np.argsort(size / work, kind="stable")
        excess = int(rng.integers(1, work.sum() + 1))
        subsets = [[i for i in range(8) if mask >> i & 1] for mask in range(256)]
        best = min(sum(size[s]) for s in subsets if sum(work[s]) >= excess)
        assert bounds.cover(work[order], size[order], excess, 100_000) == best
        assert bounds.cover(work[order], size[order], excess, 1) <= best


def test_the_other_kernels_compiled_and_not(lane) -> None:
    for seed in lane.seeds(3, 15, 150):
        given, sums, cap, old = tables(seed, tasks_max=14)
        rng = np.random.default_rng(seed)
        first, last = ssm.windows(sums, cap, 0)
        at, starts, _ = pairs(first)
        kept = intervals.prefix(given.size).astype(float)
        band = intervals.band(sums, given.nodes, cap)
        new = np.array([0, *sorted(rng.integers(0, given.tasks + 1, 2)), given.tasks])
        call = (kept, old, kept, new, first, last, rng.random(len(starts)), at, band)
        fast, slow = direct.best_bounds(*call), direct.best_bounds.py_func(*call)
        assert np.array_equal(fast[0], slow[0])
        assert fast[1:] == slow[1:]
        home = rng.integers(-1, given.nodes, given.tasks)
        start = rng.integers(0, given.nodes, given.tasks)
        search = (home, given.work, given.size, given.nodes, (cap, 0), start, 800, seed)
        fast, slow = anymap._anneal(*search), anymap._anneal.py_func(*search)
        assert fast[0] == slow[0]
        assert np.array_equal(fast[1], slow[1])
        if cap:
            # equal profits are common, so the bound itself may differ with the order of a sort
            profit, units = rng.normal(size=given.tasks), given.work * 1000 // cap
            taken = np.zeros((2, given.tasks), np.bool_)
            best = bounds._knapsack(profit, units, taken[0])
            assert best == bounds._knapsack.py_func(profit, units, taken[1])
            assert np.array_equal(taken[0], taken[1])
            assert units[taken[0]].sum() <= 1000
            assert np.isclose(profit[taken[0]].sum(), best)


def test_phases_compiled_and_not(lane) -> None:
    for seed in lane.seeds(10, 60, 600):
        rng = np.random.default_rng(seed)
        size = int(rng.integers(1, 7))
        weights = sum(
            int(rng.integers(1, 9)) * np.eye(size, dtype=np.int64)[rng.permutation(size)] for _ in range(4)
        )
        fast, slow = np.full(size, -1), np.full(size, -1)
        assert phases._matched(weights, fast) == phases._matched.py_func(weights, slow)
        assert np.array_equal(fast, slow)
        assert sorted(fast.tolist()) == list(range(size))
        # the smallest entry of the matching is as large as can be
        best = max(min(weights[range(size), list(order)]) for order in itertools.permutations(range(size)))
        assert int(weights[np.arange(size), fast].min()) == best
