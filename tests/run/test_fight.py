"""Coordinators that fight over one run, on a faulty store, and attempts that run twice: one history, each row once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kedge.errors import ClosedError, ConflictError, UnavailableError
from kedge.host import Host, Store, sim
from kedge.run.core import Manifest
from kedge.run.embedded import Embedded
from kedge.run.node import assemble
from kedge.testing.workload import Workload

TRIES = 40


@dataclass(frozen=True)
class StoreHost(Host):
    """A host whose run directory is an object store; its streams stay on its disk."""

    objects: Store
    root: str

    def store(self, root: str) -> Store:
        return self.objects if root == self.root else super().store(root)


def persist(host: Host, work: Workload) -> int:
    """Start the run again and again until it has finished; how often another coordinator, or the store, said no."""
    for refused in range(TRIES):
        try:
            work.start(host).finish()
        except (ConflictError, UnavailableError, ClosedError):
            continue
        return refused
    raise AssertionError(f"no way to finish in {TRIES} tries")


def test_two_coordinators_on_one_disk(lane):
    conflicts = 0
    for seed in lane.seeds(6, 60, 2000):
        work = Workload(seed, units=3, rows=6)
        first = sim.machine(seed, "stop")
        work.append_all(first)
        second = first.process()
        first.machine.turns = turns = sim.Turns(seed)
        outcomes = turns.run(lambda h=first, w=work: persist(h, w), lambda h=second, w=work: persist(h, w))
        first.machine.turns = None
        for outcome in outcomes:
            if outcome.error is not None:
                raise outcome.error
            conflicts += outcome.value
        work.check(first)
    assert conflicts > 0, "the coordinators never met: the test shows nothing"


def test_two_coordinators_on_a_store_that_loses_and_delays(lane):
    """Lost replies, lost and late puts, a dead coordinator's late deletes."""
    for seed in lane.seeds(6, 60, 2000):
        work = Workload(seed, units=3, rows=6)
        machine = sim.machine(seed, "stop")
        work.append_all(machine)
        store = sim.SimStore(seed, faults=0.04)
        processes = (machine, machine.process())
        hosts = [StoreHost(p.clock, p.disk, p.rng, store.client(p), f"{work.root}/run") for p in processes]
        machine.machine.turns = turns = sim.Turns(seed)
        outcomes = turns.run(*(lambda h=host, w=work: persist(h, w) for host in hosts))
        machine.machine.turns = None
        for outcome in outcomes:
            if outcome.error is not None:
                raise outcome.error
        store.faults = 0.0
        store.land()  # whatever a dead coordinator still had under way
        work.check(hosts[0])


class Twice(Embedded):
    """Every node's work is done by two attempts, as Spark's speculation does; the second one's manifest counts."""

    def _assemble(self, *args: Any, attempt: str, **more: Any) -> Manifest:
        first = assemble(*args, attempt=f"{attempt}a", **more)
        second = assemble(*args, attempt=f"{attempt}b", **more)
        assert first.results != () or second.results == ()
        return second


def test_duplicate_attempts_leave_one_result(lane, monkeypatch):
    monkeypatch.setattr("kedge.testing.workload.Embedded", Twice)
    for seed in lane.seeds(3, 20, 200):
        work = Workload(seed)
        host = sim.machine(seed, "lose")
        work.run(host)
        work.check(host)
        left = host.store(f"{work.root}/results").list("units")
        assert any("a-0000" in name for name in left), "the losing attempts wrote nothing: the test shows nothing"
        monkeypatch.setattr("kedge.testing.workload.Embedded", Embedded)
        work.start(host)  # a new claim sweeps what the losers left
        monkeypatch.setattr("kedge.testing.workload.Embedded", Twice)
        assert not [name for name in host.store(f"{work.root}/results").list("units") if "a-0000" in name]
        work.check(host)
