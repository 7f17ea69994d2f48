"""The embedded runner on a simulated machine: crashed at every I/O call, it goes on to the same result."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest

from kedge.host import sim
from kedge.testing.crash import FAULTS, Trial, crash, io_calls, recover_and_check, run_until_crash
from kedge.testing.workload import Workload


@pytest.mark.parametrize("fault", FAULTS)
def test_a_crash_at_any_io_call_changes_no_result(lane, fault):
    """Every call in the long lane; every third in CI."""
    work = Workload(1, units=3, rows=6)
    step = {"fast": 17, "test": 3, "soak": 1}[lane.name]
    for seed in lane.seeds(1, 1, 20):
        for crash_at in io_calls(work, seed)[::step]:
            crash(work, fault, seed, crash_at)


def test_random_crashes_of_random_workloads(lane):
    for seed in lane.seeds(6, 150, 4000):
        Trial.of(seed).run()


def soon_after(host: sim.SimHost, appended: Workload | None, calls: int) -> None:
    """Crash so many calls from now, or from when the input is there."""
    if appended is not None:
        appended.append_all(host)
    host.crash_at = len(host.trace) + calls


def test_crash_after_crash(lane):
    """The recovery is crashed too, several times, before it may finish."""
    for seed in lane.seeds(2, 25, 500):
        rng = random.Random(seed)
        work = Workload(seed, units=3, rows=8)
        host: sim.SimHost = sim.machine(seed, rng.choice(FAULTS))
        acked: list[Any] = []
        for _ in range(4):
            more: list[Any] = []
            with suppress(sim.Crashed):
                soon_after(host, work if rng.random() < 0.8 else None, rng.randrange(1, 120))
                run_until_crash(host, work, more)
            acked += more
            host = host.after_crash()
        recover_and_check(host, work, acked)


def test_crashes_while_the_ledger_is_compacted(lane, monkeypatch):
    """A summary takes the place of records every few batches; the results are the same, each once."""
    monkeypatch.setattr("kedge.run.recover._RECORDS_MAX", 4)
    monkeypatch.setattr("kedge.run.recover._RECORDS_KEPT", 1)
    floors = 0
    for seed in lane.seeds(3, 40, 1000):
        rng = random.Random(seed)
        work = Workload(seed, units=6, rows=5, late=False)
        host = sim.machine(seed, rng.choice(FAULTS))
        soon_after(host, work, rng.randrange(100, 400))
        with suppress(sim.Crashed):
            work.run(host, rows_max=1)
        after = host.after_crash()
        work.run(after, rows_max=1)
        work.check_all(after)
        floors += any("floor" in name for name in after.store(f"{work.root}/run").list("ledger"))
    assert floors, "nothing was ever compacted: the test shows nothing"


def test_a_seed_replays_to_the_same_trace():
    traces = [[str(call) for host in Trial.of(5).run() for call in host.trace] for _ in range(2)]
    assert traces[0] == traces[1]
    assert len(traces[0]) > 100


@pytest.mark.parametrize(("nodes", "rows_max"), [(1, 1), (3, 1000), (4, 10)])
def test_nodes_and_batches_do_not_matter(nodes, rows_max):
    work = Workload(7, units=6)
    host = sim.machine(7, "stop")
    work.run(host, nodes=nodes, rows_max=rows_max)
    work.check(host)
