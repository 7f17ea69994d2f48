"""Every selector against exhaustive search on random plans."""

import itertools
import random

import pytest
from resuming_model import random_plan, to_dag

from kedge.resuming import Speeds, fewest_bytes, select_checkpoints
from kedge.resuming.choose import SUBSETS_MAX
from kedge.resuming.cost import expected_floor_us, expected_us, floor_us, mean_us, worst_us
from kedge.resuming.schemes import everything, halfway, singles


def test_one_checkpoint_all_optimal_ones(lane):
    for seed in lane.seeds(300, 5_000, 50_000):
        plan = random_plan(seed, 9)
        dag, names = to_dag(plan)
        worst = {d: plan.worst([d]) for d in plan.live()}
        best = min(worst.values())
        want = {d for d, w in worst.items() if w == best} if best < plan.worst([]) else set()
        got = singles(dag)
        assert {names[d] for s in got for d in s.saved} == want, seed
        assert [s.bytes for s in got] == sorted(s.bytes for s in got)
        assert all(s.worst_us == best for s in got)


def test_fewest_bytes_for_every_target(lane):
    for seed in lane.seeds(40, 1_000, 10_000):
        plan = random_plan(seed, 5)
        dag, names = to_dag(plan)
        choices = list(plan.choices())
        for target in sorted({w for w, _, _ in choices}):
            fewest = min(b for w, b, _ in choices if w <= target)
            cut = fewest_bytes(dag, target, method="exact")
            assert cut is not None
            assert cut.bytes == fewest, (seed, target)
            assert plan.worst([names[d] for d in cut.chosen]) <= target
            fast = fewest_bytes(dag, target, method="primal-dual")
            assert fast is not None
            assert fast.bytes_bound <= fewest <= fast.bytes
            assert plan.worst([names[d] for d in fast.chosen]) <= target
        unreachable = min(w for w, _, _ in choices) - 1
        assert fewest_bytes(dag, unreachable, method="exact") is None
        assert fewest_bytes(dag, unreachable, method="primal-dual") is None


@pytest.mark.parametrize("method", ["exact", "primal-dual"])
def test_budget(lane, method):
    for seed in lane.seeds(20, 500, 5_000):
        plan = random_plan(seed, 5)
        dag, _ = to_dag(plan)
        choices = list(plan.choices())
        for budget in (0, 3, 8):
            best, fewest = min((w, b) for w, b, _ in choices if b <= budget)
            got = select_checkpoints(dag, budget_bytes=budget, method=method)
            assert got.bytes <= budget
            assert got.worst_us == plan.worst(got.saved)
            assert got.bound_us <= best <= got.worst_us, (seed, budget)
            if method == "exact":
                assert (got.worst_us, got.bytes) == (best, fewest), (seed, budget)
                assert got.exact


def test_write_and_restore_times(lane):
    for seed in lane.seeds(25, 500, 5_000):
        plan = random_plan(seed, 5)
        dag, names = to_dag(plan)
        rates = {"write": 3_000_000, "restore": 4_000_000}
        speeds = Speeds(rates["write"], rates["restore"])
        choices = list(plan.choices(**rates))
        for w, _, chosen in choices[::3]:
            assert worst_us(dag, [names.index(d) for d in chosen], speeds) == w, (seed, chosen)
        best, fewest = min((w, b) for w, b, _ in choices)
        assert floor_us(dag, speeds) <= best
        got = select_checkpoints(dag, speeds=speeds, method="exact")
        assert (got.worst_us, got.bytes) == (best, fewest), seed
        fast = select_checkpoints(dag, speeds=speeds, method="primal-dual")
        assert fast.bound_us <= best <= fast.worst_us, seed


def test_the_floor_is_reached_by_saving_everything(lane):
    for seed in lane.seeds(200, 2_000, 20_000):
        dag, _ = to_dag(random_plan(seed))
        assert everything(dag).worst_us == floor_us(dag)
        assert halfway(dag).worst_us >= floor_us(dag)


def test_expected_time_against_simulated_failures():
    plan = random_plan(12, 7)
    dag, names = to_dag(plan)
    chosen = [names[d] for d in dag.candidates][::2]
    assert chosen
    rate_us, rng = 0.05, random.Random(5)

    def one_life():
        saved, total = {}, 0.0
        while True:
            fail, length = rng.expovariate(rate_us), plan.end(saved)
            if fail >= length:
                return total + length
            total += fail
            made, memo = plan.made_in(saved), {}
            new = {d for d in chosen if d in made and plan.ready(d, saved, memo) <= fail}
            saved = {**saved, **dict.fromkeys(new, 0)}

    lives = 30_000
    seen = sum(one_life() for _ in range(lives)) / lives
    want = expected_us(dag, [names.index(d) for d in chosen], rate_us * 1e6)
    assert want == pytest.approx(seen, rel=0.03)
    assert expected_floor_us(dag, rate_us * 1e6) <= want


def test_expected_goal_is_the_best_of_all_choices_when_they_are_few(lane):
    for seed in lane.seeds(15, 150, 2_000):
        plan = random_plan(seed, 4)
        dag, names = to_dag(plan)
        if 1 << len(dag.candidates) > SUBSETS_MAX:
            continue
        got = select_checkpoints(dag, goal="expected", failures_per_hour=3600 * 50_000, budget_bytes=6)
        fits = [c for _, size, c in plan.choices() if size <= 6]
        best = min(expected_us(dag, [names.index(d) for d in c], 50_000) for c in fits)
        assert got.expected_us == pytest.approx(best)
        assert got.exact
        assert got.bound_us <= best * (1 + 1e-9)


def test_mean_of_one_failure_lies_between_the_end_and_the_worst(lane):
    for seed in lane.seeds(100, 1_000, 5_000):
        plan = random_plan(seed)
        dag, _ = to_dag(plan)
        assert plan.end({}) <= mean_us(dag, dag.candidates) <= worst_us(dag, dag.candidates) or not plan.end({})


def test_fewest_bytes_on_one_worker(lane):
    one = Speeds(workers=1)
    for seed in lane.seeds(10, 150, 1_500):
        dag, _ = to_dag(random_plan(seed, 4))
        sets = [c for n in range(len(dag.candidates) + 1) for c in itertools.combinations(dag.candidates, n)]
        tried = [(worst_us(dag, c, one), dag.bytes_of(c)) for c in sets]
        for target in sorted({worst for worst, _ in tried}):
            cut = fewest_bytes(dag, target, one)
            assert cut is not None
            assert cut.exact
            assert worst_us(dag, cut.chosen, one) <= target, (seed, target)
            assert cut.bytes == min(size for worst, size in tried if worst <= target), (seed, target)
        assert fewest_bytes(dag, min(worst for worst, _ in tried) - 1, one) is None


def test_finite_workers(lane):
    for seed in lane.seeds(30, 300, 3_000):
        plan = random_plan(seed, 5)
        dag, _ = to_dag(plan)
        got = select_checkpoints(dag, speeds=Speeds(workers=1))
        makers = {plan.made_by[d] for d in plan.live()}
        assert got.end_us == sum(plan.operations[o][0] for o in makers)
        assert got.floor_us <= got.worst_us <= 2 * got.end_us
        many = select_checkpoints(dag, speeds=Speeds(workers=50), method="greedy")
        assert many.end_us == plan.end({})
