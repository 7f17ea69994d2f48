"""Coordinators fight on one disk, a reader watches, and the power goes."""

from __future__ import annotations

import random
from typing import Any

import pytest
from fight import Fight, view_of

import kedge.host
import kedge.host.store as store_module
import kedge.ledger.ledger as ledger_module
import kedge.ledger.snapshot as snapshot_module
from kedge.host.sim import machine, mutate
from kedge.ledger import Ledger

SEEDS = range(300)


class PowerCut(Fight):
    """Processes of one machine instead of clients of one object store."""

    def __init__(self, seed: int, kind: type[Ledger] = Ledger) -> None:
        super().__init__(seed, 2, kind)
        self.host = machine(seed, "lose")
        self.host.machine.turns = self.turns
        self.seen: list[str] = []

    def run(self) -> None:
        self.fight(self.read, self.cut)
        reader = self.kind((after := self.host.after_crash()).store("/run"), after.rng, after.clock)
        reader.refresh()
        view = view_of(reader)
        assert view[: len(self.seen)] == self.seen, "the power took what a reader saw"
        for nonce, slot in self.acked.items():
            assert view[slot : slot + 1] == [nonce], "the power took an acknowledged commit"
        for nonce, code in self.refused.items():
            assert code != "conflict" or nonce not in view, "a refused commit counts"
        for before, record in zip(view[reader.floor()[0] :], list(reader.records())[1:], strict=False):
            assert record["kind"] == "claim" or record["parent"] == before, "a record does not follow its parent"

    def ledger(self, number: int) -> Ledger:
        process = self.host.process()
        return self.kind(process.store("/run"), process.rng, process.clock)

    def read(self) -> None:
        ledger = self.ledger(0)
        while True:  # until the power goes
            acked = set(self.acked)
            ledger.refresh()
            view = view_of(ledger)
            assert acked <= set(view), "a reader does not see a commit that was acknowledged"
            assert view[: len(self.seen)] == self.seen, "a view does not go on from the one before"
            self.seen = view

    def cut(self) -> None:
        for _ in range(random.Random(f"{self.seed}/cut").randrange(10, 200)):
            self.host.disk.list("/")
        self.host.machine.off = True


def lost(seed: int, kind: type[Ledger] = Ledger) -> bool:
    try:
        PowerCut(seed, kind).run()
    except Exception:
        return True
    return False


def test_a_power_cut_takes_nothing_that_was_said(lane: Any) -> None:
    for seed in lane.seeds(20, 300, 10_000):
        PowerCut(seed).run()


MUTANTS = {
    "sync of the file": (store_module, "            file.sync()\n", ""),
    "sync of the directory": (
        store_module,
        "        self._disk.sync_dir(folder)\n\n    def _write",
        "\n    def _write",
    ),
    "link, not rename": (store_module, "self._disk.link(temporary, path)", "self._disk.rename(temporary, path)"),
    "a reader settles": (snapshot_module, "self._store.settle(self._prefix)", "pass"),
    "deletes after the floor": (
        ledger_module,
        "            with suppress(FileExistsError):  # as good",
        "            self._delete_below(below)\n            with suppress(FileExistsError):  # as good",
    ),
    "fence": (ledger_module, "return self._seen.read_record(slot) == data", "return True"),
    "floor after the commit's put": (ledger_module, "if floor <= slot and won:", "if won:"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_without_a_safety_line_the_power_takes_something(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, line, instead = MUTANTS[name]
    mutant = mutate(module, line, instead)
    kind = ledger_module.Ledger
    if module is ledger_module:
        kind = mutant.Ledger
    elif module is snapshot_module:
        monkeypatch.setattr(ledger_module, "Snapshot", mutant.Snapshot)
    else:
        monkeypatch.setattr(kedge.host, "DirectoryStore", mutant.DirectoryStore)
    assert any(lost(seed, kind) for seed in SEEDS), f"nobody notices a ledger without: {name}"
