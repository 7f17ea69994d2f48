"""What the planners take and refuse: odd numbers, odd shapes, and the edges of every range."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from xml.etree import ElementTree

import numpy as np
import pytest

from kedge import move
from kedge.errors import UsageError

BOTH = pytest.mark.parametrize("assign", ["intervals", "any"])
CALL = {"assignment": [0, 0, 1], "work": [1, 1, 1], "size": [1, 1, 1], "nodes": 2, "tau": 0.5}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"assignment": [0, 1, 0]}, "more than one interval"),
        ({"assignment": [0, -1, 1]}, "node numbers"),
        ({"assignment": [0, 0.5, 1]}, "node numbers"),
        ({"assignment": ["a", "b", "c"]}, "node numbers"),
        ({"assignment": [0, 0, 1 << 40]}, "smaller one"),
        ({"assignment": []}, "non-empty"),
        ({"assignment": 0}, "non-empty"),
        ({"work": [1, 2]}, "one number of work"),
        ({"work": [[1], [1, 2], 3]}, "one number of work"),
        ({"work": [1, None, 1]}, "one number of work"),
        ({"work": ["1", "2", "3"]}, "one number of work"),
        ({"work": [1, math.nan, 1]}, "finite"),
        ({"work": [1, math.inf, 1]}, "finite"),
        ({"work": [1, -1, 1]}, "0 or more"),
        ({"size": [2**62, 2**62, 2**62]}, "kilobytes"),
        ({"size": [2**90, 1, 1]}, "kilobytes"),
        ({"size": [1, -2, 3]}, "0 or more"),
        ({"size": [1.5, 2, 3]}, "whole bytes"),
        ({"size": [2**60, 1, 1]}, "kilobytes"),
        ({"nodes": 0}, "1 to 65,536"),
        ({"nodes": 10**9}, "1 to 65,536"),
        ({"nodes": 2.5}, "how many nodes"),
        ({"nodes": "2"}, "how many nodes"),
        ({"nodes": None}, "how many nodes"),
        ({"nodes": []}, "how many nodes"),
        ({"nodes": [1, 1]}, "once"),
        ({"nodes": [-1, 1]}, "once"),
        ({"tau": -0.5}, "0 or more"),
        ({"tau": math.nan}, "finite"),
        ({"tau": math.inf}, "finite"),
        ({"tau": None}, "finite"),
        ({"least": 2.0}, "from 0 to 1"),
        ({"least": math.nan}, "finite"),
        ({"assign": "all"}, "intervals"),
    ],
)
def test_a_wrong_call_says_what_is_wrong(change: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        move.single(**{**CALL, **change})


@BOTH
@pytest.mark.parametrize(
    ("change", "cost"),
    [
        ({"assignment": [0], "work": [1], "size": [9], "nodes": 1}, 0),
        ({"assignment": [4], "work": [1], "size": [9], "nodes": 3}, 0),
        ({"assignment": [4], "work": [1], "size": [9], "nodes": [0]}, 9),
        ({"work": [0, 0, 0]}, 0),
        ({"work": [0, 0, 0], "nodes": 1, "size": [3, 3, 1]}, 1),
        ({"size": [0, 0, 0], "nodes": 3}, 0),
        ({"nodes": 7}, 1),
        ({"nodes": 65_536}, 1),
        ({"tau": 1e300}, 0),
        ({"nodes": {0, 1}}, 0),
        ({"nodes": range(2)}, 0),
        ({"nodes": np.int32(2), "tau": np.float32(0.5)}, 0),
        ({"assignment": np.array([0.0, 0.0, 1.0])}, 0),
        ({"assignment": [7, 7, 2**31 - 1]}, 0),
        ({"work": [2**59, 2**59, 2**59]}, 0),
        ({"work": [2**63 - 1] * 3}, 0),
        ({"work": [2**90, 2**90, 2**91]}, 0),
        ({"work": np.array([2**63, 2**63, 2**63], np.uint64)}, 0),
        ({"work": [1e300, 1e300, 1.5e300]}, 0),
        ({"work": [1e-310, 1e-310, 1e-310]}, 0),
    ],
)
def test_the_edges_of_every_range_are_planned(change: dict, cost: int, assign: str) -> None:
    plan = move.single(**{**CALL, **change}, assign=assign)  # type: ignore[arg-type]
    assert (plan.cost_bytes, plan.bound_bytes) == (cost, cost)
    assert plan.cost_bytes == int(plan.size[plan.before != plan.after].sum())
    json.dumps(plan.to_json())


@BOTH
def test_decimals_are_exact_and_loads_are_in_the_callers_unit(assign: str) -> None:
    # in binary fractions 0.1 + 0.2 is not 0.3
    plan = move.single([0, 0, 1], [0.1, 0.2, 0.3], [1] * 3, 2, 0.0, assign=assign)  # type: ignore[arg-type]
    assert (plan.cost_bytes, plan.widened) == (0, False)
    assert plan.loads() == {0: 0.3, 1: 0.3} == plan.loads_before()
    third = move.single([0, 0, 1], [1 / 3, 1 / 3, 2 / 3], [1] * 3, 2, 0.01, assign=assign)  # type: ignore[arg-type]
    assert third.loads() == pytest.approx({0: 2 / 3, 1: 2 / 3})


def test_the_bound_stays_a_bound_where_work_times_bytes_is_beyond_64_bits() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        work, size = rng.random(24), rng.integers(1, 1 << 40, 24)
        route = rng.integers(0, 3, 24)
        plan = move.single(route, work, size, 4, 0.3, assign="any")
        coarse = move.single(route, np.rint(work * 1000).astype(int) + 1, size >> 20, 4, 0.3, assign="any")
        assert plan.bound_bytes <= plan.cost_bytes
        assert plan.bound_bytes <= (coarse.cost_bytes << 20) * 1.1
        assert plan.bound_bytes >= 0.8 * (coarse.bound_bytes << 20)


def test_a_least_load_that_more_nodes_than_tasks_need_is_refused() -> None:
    for assign in ("intervals", "any"):
        with pytest.raises(UsageError):
            move.single([0, 0, 1], [1] * 3, [1] * 3, 7, 0.0, least=0.1, assign=assign)  # type: ignore[arg-type]
    for method in ("auto", "learned"):
        with pytest.raises(UsageError, match="smaller least"):
            move.precompute([1, 50, 1], [1] * 3, move.learned([2, 3, 2]), 0.5, least=0.9, method=method)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="smaller least"):
        move.sequence([0] * 3, [1, 50, 1], [1] * 3, [2, 3], 0.5, least=0.9)


def test_a_threshold_may_be_any_number_and_is_reported_as_a_plain_one() -> None:
    for tau in (Fraction(1, 2), np.float32(0.5), 0.5, "0.5"):
        plan = move.single(**{**CALL, "tau": tau})
        assert (plan.tau, plan.tau_effective) == (0.5, 0.5)
    assert move.single([0] * 3 + [1] * 3, [4, 4, 3, 3, 3, 3], [1] * 6, 2, np.float32(0.1)).moves == []


@pytest.mark.parametrize("nodes", [[], [0], [2, -1], [2.5], 3, None, ["a"], [[2]]])
def test_a_sequence_is_of_node_counts(nodes: object) -> None:
    with pytest.raises(UsageError, match="node counts"):
        move.sequence([0, 0, 1], [1] * 3, [1] * 3, nodes, 0.1)  # type: ignore[arg-type]


def test_methods_have_names_and_limits() -> None:
    with pytest.raises(UsageError, match="method is"):
        move.sequence([0, 1], [1, 1], [1, 1], [2], 0.1, method="best")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="can be listed"):
        move.sequence([0] * 200, [1] * 200, [1] * 200, [8], 0.4, method="exact")
    chances = move.learned([2, 3, 2])
    for gamma in (1.0, -0.1, math.nan):
        for method in ("exact", "learned"):
            with pytest.raises(UsageError, match="below 1"):
                move.precompute([1] * 9, [1] * 9, chances, 0.1, gamma=gamma, method=method)  # type: ignore[arg-type]
    table = move.precompute([1] * 9, [1] * 9, chances, 0.4)
    with pytest.raises(UsageError, match="for 9 tasks"):
        move.aware([0] * 8, [1] * 8, [1] * 8, 3, 0.4, table)


@pytest.mark.parametrize("history", [[], [2], ["a", "b"], [2.5, 3], [0, 1], [[2, 3]]])
def test_a_history_is_of_node_counts(history: list) -> None:
    with pytest.raises(UsageError, match="history"):
        move.learned(history)


@pytest.mark.parametrize("matrix", [[[1], [1, 2]], {2: 1.0}, [[math.nan]], [[0.5, 0.5]], [[1.5, -0.5], [0, 1]], []])
def test_a_matrix_is_of_probabilities(matrix: object) -> None:
    with pytest.raises(UsageError, match="transition matrix"):
        move.transitions(matrix, 2)  # type: ignore[arg-type]


def test_a_plan_unpacks_and_shows_itself() -> None:
    plan = move.single([0] * 6 + [1] * 6, [1] * 12, [5] * 12, 3, 0.0)
    assignment, cost = plan
    assert np.array_equal(assignment, plan.after)
    assert cost == plan.cost == plan.cost_bytes == 20
    assert np.array_equal(plan.assignment, plan.after)
    course = move.sequence([0] * 6 + [1] * 6, [1] * 12, [5] * 12, [3, 2], 0.0)
    assert [len(one.nodes) for one in course] == [3, 2]
    assert len(course) == 2
    assert all(one.bound_bytes <= one.cost_bytes for one in course)
    steps = move.progressive(plan, 2)
    assert [len(step) for step in steps] == [1] * 4  # the new node takes one at a time
    assert len(steps) == 4
    for shown in (plan, course, steps, move.transfer(plan)):
        html = shown._repr_html_()
        assert html.count("<div>") == html.count("</div>") == 1
        assert "<table>" in html
        ElementTree.fromstring(html.replace("<br>", "<br/>"))
        json.dumps(shown.to_json())
    assert plan._repr_html_().count("<svg") == 2
    widened = move.single([0] * 4, [5, 1, 1, 1], [1] * 4, 2, 0.1)
    assert "smallest feasible tau is 0.25" in widened._repr_html_()
    assert "<table>" not in move.single([0, 1], [1, 1], [1, 1], 2, 0.0)._repr_html_()


@pytest.mark.parametrize("per_step", [0, -1, 1.5, None, "4"])
def test_a_step_has_a_whole_number_of_tasks(per_step: object) -> None:
    plan = move.single([0] * 6, [1] * 6, [1] * 6, 2, 0.0)
    with pytest.raises(UsageError, match="at least one task"):
        move.progressive(plan, per_step)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="at least one port"):
        move.progressive(plan, 1, ports=0)
