"""Arbitrary maps: the limits hold, the bound is a bound, and small instances are nearly always solved."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import oracle
import pytest

from kedge import move
from kedge.errors import UsageError


def all_maps(one: oracle.Instance, high: Fraction, low: Fraction) -> int | None:
    """The fewest bytes that any map within [low, high] moves, by trying every one."""
    owners = sorted(set(one.route))
    best = None
    for places in itertools.product(range(one.nodes), repeat=len(one.route)):
        loads = [sum(w for w, p in zip(one.work, places, strict=True) if p == n) for n in range(one.nodes)]
        if max(loads) > high or min(loads) < low:
            continue
        gain = [[0] * len(owners) for _ in range(one.nodes)]
        for task, place in enumerate(places):
            gain[place][owners.index(one.route[task])] += one.size[task]
        moved = sum(one.size) - oracle.best_matching(gain)
        best = moved if best is None else min(best, moved)
    return best


def scattered(seed: int) -> oracle.Instance:
    one = oracle.instance(seed, tasks_max=6, nodes_max=3)
    rng = np.random.default_rng(seed)
    return one._replace(route=[int(n) for n in rng.integers(0, 3, len(one.route))])


def test_bound_and_plan_enclose_the_best_of_all_maps(lane) -> None:
    optimal = count = 0
    for seed in lane.seeds(18, 300, 3_000):
        one = scattered(seed)
        least = 0.3 if seed % 4 == 0 else 0.0
        mean = Fraction(sum(one.work), one.nodes)
        low = Fraction(str(least)) * mean
        try:
            plan = move.single(one.route, one.work, one.size, one.nodes, one.tau, assign="any", least=least)
        except UsageError:
            assert least > 0
            continue
        assert (min(plan.loads().values()) >= low) or sum(one.work) == 0
        asked = all_maps(one, (1 + Fraction(str(one.tau))) * mean, low)
        assert plan.widened == (asked is None), (seed, one)
        best = asked if asked is not None else all_maps(one, (1 + Fraction(str(plan.tau_effective))) * mean, low)
        assert best is not None
        assert plan.bound_bytes <= best <= plan.cost_bytes, (seed, one)
        optimal += plan.cost_bytes == best
        count += 1
    assert optimal >= 0.94 * count > 10


def test_maps_cost_no_more_than_intervals_and_less_at_tight_balance(lane) -> None:
    total = {"intervals": 0, "any": 0, "bound": 0}
    for seed in lane.seeds(4, 20, 200):
        rng = np.random.default_rng(seed)
        work = rng.integers(20, 200, 64)
        size = rng.integers(20, 200, 64)
        route = move.single([0] * 64, work, size, 10, 0.1).after
        intervals = move.single(route, work, size, 11, 0.1)
        plan = move.single(route, work, size, 11, 0.1, assign="any")
        assert plan.tau_reached <= 0.1 or plan.widened
        # where intervals can't keep tau they got a wider one
        assert plan.cost_bytes <= intervals.cost_bytes or plan.tau_effective < intervals.tau_effective
        total["intervals"] += intervals.cost_bytes
        total["any"] += plan.cost_bytes
        total["bound"] += plan.bound_bytes
    assert total["any"] <= 2 / 3 * total["intervals"]
    assert total["any"] <= 1.15 * total["bound"]


def test_the_same_seed_gives_the_same_map() -> None:
    rng = np.random.default_rng(1)
    work, size, route = rng.integers(1, 99, 50), rng.integers(1, 99, 50), rng.integers(0, 6, 50)
    plans = [move.single(route, work, size, 7, 0.1, assign="any", seed=3) for _ in range(2)]
    assert np.array_equal(plans[0].after, plans[1].after)


def test_an_infeasible_threshold_names_what_was_met_and_what_cannot_be() -> None:
    with pytest.raises(UsageError, match=r"smallest tau that was met is 0\.5, and none below 0\.5") as error:
        move.single([0, 0, 1], [6, 1, 1], [1] * 3, 2, 0.1, assign="any", strict=True)
    assert error.value.code == "tau-infeasible"


def test_named_nodes_are_the_only_ones_used() -> None:
    plan = move.single([0, 1, 0, 1, 2, 2], [1] * 6, [5] * 6, [2, 9], 0.0, assign="any")
    assert set(plan.after.tolist()) == {2, 9} == set(plan.nodes)
    assert plan.cost_bytes == 20 == plan.bound_bytes
