"""Every rule that a run's safety rests on has a mutant without it, and the simulator kills each one.

The true code survives the same trials (`test_the_true_code_survives`), so a death is the mutation's doing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pytest
from test_fight import Twice, persist

import kedge.host.store as store_module
import kedge.run.coordinator as coordinator_module
import kedge.run.core.commit as commit_module
import kedge.run.core.plan as plan_module
import kedge.run.embedded as embedded_module
import kedge.run.recover as recover_module
import kedge.run.restore as restore_module
from kedge.errors import ConflictError, InternalError
from kedge.host import sim
from kedge.run.core import Manifest, Plan
from kedge.run.embedded import Embedded
from kedge.run.node import assemble
from kedge.testing.crash import FAULTS, crash, io_calls
from kedge.testing.workload import Workload


def crashes() -> Iterator[None]:
    """Random crashes of random workloads, at a call that changes something in the run's directory."""
    for seed in range(400):
        rng, work = random.Random(seed), Workload(seed, units=3, rows=6)
        crash_at = rng.choice(io_calls(work, seed, below=f"{work.root}/run"))
        crash(work, rng.choice(FAULTS), seed, crash_at)
        yield


def fights() -> Iterator[None]:
    """Two coordinators on one disk."""
    for seed in range(400):
        work = Workload(seed, units=2, rows=6)
        first = sim.machine(seed, "stop")
        work.append_all(first)
        second = first.process()
        first.machine.turns = turns = sim.Turns(seed)
        outcomes = turns.run(lambda h=first, w=work: persist(h, w), lambda h=second, w=work: persist(h, w))
        first.machine.turns = None
        for outcome in outcomes:
            if outcome.error is not None:
                raise outcome.error
        work.check(first)
        yield


def runs() -> Iterator[None]:
    """Runs without a failure, but in many batches."""
    for seed in range(60):
        host = sim.machine(seed, "stop")
        work = Workload(seed, units=6, rows=5)
        work.run(host, rows_max=1)
        work.check(host)
        yield


def duplicates() -> Iterator[None]:
    """Every node's work done twice."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kedge.testing.workload.Embedded", Twice)
        yield from runs()


class Again(Embedded):
    """A committer that is asked twice, as after a lost reply, and once with manifests of an earlier plan."""

    def _assemble(self, *args: Any, **more: Any) -> Manifest:
        self.made = [*self.made, assemble(*args, **more)]
        return self.made[-1]

    def _commit(self, plan: Plan, parts: Any) -> None:
        self.made: list[Manifest] = []
        before = self.state
        super()._commit(plan, parts)
        for state, asked in ((before, replace(plan, nonce="f" * 32, ranges=())), (self.state, plan)):
            with suppress(ConflictError, InternalError):
                record = coordinator_module.commit_record(state, asked, self.made, result_partitions=1, now_us=0)
                self._run._ledger.commit(record)


def asked_again() -> Iterator[None]:
    """Every batch is committed once more."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kedge.testing.workload.Embedded", Again)
        yield from runs()


@dataclass(frozen=True)
class Mutant:
    """One rule, the line that keeps it, what stands there instead, and the trials that must notice."""

    rule: str
    module: Any
    line: str
    instead: str
    patched: tuple[str, ...]  # the names that the mutated module's things replace
    trials: Callable[[], Iterator[None]]


CLAIM = "        self.epoch = self._ledger.claim()\n"
READ = "        self.state: RunState = recover(directory, self._ledger, self.into)\n"

FOLD = """\
    for record in ledger.records(state.position + 1):
        state = fold(state, record)
    return state
"""

