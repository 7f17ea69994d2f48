"""The printed Figure 7 is not optimal: each of its three repairs is necessary, and together they are enough.

SSM itself (kedge.move) is right on every instance named here.
"""

from __future__ import annotations

from fractions import Fraction

import oracle
import pytest
from oracle import Instance
from printed import figure_7

from kedge import move

ALL = {"empty_right": True, "all_free": True, "redirect": True}


def kept(one: Instance, **repairs: bool) -> float:
    cap = int((1 + Fraction(str(one.tau))) * sum(one.work) / one.nodes)
    return figure_7(one, cap, **repairs)


@pytest.mark.parametrize(
    ("repair", "one", "found", "best"),
    [
        # two nodes, two tasks, nothing has to move: but the right part may not be empty, so the last node's own
        # interval is only ever counted in the base case, which takes the last of the intervals
        ("empty_right", Instance([0, 1], [1, 1], [1, 1], 3, 0.5), 1, 2),
        # the best plan keeps the left task and gives the right one to a new node: a part that keeps nothing
        ("all_free", Instance([0, 0], [1, 1], [2, 1], 3, 0.5), 1, 2),
        # node 1 has nothing to the right of the cut at 2; skipping that sub-problem loses the best plan
        ("redirect", Instance([0, 1, 2], [1, 1, 2], [2, 1, 1], 2, 0.2), 2, 3),
    ],
)
def test_each_repair_is_necessary(repair: str, one: Instance, found: int, best: int) -> None:
    assert kept(one, **{**ALL, repair: False}) == found
    assert kept(one, **ALL) == best
    plan = move.single(one.route, one.work, one.size, one.nodes, one.tau)
    assert sum(one.size) - plan.cost_bytes == best == sum(one.size) - oracle.least_moved(one)


def test_as_printed_it_finds_no_plan_where_nothing_has_to_move() -> None:
    one = Instance([0, 1], [1, 1], [1, 1], 3, 0.5)
    assert kept(one, empty_right=False, all_free=False, redirect=False) == float("-inf")
    assert move.single(one.route, one.work, one.size, one.nodes, one.tau).cost_bytes == 0


def test_with_all_repairs_it_is_optimal_and_without_them_often_not(lane) -> None:
    feasible = worse = nothing = 0
    for seed in lane.seeds(250, 2_500, 30_000):
        one = oracle.instance(seed, tasks_max=7, nodes_max=4)
        moved = oracle.least_moved(one)
        if moved is None:
            continue
        feasible += 1
        best = sum(one.size) - moved
        assert kept(one, **ALL) == best, (seed, one)
        printed = kept(one, empty_right=False, all_free=False, redirect=False)
        assert printed <= best
        worse += printed < best
        nothing += printed < 0
    assert feasible > 100
    assert 0.1 < worse / feasible < 0.4
    assert nothing > 0
