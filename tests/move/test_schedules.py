"""Transfer phases reach their bound; progressive steps are as few as can be, and every one of them can run."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge import move
from kedge.errors import UsageError
from kedge.move.colouring import Colouring


def random_plan(seed: int, tasks: int = 48) -> move.Plan:
    rng = np.random.default_rng(seed)
    work, size = rng.integers(1, 90, tasks), rng.integers(0, 1000, tasks)
    route = move.single([0] * tasks, work, size, int(rng.integers(2, 9)), 0.2).after
    return move.single(route, work, size, int(rng.integers(2, 9)), 0.2, assign="any" if seed % 2 else "intervals")


@given(st.integers(0, 10**6))
def test_phases_are_matchings_that_carry_every_byte_and_no_schedule_is_shorter(seed: int) -> None:
    plan = random_plan(seed)
    done = move.transfer(plan)
    carried: Counter[tuple[int, int]] = Counter()
    for phase in done.phases:
        assert phase.length_bytes > 0
        for side in (0, 1):
            assert len({pair[side] for pair in phase.pairs}) == len(phase.pairs)
        for source, target, count in phase.pairs:
            assert 0 < count <= phase.length_bytes
            carried[source, target] += count
    sent: Counter[int] = Counter()
    received: Counter[int] = Counter()
    wanted: Counter[tuple[int, int]] = Counter()
    for task, source, target in plan.moves:
        sent[source] += int(plan.size[task])
        received[target] += int(plan.size[task])
        wanted[source, target] += int(plan.size[task])
    assert +carried == +wanted
    busiest = max([*sent.values(), *received.values(), 0])
    assert sum(phase.length_bytes for phase in done.phases) == busiest == done.bound_bytes


@given(st.integers(0, 10**6), st.integers(1, 9), st.sampled_from([1, 2, None]))
def test_steps_are_as_few_as_can_be_and_no_node_is_ever_above_its_limit(
    seed: int, k: int, ports: int | None
) -> None:
    plan = random_plan(seed)
    done = move.progressive(plan, k, ports=ports)
    if not plan.moves:
        assert done.steps == ()
        return
    assert Counter(m for step in done.steps for m in step) == Counter(plan.moves)
    busiest = [-(-len(plan.moves) // k)]
    for side in (1, 2):
        if ports is not None:
            busiest += [-(-n // ports) for n in Counter(m[side] for m in plan.moves).values()]
    assert done.steps_min == max(busiest) <= len(done.steps)
    for step in done.steps:
        assert 0 < len(step) <= k
        for side in (1, 2):
            assert ports is None or max(Counter(m[side] for m in step).values()) <= ports
    worst = _worst(plan, done)
    assert done.balanced == (worst <= 1e-9)
    if done.balanced and len(done.steps) == done.steps_min:
        return
    assert len(done.steps) <= 1.5 * done.steps_min
    assert abs(worst - done.excess) < 1e-9


def _worst(plan: move.Plan, done: move.Steps) -> float:
    """How far any node is above its limit after any step, as a share of the mean load."""

    def loads(route: np.ndarray) -> dict[int, int]:
        return {n: int(plan.work[route == n].sum()) for n in {*plan.before.tolist(), *plan.nodes}}

    mean = plan.work.sum() / len(plan.nodes)
    before, after = loads(plan.before), loads(plan.after)
    limit = {n: max(before[n], after[n], int((1 + plan.tau_effective) * mean + 1e-6)) for n in before}
    routes = done.routes(plan.before)
    assert np.array_equal(routes[-1], plan.after)
    return max(max(0, load - limit[n]) / mean for route in routes for n, load in loads(route).items())


def test_nearly_all_plans_are_balanced_in_the_fewest_steps(lane) -> None:
    seeds = lane.seeds(25, 300, 3_000)
    good = 0
    for seed in seeds:
        plan = random_plan(seed, tasks=32)
        done = move.progressive(plan, 3)
        good += done.balanced and len(done.steps) == done.steps_min
    assert good >= 0.98 * len(seeds)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=60), st.integers(0, 4))
def test_colours_are_matchings_of_nearly_equal_size(edges: list[tuple[int, int]], spare: int) -> None:
    degree = max(max(Counter(e[side] for e in edges).values()) for side in (0, 1))
    colouring = Colouring(edges, degree + spare)
    colouring.even_out()
    for side in (0, 1):
        seen = {(colour, edge[side]) for colour, edge in zip(colouring.colour, edges, strict=True)}
        assert len(seen) == len(edges)
    sizes = Counter(colouring.colour)
    counts = [sizes[c] for c in range(degree + spare)]
    assert max(counts) - min(counts) <= 1
    assert colouring.sizes == counts


def test_a_step_needs_room_for_a_task() -> None:
    with pytest.raises(UsageError, match="at least one task"):
        move.progressive(random_plan(1), 0)
