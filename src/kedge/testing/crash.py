"""Crashes of the embedded runner on a simulated machine: one trial is a seed, and a seed repeats it exactly."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kedge.host import Host, sim
from kedge.run.directory import RunDirectory
from kedge.testing.workload import Workload

FAULTS: tuple[sim.Fault, ...] = ("stop", "lose", "tear")


def batches(host: Host, work: Workload) -> list[dict[str, Any]]:
    """The committed batches of the workload's run."""
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
    """Go on after a crash; nothing acknowledged is gone, and every batch has the model's results."""
    work.run(host)
    work.check(host)
    there = [(record["version"], record["nonce"]) for record in batches(host, work)]
    assert there[: len(acked)] == acked, "a batch that was acknowledged is gone"


def crash(work: Workload, fault: sim.Fault, seed: int, crash_at: int) -> tuple[sim.SimHost, sim.SimHost]:
    """Crash the workload at I/O call `crash_at`, recover, check; the machine before and after."""
    before, acked = sim.machine(seed, fault), list[Any]()
    before.crash_at = crash_at
    with suppress(sim.Crashed):
        run_until_crash(before, work, acked)
    after = before.after_crash()
    recover_and_check(after, work, acked)
    return before, after


def io_calls(work: Workload, seed: int, fault: sim.Fault = "stop", below: str = "/") -> list[int]:
    """The numbers of the I/O calls of the workload that change something below a folder."""
    host = sim.machine(seed, fault)
    run_until_crash(host, work, [])
    work.check(host)
    return [call.number for call in host.trace if call.changes and call.path.startswith(below)]


@dataclass(frozen=True)
class Trial:
    """A random workload, fault and crash, all from one seed."""

    seed: int
    work: Workload
    fault: sim.Fault
    crash_at: int

    @staticmethod
    def of(seed: int) -> Trial:
        """The trial of a seed."""
        rng = random.Random(seed)  # noqa: S311  (a trial must repeat)
        work = Workload(seed, units=rng.randrange(1, 5), rows=rng.randrange(1, 16))
        fault = rng.choice(FAULTS)
        return Trial(seed, work, fault, rng.choice(io_calls(work, seed, fault)))

    def run(self) -> tuple[sim.SimHost, sim.SimHost]:
        """Carry it out; raises what the check raises, with the command that repeats it."""
        try:
            return crash(self.work, self.fault, self.seed, self.crash_at)
        except Exception as error:
            error.add_note(f"Repeat with: make sim SEED={self.seed}")
            raise
