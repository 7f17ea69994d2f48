"""The baselines are what was published, and no planner with the same limits is beaten by one."""

from __future__ import annotations

import numpy as np
import pytest

from kedge import move
from kedge.errors import UsageError


def test_equal_counts_are_equal_and_consecutive() -> None:
    plan = move.equal_counts([0] * 10, [1] * 10, [7] * 10, 4)
    assert plan.after.tolist() == [0, 0, 0, 1, 1, 2, 2, 2, 3, 3]
    assert plan.cost_bytes == 49
    assert plan.tau_reached == pytest.approx(0.2)


def test_a_ring_moves_only_to_a_node_that_comes_or_from_one_that_goes() -> None:
    zeros, ones = [0] * 500, [1] * 500
    for seed in range(3):
        small = move.consistent_hashing(zeros, ones, ones, 9, seed=seed).after
        grown = move.consistent_hashing(small, ones, ones, 10, seed=seed)
        assert {target for _, _, target in grown.moves} == {9}
        assert 20 < len(grown.moves) < 90
        back = move.consistent_hashing(grown.after, ones, ones, 9, seed=seed)
        assert np.array_equal(back.after, small)
        counts = np.bincount(small, minlength=9)
        assert counts.max() < 2 * counts.mean() < 4 * counts.min()


def test_rings_of_other_seeds_differ() -> None:
    rings = [
        move.consistent_hashing([0] * 64, [1] * 64, [1] * 64, 8, seed=seed).after.tolist() for seed in range(4)
    ]
    assert len({tuple(ring) for ring in rings}) == 4


def test_redist_keeps_the_limit_where_it_can_and_leaves_a_balanced_route_alone() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        work, size = rng.integers(1, 30, 64), rng.integers(1, 30, 64)
        first = move.redist([0] * 64, work, size, 8, 0.2)
        assert first.tau_reached <= 0.2
        assert move.redist(first.after, work, size, 8, 0.2).moves == []


def test_no_baseline_within_the_limits_is_cheaper(lane) -> None:
    for seed in lane.seeds(9, 90, 600):
        _compare(seed, [0.1, 0.3, 0.8][seed % 3])


def _compare(seed: int, tau: float) -> None:
    rng = np.random.default_rng(seed)
    work, size = rng.integers(10, 40, 32), rng.integers(0, 40, 32)
    nodes = int(rng.integers(2, 7))
    route = move.equal_counts([0] * 32, work, size, int(rng.integers(2, 7))).after
    intervals = move.single(route, work, size, nodes, tau)
    anyhow = move.single(route, work, size, nodes, tau, assign="any")
    rivals = [
        move.equal_counts(route, work, size, nodes),
        move.redist(route, work, size, nodes, tau),
        move.consistent_hashing(route, work, size, nodes, seed=seed),
    ]
    assert anyhow.cost_bytes <= intervals.cost_bytes or anyhow.tau_effective < intervals.tau_effective
    for rival in rivals:
        if rival.tau_reached <= tau:
            assert anyhow.bound_bytes <= anyhow.cost_bytes <= rival.cost_bytes
    if rivals[0].tau_reached <= tau:
        assert intervals.cost_bytes <= rivals[0].cost_bytes


def test_baselines_number_their_nodes() -> None:
    with pytest.raises(UsageError, match="give a count"):
        move.equal_counts([0, 1], [1, 1], [1, 1], [3, 4])  # type: ignore[arg-type]
