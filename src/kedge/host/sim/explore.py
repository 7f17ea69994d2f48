"""Crash a workload at each of its I/O calls, recover, and check.

A workload is `work(host, acked)`: it does its I/O on `host` and appends to `acked` what it was told is done. A
check is `check(host, acked)`: it recovers on the restarted `host` and raises if something acknowledged is gone or
wrong.
Calls that only read are left out: crashing there is the same as crashing before the next change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

from kedge.host.sim.calls import Crashed
from kedge.host.sim.files import Fault
from kedge.host.sim.machine import SimHost, machine

AGAIN_CALLS = 40  # a recovery is crashed at one of its first calls

Work: TypeAlias = Callable[[SimHost, list[Any]], None]


@dataclass(frozen=True)
class Failure:
    """A crash that the check did not survive, and how to repeat it."""

    fault: Fault
    seed: int
    crash_at: int
    again_at: int
    error: Exception

    def __str__(self) -> str:
        where = f"{self.fault!r}, {self.seed}, {self.crash_at}, {self.again_at}"
        return f"{self.error!r}. Repeat with replay(work, check, {where})."


def explore(
    work: Work, check: Work, fault: Fault = "lose", seeds: Iterable[int] = range(1), *, twice: bool = False
) -> list[Failure]:
    """Every crash of `work` that `check` does not survive, for every seed; crash 0 is a power cut after the end.

    With `twice` the check is crashed as well, somewhere, and runs again on what a second restart finds.
    """
    failures: list[Failure] = []
    for seed in seeds:
        whole = machine(seed, fault)
        work(whole, [])
        for crash_at in [call.number for call in whole.trace if call.changes] + [0]:
            again_at = (seed + crash_at * 7) % AGAIN_CALLS + 1 if twice else 0
            try:
                replay(work, check, fault, seed, crash_at, again_at)
            except Exception as error:
                failures.append(Failure(fault, seed, crash_at, again_at, error))
    return failures


def replay(work: Work, check: Work, fault: Fault, seed: int, crash_at: int, again_at: int = 0) -> SimHost:
    """One crash of `explore` again, of the check too if `again_at`; raises what the check raises."""
    host, acked = machine(seed, fault), list[Any]()
    host.crash_at = crash_at
    with suppress(Crashed):
        work(host, acked)
    after = host.after_crash()
    if again_at:
        after.crash_at = again_at
        with suppress(Crashed):
            check(after, acked)
        after = after.after_crash()
    check(after, acked)
    return after
