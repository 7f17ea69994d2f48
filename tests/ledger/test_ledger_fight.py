from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fight import Fight, fights, overtaken

import kedge.ledger.ledger as ledger_module
import kedge.ledger.snapshot as snapshot_module
from kedge.host.sim import mutate

MUTANT_SEEDS = range(1200)  # of which each mutant loses at least ten, or is overtaken

# name: module, the safety line, what it becomes
MUTANTS: dict[str, tuple[Any, str, str]] = {
    "fence": (ledger_module, "return self._seen.read_record(slot) == data", "return True"),
    "read before giving up": (ledger_module, "return self._seen.read_record(slot) == data", "return False"),
    "floor after the commit's put": (ledger_module, "if floor <= slot and won:", "if won:"),
    "floor after the claim's put": (
        ledger_module,
        "if self._win(slot, data) and self._seen.read_floor() <= slot:",
        "if self._win(slot, data):",
    ),
    "one claim an epoch": (
        ledger_module,
        "if self._seen.view.epoch >= epoch:",
        "if self._seen.view.epoch > epoch:",
    ),
    "a refresh that shows a takeover": (ledger_module, "if self._seen.view.epoch > self._epoch:", "if False:"),
    "closed when the outcome is unknown": (
        ledger_module,
        'self._closed = f"the outcome of the commit into slot {slot} is unknown"',
        "pass",
    ),
    "floor before deletes": (
        ledger_module,
        "            with suppress(FileExistsError):  # as good",
        "            self._delete_below(below)\n            with suppress(FileExistsError):  # as good",
    ),
    "what the summary says": (ledger_module, '"summary": dict(summary)', '"summary": {"nonces": []}'),
    "floor after the records": (
        snapshot_module,
        "            view = self._read_from(start)\n            floor = self.read_floor()\n",
        "            floor = self.read_floor()\n            view = self._read_from(start)\n",
    ),
}


@pytest.mark.parametrize("coordinators", [2, 3])
def test_acknowledged_commits_are_in_every_view_for_ever(coordinators: int, lane: Any) -> None:
    for seed in lane.seeds(60, 600, 10_000):
        Fight(seed, coordinators).run()


@pytest.mark.slow
def test_the_ledger_survives_the_seeds_of_its_mutants() -> None:
    assert fights(MUTANT_SEEDS) == []


def test_compaction_may_overtake_a_reader_before_any_of_its_calls() -> None:
    assert overtaken() > 20


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_a_ledger_without_a_safety_line_loses_a_fight(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, line, instead = MUTANTS[name]
    mutant = mutate(module, line, instead)
    kind = ledger_module.Ledger
    if module is ledger_module:
        kind = mutant.Ledger
    else:
        monkeypatch.setattr(ledger_module, "Snapshot", mutant.Snapshot)
    assert is_overtaken(kind) or first_lost(kind) is not None, f"nobody notices a ledger without: {name}"


def is_overtaken(kind: type[ledger_module.Ledger]) -> bool:
    try:
        overtaken(kind)
    except Exception:
        return True
    return False


def first_lost(kind: type[ledger_module.Ledger]) -> int | None:
    def lost() -> Iterator[int]:
        for seed in MUTANT_SEEDS:
            yield from (seed for seed, _ in fights(range(seed, seed + 1), kind))

    return next(lost(), None)
