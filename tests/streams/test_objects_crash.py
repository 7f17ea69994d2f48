"""Streams in a simulated object store: crashed at every call, with lost, repeated and late calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from object_workload import (
    PATH,
    in_an_object_store,  # noqa: F401  (a fixture)
    points,
    trace,
    trial,
)
from workload import Log, check, first_offsets, held, opened, writer

from kedge.errors import ConflictError, UnavailableError
from kedge.host.sim import Crashed, SimHost, Turns, machine
from kedge.streams import stream

pytestmark = pytest.mark.usefixtures("in_an_object_store")


@pytest.mark.parametrize("faults", [0.0, 0.03])
def test_a_crash_at_any_call_loses_nothing(faults: float, lane: Any) -> None:
    for seed in lane.seeds(2, 8, 100):
        stride = {"fast": 9, "test": 2}.get(lane.name, 1)
        for crash_at in points(seed, faults=faults)[seed % stride :: stride]:
            trial(seed, crash_at, faults=faults)


def test_the_same_seed_is_the_same_trace() -> None:
    assert trace(3, 0.03) == trace(3, 0.03)
    assert trace(3, 0.03) != trace(4, 0.03)


def reader(host: SimHost, seen: list[list[int]]) -> Callable[[], None]:
    def work() -> None:
        there = stream(PATH, host=host, threads=0)
        for _ in range(6):
            try:
                seen.append(there.to_table(0)["v"].to_pylist())
            except UnavailableError:
                continue

    return work


@pytest.mark.parametrize("kills", [0.0, 0.004])
def test_writers_push_each_other_out(kills: float, lane: Any) -> None:
    for seed in lane.seeds(3, 60, 1000):
        host = machine(seed, "stop")
        opened(host).close()
        host.machine.objects.faults = 0.02
        log, seen = Log(), list[list[int]]()
        host.machine.turns = Turns(seed, kills=kills)
        refused = (ConflictError, UnavailableError)
        outcomes = host.machine.turns.run(
            *(writer(host.process(), log, base, refused) for base in (1_000, 2_000)), reader(host.process(), seen)
        )
        host.machine.turns = None
        host.machine.objects.faults = 0.0
        for outcome in outcomes:
            assert outcome.error is None or isinstance(outcome.error, Crashed | UnavailableError), (seed, outcome)
        final = opened(host.after_crash())
        found = held(final)
        check(log, found, first_offsets(final))
        for snapshot in seen:
            assert found[0][: len(snapshot)] == snapshot, f"seed {seed}: a reader saw rows that are gone"
