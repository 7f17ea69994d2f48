"""Properties of every choice (hypothesis), and the graphs that callers bring."""

import networkx
from hypothesis import given
from hypothesis import strategies as st
from resuming_model import random_plan, to_dag

from kedge.resuming import Speeds, select_checkpoints
from kedge.resuming.cost import floor_us, worst_us
from kedge.resuming.schedule import schedule

seeds = st.integers(0, 10**9)


@given(seeds, st.integers(0, 30), st.integers(0, 30))
def test_a_larger_budget_never_protects_less(seed, low, more):
    dag, _ = to_dag(random_plan(seed, 8))
    small = select_checkpoints(dag, budget_bytes=low)
    large = select_checkpoints(dag, budget_bytes=low + more)
    assert large.floor_us <= large.worst_us <= small.worst_us <= 2 * small.end_us
    assert small.bytes <= low
    assert 0 <= small.reduction <= small.ceiling < 0.5


@given(seeds)
def test_saving_more_never_hurts_with_unlimited_workers(seed):
    dag, _ = to_dag(random_plan(seed, 8))
    some = dag.candidates[::2]
    assert floor_us(dag) <= worst_us(dag, dag.candidates) <= worst_us(dag, some) <= worst_us(dag, ())


@given(seeds)
def test_the_order_of_operations_does_not_matter(seed):
    plan = random_plan(seed, 8)
    dag, _ = to_dag(plan)
    plan.operations = dict(reversed(plan.operations.items()))
    other, _ = to_dag(plan)
    assert schedule(dag).end_us == schedule(other).end_us
    assert select_checkpoints(dag).worst_us == select_checkpoints(other).worst_us


@given(seeds, st.integers(1, 4))
def test_workers_never_beat_their_bounds(seed, workers):
    plan = random_plan(seed, 8)
    dag, _ = to_dag(plan)
    end = schedule(dag, speeds=Speeds(workers=workers)).end_us
    work = sum(operation.time_us for operation in dag.operations)
    assert max(plan.end({}), -(-work // workers)) <= end <= work


def test_networkx_and_dictionary_are_the_same_graph():
    graph = networkx.DiGraph()
    graph.add_node("fetch", seconds=60, bytes=8)
    graph.add_node("clean", seconds=30, bytes=2)
    graph.add_node("train", seconds=90, bytes=1)
    graph.add_edges_from([("fetch", "clean"), ("clean", "train")])
    tasks = {
        "fetch": {"seconds": 60, "bytes": 8},
        "clean": {"seconds": 30, "bytes": 2, "inputs": ["fetch"]},
        "train": {"seconds": 90, "bytes": 1, "inputs": ["clean"]},
    }
    assert select_checkpoints(graph, budget_bytes=3) == select_checkpoints(tasks, budget_bytes=3)


def test_a_budget_as_a_share_of_the_run():
    tasks = {"a": {"seconds": 50, "bytes": 1_000}, "b": {"seconds": 50, "inputs": ["a"]}}
    tight = Speeds(write_bytes_per_second=100)
    assert select_checkpoints(tasks, overhead=0.05, speeds=tight).saved == ()
    assert select_checkpoints(tasks, overhead=0.1, speeds=tight).saved == ("a",)


def test_operations_with_two_outputs_save_either():
    tasks = {
        "parse": {"seconds": 10, "outputs": {"good": 100, "bad": 1}},
        "report": {"seconds": 10, "inputs": ["bad"]},
        "load": {"seconds": 1, "inputs": ["good"]},
    }
    got = select_checkpoints(tasks, budget_bytes=1)
    assert got.saved == ("bad", "load")  # `load` is a result of no bytes; both together spare `parse`
    assert got.worst_us == 30_000_000
