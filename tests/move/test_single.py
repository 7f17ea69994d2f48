"""SSM against exhaustive search, its limits, its ties and the names it gives."""

from __future__ import annotations

import numpy as np
import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge import move
from kedge.errors import UsageError


def plan_of(given_: oracle.Instance, **options) -> move.Plan:
    return move.single(given_.route, given_.work, given_.size, given_.nodes, given_.tau, **options)


def test_no_assignment_of_intervals_is_cheaper(lane) -> None:
    feasible = 0
    for seed in lane.seeds(500, 6_000, 100_000):
        one = oracle.instance(seed)
        want = oracle.least_moved(one)
        plan = plan_of(one)
        assert plan.widened == (want is None), (seed, one)
        if want is None:
            # the smallest feasible threshold is used, and no plan within it is cheaper
            assert max(plan.loads().values()) <= oracle.smallest_cap(one), (seed, one)
            want = oracle.least_moved(one._replace(tau=plan.tau_effective))
        else:
            feasible += 1
        assert plan.cost_bytes == want, (seed, one)
        assert plan.exact
        assert len(set(plan.after.tolist())) <= one.nodes
    assert feasible > 100


def test_no_assignment_with_a_least_load_is_cheaper(lane) -> None:
    checked = refused = 0
    for seed in lane.seeds(400, 4_000, 50_000):
        one = oracle.instance(seed, tasks_max=8, nodes_max=4)
        least = [0.1, 0.4, 0.8][seed % 3]
        want = oracle.least_moved(one, least)
        try:
            plan = plan_of(one, least=least)
        except UsageError:
            assert want is None
            refused += 1
            continue
        assert plan.widened == (want is None)
        if want is None:
            want = oracle.least_moved(one._replace(tau=plan.tau_effective), least)
        assert plan.cost_bytes == want, (seed, one)
        checked += 1
    assert checked > 50 < refused


def test_a_least_load_that_nothing_can_meet_names_the_largest_that_can() -> None:
    with pytest.raises(UsageError, match=r"at most 0\.2 is feasible") as error:
        move.single([0] * 3, [1, 8, 1], [1] * 3, 2, 0.5, least=0.5)
    assert error.value.code == "least-infeasible"
    assert move.single([0] * 3, [1, 8, 1], [1] * 3, 2, 0.5, least=0.2).loads() == {0: 9, 1: 1}


def test_an_infeasible_threshold_is_refused_when_strict_and_the_smallest_feasible_one_is_named() -> None:
    loads = {"work": [5, 1, 1, 1], "size": [1] * 4}
    with pytest.raises(UsageError, match=r"smallest feasible tau is 0\.25") as error:
        move.single([0] * 4, **loads, nodes=2, tau=0.1, strict=True)
    assert error.value.code == "tau-infeasible"
    plan = move.single([0] * 4, **loads, nodes=2, tau=0.1)
    assert (plan.widened, plan.tau_effective, plan.loads()) == (True, 0.25, {0: 3, 1: 5})
    assert not move.single([0] * 4, **loads, nodes=2, tau=0.25, strict=True).widened


def test_a_tenth_is_a_tenth() -> None:
    # 1.1 * 10 is 11; the nearest double to 0.1 is above a tenth, the one to 1.1 too
    plan = move.single([0] * 3 + [1] * 3, [4, 4, 3, 3, 3, 3], [1] * 6, 2, 0.1)
    assert (plan.cost_bytes, plan.widened) == (0, False)


def test_a_route_within_the_limits_is_left_alone_even_where_tasks_weigh_nothing() -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        route = np.sort(rng.integers(0, 4, 20))
        work = rng.integers(0, 5, 20)
        size = rng.integers(0, 2, 20)
        tau = 4.0
        plan = move.single(route, work, size, len(set(route.tolist())), tau)
        assert plan.moves == []


def test_among_equal_bytes_fewer_tasks_move() -> None:
    # the cut is after task 2, and either side may go: three tasks or one, six bytes each
    plan = move.single([0] * 4, [2, 2, 2, 6], [2, 2, 2, 6], 2, 0.0)
    assert plan.moves == [(3, 0, 1)]


@given(st.integers(0, 10**6))
def test_reading_the_tasks_backwards_or_renaming_nodes_changes_no_cost(seed: int) -> None:
    one = oracle.instance(seed, tasks_max=30, nodes_max=7)
    cost = plan_of(one).cost_bytes
    mirrored = one._replace(route=one.route[::-1], work=one.work[::-1], size=one.size[::-1])
    renamed = one._replace(route=[50 - node for node in one.route])
    assert plan_of(mirrored).cost_bytes == cost == plan_of(renamed).cost_bytes


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.2, 0.5, 1.5]))
def test_more_room_never_costs_more(seed: int, more: float) -> None:
    one = oracle.instance(seed, tasks_max=40, nodes_max=9)
    tight, loose = plan_of(one), plan_of(one._replace(tau=one.tau + more))
    assert loose.cost_bytes <= tight.cost_bytes


def test_named_nodes_serve_and_all_others_are_emptied(lane) -> None:
    for seed in lane.seeds(200, 2_000, 20_000):
        one = oracle.instance(seed)
        nodes = sorted({(node * 7 + seed) % 9 for node in range(one.nodes)})
        plan = move.single(one.route, one.work, one.size, nodes, one.tau)
        assert set(plan.after.tolist()) <= set(nodes) == set(plan.nodes)
        # what leaves has to move: the same loads with nothing to keep on those nodes cost as much
        kept = [s if node in nodes else 0 for node, s in zip(one.route, one.size, strict=True)]
        gone = sum(one.size) - sum(kept)
        relative = one._replace(size=kept, nodes=len(nodes), tau=plan.tau_effective)
        assert plan.cost_bytes == oracle.least_moved(relative) + gone, (seed, one)


def test_old_nodes_stay_before_new_ones_come() -> None:
    grown = move.single([3, 3, 3, 5, 5, 5], [1] * 6, [1] * 6, 3, 0.0)
    assert grown.nodes == (0, 3, 5)
    shrunk = move.single([0, 0, 1, 1, 2, 2], [1] * 6, [9, 9, 1, 1, 9, 9], 2, 0.0)
    assert shrunk.nodes == (0, 2)
    assert shrunk.cost_bytes == 2
    assert move.single([0, 0, 1, 1], [1] * 4, [1] * 4, 2, 0.0).nodes == (0, 1)


def test_work_in_fractions_is_planned_like_the_same_work_in_whole_numbers() -> None:
    rng = np.random.default_rng(11)
    for _ in range(40):
        work, size = rng.integers(1, 50, 30), rng.integers(0, 90, 30)
        route = np.sort(rng.integers(0, 5, 30))
        whole = move.single(route, work, size, 6, 0.3)
        parts = move.single(route, work / 7.0, size, 6, 0.3)
        assert np.array_equal(whole.after, parts.after)
