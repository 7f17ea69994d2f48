"""The paper's errors, one test each (design.md section 11)."""

import pytest
from resuming_model import random_plan, to_dag

from kedge.errors import UsageError
from kedge.resuming import Datum, Operation, Speeds, build, select_checkpoints
from kedge.resuming.cost import worst_us
from kedge.resuming.dag import from_tasks
from kedge.resuming.pieces import split
from kedge.resuming.schedule import schedule
from kedge.resuming.schemes import halfway, singles


def chain(*seconds, sizes=None):
    names = [f"s{i}" for i in range(len(seconds))]
    sizes = sizes or [1] * len(seconds)
    return from_tasks(
        {
            name: {"seconds": seconds[i], "bytes": sizes[i], "inputs": names[max(0, i - 1) : i]}
            for i, name in enumerate(names)
        }
    )


def test_loss_before_a_checkpoint_is_its_whole_depth_not_minus_one():
    assert worst_us(chain(6e-6, 4e-6), [0]) == 10 + 6  # the text's "minus one" would make 15


def test_one_checkpoint_never_exceeds_a_quarter(lane):
    for seed in lane.seeds(300, 3_000, 20_000):
        dag, _ = to_dag(random_plan(seed, 10))
        for s in singles(dag):
            assert 2 * s.worst_us >= 3 * schedule(dag).end_us  # table 1 prints 29.5% and 29.8%


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_k_ideal_cuts_give_k_over_two_k_plus_two(k):
    got = select_checkpoints(chain(*[1] * (k + 1)))
    assert len(got.saved) == k
    assert got.reduction == pytest.approx(k / (2 * (k + 1)))


def test_the_longest_operation_of_a_chain_bounds_its_ceiling():
    for lengths in ([1, 8, 1], [3, 3, 4], [1] * 10):
        got = select_checkpoints(chain(*lengths))
        assert got.ceiling == pytest.approx((1 - max(lengths) / sum(lengths)) / 2)


def test_effective_means_on_every_critical_path_and_strictly_inside(lane):
    two_ways = from_tasks(
        {
            "a": {"seconds": 1},
            "b": {"seconds": 2, "inputs": ["a"]},
            "c": {"seconds": 2, "inputs": ["a"]},
            "end": {"seconds": 1, "inputs": ["b", "c"]},
        }
    )
    assert [two_ways.names(s.saved) for s in singles(two_ways)] == [("a",)]


def test_halfway_gives_a_quarter_at_best_and_loses_running_work():
    assert 1 - halfway(chain(1, 1)).worst_us / 4e6 == pytest.approx(0.25)  # not the printed 33%
    assert 1 - halfway(chain(1, 8, 1)).worst_us / 20e6 == pytest.approx(0.05)  # the long one is lost


def test_operations_without_inputs_start_at_zero():
    dag = from_tasks({"read": {"seconds": 2}, "end": {"seconds": 3, "inputs": ["read"]}})
    assert schedule(dag).end_us == 5_000_000


def test_several_results_end_together():
    dag = from_tasks({"a": {"seconds": 4}, "b": {"seconds": 6}})
    assert schedule(dag).end_us == 6_000_000
    assert singles(dag) == []


def test_dead_operations_are_dropped():
    operations = [Operation("live", 1, (), (0,)), Operation("dead", 9, (), (1,))]
    dag = build([Datum("x"), Datum("y")], operations, results=[0])
    assert [op.name for op in dag.operations] == ["live"]
    assert schedule(dag).end_us == 1


def test_ties_go_to_the_fewest_bytes():
    dag = build(
        [Datum("big", 100), Datum("small", 1), Datum("end")],
        [Operation("half", 5, (), (0,)), Operation("shrink", 0, (0,), (1,)), Operation("rest", 5, (1,), (2,))],
    )
    assert [dag.names(s.saved) for s in singles(dag)] == [("small",), ("big",)]
    assert select_checkpoints(dag).saved == ("small",)


def test_nothing_is_chosen_when_nothing_helps():
    assert select_checkpoints(chain(7)).saved == ()
    assert select_checkpoints(chain(0, 0)).saved == ()


def test_saving_and_restoring_take_their_time():
    slow = Speeds(write_bytes_per_second=1_000_000, restore_bytes_per_second=250_000)
    dag = chain(4, 4, sizes=[500_000, 0])
    assert worst_us(dag, [0], slow) == 8_000_000 + 6_000_000  # durable at 4.5 s; restored in 2 s


def test_with_finite_workers_checkpoints_off_the_critical_path_help():
    three = {name: {"seconds": 3, "bytes": 1} for name in "abc"}
    wide = from_tasks({**three, "end": {"seconds": 1, "inputs": ["a", "b", "c"]}})
    assert singles(wide) == []
    assert singles(wide, Speeds(workers=1)) != []


def test_saving_finished_pieces_lifts_the_ceiling():
    """One long stage: whole intermediates can do little, its pieces a lot (query 21 on Spark)."""
    one = Speeds(workers=1)
    whole = chain(9, 1)
    pieces, groups = split(whole, [10, 1], workers=1)
    assert select_checkpoints(whole, speeds=one).reduction == pytest.approx(0.05)
    got = select_checkpoints(pieces, speeds=one, groups=groups)
    assert got.end_us == 10_000_000
    assert got.reduction == pytest.approx(0.45)


CYCLE = {
    "a": {"seconds": 1, "inputs": ["b"]},
    "b": {"seconds": 1, "inputs": ["a"]},
    "c": {"seconds": 1, "inputs": ["a"]},
}
TWICE = {"a": {"seconds": 1, "outputs": {"x": 1}}, "b": {"seconds": 1, "outputs": {"x": 1}}}


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: from_tasks(CYCLE), "cycle"),
        (lambda: from_tasks({"a": {"seconds": -1}}), "negative"),
        (lambda: from_tasks({"a": {"bytes": 1}}), "seconds"),
        (lambda: from_tasks({"a": {"seconds": 1, "bytes": -1}}), "negative"),
        (lambda: from_tasks(TWICE), "own names"),
        (lambda: select_checkpoints(chain(1), goal="best"), "goal"),
        (lambda: select_checkpoints(chain(1), goal="expected"), "failures_per_hour"),
        (lambda: select_checkpoints(chain(1), budget_bytes=-1), "negative"),
        (lambda: select_checkpoints(chain(1), overhead=0.1), "write_bytes_per_second"),
        (lambda: select_checkpoints([1, 2]), "dictionary"),
        (lambda: Speeds(workers=0), "above zero"),
    ],
)
def test_bad_input(call, says):
    with pytest.raises(UsageError, match=says):
        call()
