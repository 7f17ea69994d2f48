"""Crashes at I/O calls of a simulated machine: nothing acknowledged is lost, nothing half-written is seen."""

from __future__ import annotations

import errno
import random
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from workload import Log, Workload, check, first_offsets, held, opened, rows

from kedge.host.sim import Crashed, machine

if TYPE_CHECKING:
    from kedge.host.sim import Fault, SimHost

FAULTS: tuple[Fault, ...] = ("stop", "lose", "tear")


@cache
def failing_sync(seed: int, fault: Fault, steps: int) -> int | None:
    """The I/O call that fails with EIO: in every other seed one of the syncs."""
    if seed % 2 == 0:
        return None
    host = machine(seed, fault)
    Workload(seed, steps, Log()).run(host)
    return random.Random(seed).choice([call.number for call in host.trace if call.kind == "sync"])


def started(seed: int, fault: Fault, steps: int) -> SimHost:
    failing = failing_sync(seed, fault, steps)
    host = machine(seed, fault)
    if failing is not None:
        host.fail_at[failing] = errno.EIO
    return host


def crash(seed: int, fault: Fault, crash_at: int, steps: int) -> tuple[Log, SimHost]:
    """Run the workload of a seed until it dies: what it was told, and the machine after the power cut."""
    log = Log()
    host = started(seed, fault, steps)
    host.crash_at = crash_at
    with suppress(Crashed):
        Workload(seed, steps, log).run(host)
    return log, host.after_crash()


def verify(log: Log, host: SimHost) -> None:
    """Reader first, then writer, then it goes on, and a second crash changes nothing that was seen."""
    reader = opened(host)
    seen = held(reader)
    first = first_offsets(reader)
    check(log, seen, first)
    writer = opened(host)
    assert writer.recover()
    assert held(writer) == seen
    assert writer.append(rows(10**6, 2), 1).wait().first_offset == first[1] + len(seen[1])
    again = opened(host.after_crash())
    assert held(again) == [seen[0], [*seen[1], 10**6, 10**6 + 1]]


def points(seed: int, fault: Fault, steps: int) -> list[int]:
    host = started(seed, fault, steps)
    Workload(seed, steps, Log()).run(host)
    return [call.number for call in host.trace if call.changes] + [0]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_crash_at_any_call_loses_nothing(fault: Fault, lane: Any) -> None:
    for seed in lane.seeds(2, 8, 40):
        stride = {"fast": 17, "test": 4}.get(lane.name, 1)
        for crash_at in points(seed, fault, 14)[seed % stride :: stride]:
            log, host = crash(seed, fault, crash_at, 14)
            try:
                verify(log, host)
            except Exception as error:
                raise AssertionError(f"seed {seed}, {fault}, crash at I/O call {crash_at}") from error