MUTANTS = (
    Mutant(
        "an object is durable when put returns: its contents",
        store_module, "            file.sync()\n", "            pass\n",
        ("kedge.host.DirectoryStore",), crashes,
    ),
    Mutant(
        "a file is deleted only after the record that frees it is committed",
        coordinator_module, "        self._ledger.commit(record)\n",
        "        [self.directory.store.delete(name) for name in record['release']]\n"
        "        self._ledger.commit(record)\n",
        ("kedge.testing.workload.Coordinator",), crashes,
    ),
    Mutant(
        "only what the next version does not need is released",
        commit_module, " if unit.open_us <= plan.close_us]", "]",
        ("kedge.run.coordinator.commit_record",), crashes,
    ),
    Mutant(
        "attempt files are garbage only if of an older epoch, or of a slot that is taken",
        commit_module, "    return epoch < state.epoch or (epoch == state.epoch and position <= state.position)",
        "    return True",
        ("kedge.run.recover.sweep",), fights,
    ),
    Mutant(
        "a file that a record names is not swept",
        commit_module, "    return [name for name in names if name not in kept and _is_dead(state, name)]",
        "    return [name for name in names if _is_dead(state, name)]",
        ("kedge.run.recover.sweep",), crashes,
    ),
    Mutant(
        "no two attempts share a file name",
        commit_module, "{plan.epoch:08d}-{plan.position:012d}-{node:04d}-{attempt}-{number:04d}",
        "{0:08d}-{0:012d}-{node:04d}-0-{number:04d}",
        ("kedge.run.node.attempt_name",), runs,
    ),
    Mutant(
        "the coordinator claims before it reads where the run is",
        coordinator_module, CLAIM + READ, READ + CLAIM,
        ("kedge.testing.workload.Coordinator",), fights,
    ),
    Mutant(
        "a plan counts only right after its parent",
        commit_module,
        "    if plan.parent != state.nonce or plan.epoch != state.epoch or plan.position != state.position + 1:",
        "    if False:",
        ("kedge.run.coordinator.commit_record",), asked_again,
    ),
    Mutant(
        "a record names only what attempts of this very plan have made",
        commit_module, " or any(m.nonce != plan.nonce for m in manifests):", ":",
        ("kedge.run.coordinator.commit_record",), asked_again,
    ),
    Mutant(
        "what is late is what the parent's watermark says",
        plan_module, "        late_us=state.watermark_us,", "        late_us=NEVER_US,",
        ("kedge.run.coordinator.plan_batch",), runs,
    ),
    Mutant(
        "the watermark never goes back",
        plan_module, "max(state.watermark_us, _watermark_us(newest_us, available, lag_us))",
        "_watermark_us({name: max(u.max_us for u in units) for (name, _), units in available.items() if units} "
        "or newest_us, available, lag_us)",
        ("kedge.run.coordinator.plan_batch",), runs,
    ),
    Mutant(
        "a table is attached only at the version of the plan's parent",
        restore_module, "if t not in self._tables or self._tables[t].version != version]",
        "if t not in self._tables]",
        ("kedge.run.embedded.MemoryTables",), duplicates,
    ),
    Mutant(
        "state is restored from every live unit, not the newest only",
        restore_module, "    for unit in state.units if tasks else ():", "    for unit in state.units[-1:]:",
        ("kedge.run.restore.state_rows",), crashes,
    ),
    Mutant(
        "recovery goes on from the records after the floor",
recover_module,
        FOLD,
        FOLD.replace("ledger.records(state.position + 1)", "list(ledger.records(state.position + 1))[:-2]"),
        ("kedge.run.coordinator.recover",), crashes,
    ),
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.rule)
def test_a_mutant_dies(mutant, monkeypatch):
    changed = sim.mutate(mutant.module, mutant.line, mutant.instead)
    for name in mutant.patched:
        monkeypatch.setattr(name, getattr(changed, name.rpartition(".")[2]))
    with pytest.raises(Exception):  # noqa: B017, PT011  (whatever tells a wrong result: an assertion, a missing file)
        for _ in mutant.trials():
            pass


@pytest.mark.slow
@pytest.mark.parametrize(
    "trials", [crashes, fights, runs, duplicates, asked_again], ids=lambda trials: trials.__name__
)
def test_the_true_code_survives(trials, lane):
    seeds = lane.seeds(5, 25, 400)
    for _, _ in zip(seeds, trials(), strict=False):
        pass


def test_the_trials_use_the_true_code():
    with suppress(StopIteration):
        next(runs())
    assert embedded_module.Embedded is Embedded
