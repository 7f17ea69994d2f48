"""The embedded runner on a simulated machine: crashed at every I/O call, it goes on to the same result."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest

from kedge.host import sim
from kedge.run.directory import RunDirectory
from kedge.testing.workload import Workload

FAULTS: tuple[sim.Fault, ...] = ("stop", "lose", "tear")


def batches(host: Any, work: Workload) -> list[dict[str, Any]]:
    ledger = RunDirectory(host, f"{work.root}/run").ledger()
    ledger.refresh()
    return [record for record in ledger.records() if record["kind"] == "batch"]


def run_until_crash(host: sim.SimHost, work: Workload, acked: list[Any]) -> None:
    """Append, run and finish; `acked` gets (version, nonce) of every batch whose commit returned."""
    work.append_all(host)
    run = work.start(host)
    RunDirectory(host, f"{work.root}/run").ask_finish()
    while run.step():
        acked.append((run.state.version, run.state.nonce))


def recover_and_check(host: sim.SimHost, work: Workload, acked: list[Any]) -> None:
    work.run(host)
    work.check(host)
    there = [(record["version"], record["nonce"]) for record in batches(host, work)]
    assert there[: len(acked)] == acked, "a batch that was acknowledged is gone"


def crash(work: Workload, fault: sim.Fault, seed: int, crash_at: int) -> sim.SimHost:
    host, acked = sim.machine(seed, fault), list[Any]()
    host.crash_at = crash_at
    with suppress(sim.Crashed):
        run_until_crash(host, work, acked)
    after = host.after_crash()
    recover_and_check(after, work, acked)
    return after


def io_calls(work: Workload, seed: int, fault: sim.Fault = "stop") -> list[int]:
    host = sim.machine(seed, fault)
    run_until_crash(host, work, [])
    work.check(host)
    return [call.number for call in host.trace if call.changes]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_crash_at_any_io_call_changes_no_result(lane, fault):
    """Every call in the long lanes; every seventh in the fast one."""
    work = Workload(1, units=3, rows=6)
    step = {"fast": 17, "test": 3, "soak": 1}[lane.name]
    for seed in lane.seeds(1, 1, 20):
        for crash_at in io_calls(work, seed)[::step]:
            crash(work, fault, seed, crash_at)


def test_random_crashes_of_random_workloads(lane):
    for seed in lane.seeds(6, 150, 3000):
        rng = random.Random(seed)
        work = Workload(seed, units=rng.randrange(1, 5), rows=rng.randrange(1, 16))
        fault = rng.choice(FAULTS)
        crash(work, fault, seed, rng.choice(io_calls(work, seed, fault)))


def test_crash_after_crash(lane):
    """The recovery is crashed too, several times, before it may finish."""
    for seed in lane.seeds(2, 25, 500):
        rng = random.Random(seed)
        work = Workload(seed, units=3, rows=8)
        host: sim.SimHost = sim.machine(seed, rng.choice(FAULTS))
        acked: list[Any] = []
        for _ in range(4):
            host.crash_at = rng.randrange(1, 120)
            more: list[Any] = []
            with suppress(sim.Crashed):
                run_until_crash(host, work, more)
            acked += more
            host = host.after_crash()
        recover_and_check(host, work, acked)


def test_a_seed_replays_to_the_same_trace():
    work = Workload(5)
    traces = []
    for _ in range(2):
        host = sim.machine(5, "tear")
        host.crash_at = 150
        with suppress(sim.Crashed):
            run_until_crash(host, work, [])
        after = host.after_crash()
        work.run(after)
        traces.append([str(call) for call in [*host.trace, *after.trace]])
    assert traces[0] == traces[1]
    assert len(traces[0]) > 200


@pytest.mark.parametrize(("nodes", "rows_max"), [(1, 1), (3, 1000), (4, 10)])
def test_nodes_and_batches_do_not_matter(nodes, rows_max):
    work = Workload(7, units=6)
    host = sim.machine(7, "stop")
    work.run(host, nodes=nodes, rows_max=rows_max)
    work.check(host)
