"""Coordinators and readers fight over one object store; an oracle that shares no code with the ledger judges them.

The truth is what the store saw: the first object ever to take effect in a slot is that slot's record, and whatever
takes effect there later, after compaction has emptied the slot, is not. The oracle reads it with plain `json`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from kedge.errors import ClosedError, ConflictError, UnavailableError
from kedge.host.rng import SeededRng
from kedge.host.sim import Crashed, SimClock, SimStore, Turns
from kedge.ledger import Ledger

EXPECTED = (ConflictError, UnavailableError, ClosedError, Crashed)


class Truth(dict[str, bytes]):
    """The store's objects; remembers the first one of every slot."""

    def __init__(self) -> None:
        super().__init__()
        self.first: dict[int, dict[str, Any]] = {}

    def __setitem__(self, name: str, data: bytes) -> None:
        folder, _, last = name.rpartition("/")
        if folder == "ledger" and last[0].isdigit():
            self.first.setdefault(int(last[:20]), json.loads(data))
        super().__setitem__(name, data)

    def nonces(self) -> list[str]:
        return [self.first[slot]["nonce"] for slot in sorted(self.first)]


class Fight:
    """One seed: so many coordinators, one reader."""

    def __init__(self, seed: int, coordinators: int = 2, kind: type[Ledger] = Ledger) -> None:
        self.seed, self.kind = seed, kind
        dice = random.Random(seed)
        self.turns = Turns(seed, kills=dice.choice((0.0, 0.002)), stalls=dice.choice((0.0, 0.02, 0.1)))
        self.store = SimStore(seed, faults=dice.choice((0.0, 0.05, 0.2, 0.6)), turns=self.turns)
        self.store.objects = self.truth = Truth()
        self.acked: dict[str, int] = {}
        self.refused: dict[str, str] = {}
        self.coordinators = coordinators

    def run(self) -> None:
        """Fight, let every late call land, and judge."""
        self.fight(self.read)
        self.store.faults = 0.0
        self.store.land()
        self.judge()

    def fight(self, *others: Callable[[], None]) -> None:
        """The coordinators and `others`, interleaved; raises what none of them may raise."""
        works = [lambda number=number: self.coordinate(number) for number in range(self.coordinators)]
        for end in self.turns.run(*works, *others):
            if end.error is not None and not isinstance(end.error, EXPECTED):
                raise end.error

    def ledger(self, number: int) -> Ledger:
        return self.kind(self.store, SeededRng(self.seed * 100 + number), SimClock())

    def coordinate(self, number: int) -> None:
        dice = random.Random(f"{self.seed}/{number}")
        ledger = self.ledger(number)
        for _ in range(3):
            try:
                ledger.claim()
                self.work(ledger, dice)
            except (ConflictError, UnavailableError, ClosedError):
                continue

    def work(self, ledger: Ledger, dice: random.Random) -> None:
        view = view_of(ledger)
        parent = view[-1]
        self.acked[parent] = len(view) - 1  # the claim
        for _ in range(dice.randrange(1, 8)):
            nonce = f"{dice.getrandbits(64):016x}"
            try:
                self.acked[nonce] = ledger.commit({"kind": "batch", "nonce": nonce, "parent": parent})
                parent = nonce
            except ConflictError as error:
                self.refused[nonce] = error.code
                raise
            except UnavailableError:
                pass  # a careless coordinator goes on; the ledger must not let it
            if dice.random() < 0.2:
                ledger.refresh()
            if dice.random() < 0.3:
                compact(ledger, dice)

    def read(self) -> None:
        dice = random.Random(f"{self.seed}/reader")
        ledger, seen = self.ledger(99), list[str]()
        for _ in range(12):
            acked, before = set(self.acked), len(self.truth.first)
            if dice.random() < 0.3:
                ledger = self.ledger(99)
            try:
                ledger.refresh()
            except UnavailableError:
                continue
            view = view_of(ledger)
            assert view == self.truth.nonces()[: len(view)], "a reader sees what is not so"
            assert acked <= set(view), "a reader does not see a commit that was acknowledged"
            assert len(view) >= max(before, len(seen)), "a reader does not read to the tip"
            seen = view

    def judge(self) -> None:
        """The laws of the ledger, on the truth; and a fresh reader sees exactly the truth."""
        slots = sorted(self.truth.first)
        records = [self.truth.first[slot] for slot in slots]
        nonces = self.truth.nonces()
        assert slots == list(range(len(slots))), "the slots are not dense"
        assert len(set(nonces)) == len(nonces), "a record counts twice"
        for nonce, slot in self.acked.items():
            assert nonces[slot : slot + 1] == [nonce], "an acknowledged commit does not count"
        for nonce, code in self.refused.items():
            assert code != "conflict" or nonce not in nonces, "a refused commit counts"
        epoch = 0
        for last, record in zip([None, *nonces], records, strict=False):
            assert record["epoch"] == epoch + (record["kind"] == "claim") or (
                record["kind"] == "claim" and record["epoch"] > epoch
            ), "epochs are not won one by one"
            epoch = record["epoch"]
            assert record["kind"] == "claim" or record["parent"] == last, "a record does not follow its parent"
        reader = self.ledger(98)
        assert (reader.refresh() or 0) == max(0, len(slots) - 1)
        assert view_of(reader) == nonces, "a fresh reader does not see the truth"


def view_of(ledger: Ledger) -> list[str]:
    """The nonces of all records, from the summary and what follows it."""
    _, summary = ledger.floor()
    return [*(summary["nonces"] if summary else []), *(record["nonce"] for record in ledger.records())]


def compact(ledger: Ledger, dice: random.Random) -> None:
    floor, _ = ledger.floor()
    tip = floor + sum(1 for _ in ledger.records()) - 1
    if tip > 0:
        below = dice.randrange(1, tip + 1)
        if below >= floor:
            ledger.compact(below, {"kind": "summary", "nonces": view_of(ledger)[:below]})


def fights(seeds: range, kind: type[Ledger] = Ledger) -> list[tuple[int, Exception]]:
    """The seeds that a ledger does not survive."""
    lost: list[tuple[int, Exception]] = []
    for seed in seeds:
        try:
            Fight(seed, 2 + seed % 2, kind).run()
        except Exception as error:
            lost.append((seed, error))
    return lost


class Interrupted:
    """A store that lets somebody else act right before one of its calls."""

    def __init__(self, store: SimStore, at: int, act: Callable[[], None]) -> None:
        self._store, self._left, self._act = store, at, act

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)

        def call(*args: Any, **more: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                self._act()
            return found(*args, **more)

        return call

    @property
    def was(self) -> bool:
        """Whether the moment came."""
        return self._left <= 0


def overtaken(kind: type[Ledger] = Ledger) -> int:
    """Compaction overtakes a reader before each of its calls; how many there were. Raises what it sees wrongly."""
    moments = 0
    for known in (0, 1, 3):  # records that the reader has seen before
        moment = 1
        while _overtaken_at(moment, known, kind):
            moment += 1
        moments += moment - 1
    return moments


def _overtaken_at(moment: int, known: int, kind: type[Ledger]) -> bool:
    """Whether the reader made so many calls."""
    store = SimStore()
    store.objects = truth = Truth()
    writer, reader = (kind(store, SeededRng(number), SimClock()) for number in (1, 2))
    writer.claim()
    for number in range(6):
        if number and number == known:
            reader.refresh()
        writer.commit({"kind": "batch", "nonce": f"{number}"})

    def compact_all() -> None:
        writer.commit({"kind": "batch", "nonce": "the last"})
        tip = writer.refresh() or 0
        writer.compact(tip, {"nonces": view_of(writer)[:tip]})

    acked = truth.nonces()
    reader._seen._store = between = Interrupted(store, moment, compact_all)  # type: ignore[assignment]
    reader.refresh()
    view = view_of(reader)
    assert view == truth.nonces()[: len(view)], "a reader sees what is not so"
    assert acked == view[: len(acked)], "a reader does not see a commit that was acknowledged"
    return between.was
