"""Registers only go up, whatever the store does with a put; and nobody waits for a lock."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest

from kedge.errors import UnavailableError
from kedge.host.sim import Turns, machine
from kedge.streams import document
from kedge.streams.registers import Register


class Overwritten(Register):
    """The mutant: one document that is overwritten."""

    def read(self) -> list[int] | None:
        try:
            return document.parse(self._store.get(f"{self.folder}/it.json"), "it")["numbers"]
        except FileNotFoundError:
            return None

    def raise_to(self, wanted: Any) -> list[int]:
        there = self.read() or [0] * len(wanted)
        higher = [max(pair) for pair in zip(there, wanted, strict=True)]
        self._store.put(f"{self.folder}/it.json", document.pack({"numbers": higher}))
        return higher


def raised(kind: type[Register], seed: int) -> None:
    """Two processes raise one register on a store that loses and delays; then everything late lands."""
    host = machine(seed, "stop")
    host.machine.objects.faults = 0.2
    host.machine.turns = turns = Turns(seed)
    promised = [0, 0]

    def work(number: int) -> None:
        rng = random.Random(f"{seed}/{number}")
        mine = kind(host.process(), "s3://bucket/s", "floors")
        for _ in range(8):
            wanted = [rng.randrange(100), rng.randrange(100)]
            with suppress(UnavailableError):
                now = mine.raise_to(wanted)
                assert all(have >= want for have, want in zip(now, wanted, strict=True))
                promised[:] = [max(pair) for pair in zip(promised, now, strict=True)]
            with suppress(UnavailableError):
                before = list(promised)
                assert all(have >= want for have, want in zip(mine.read() or [0, 0], before, strict=True))

    for outcome in turns.run(lambda: work(0), lambda: work(1)):
        if outcome.error is not None:
            raise outcome.error
    host.machine.turns = None
    host.machine.objects.faults = 0.0
    host.machine.objects.land()
    last = kind(host, "s3://bucket/s", "floors")
    assert all(have >= want for have, want in zip(last.read() or [0, 0], promised, strict=True))


def test_a_register_never_goes_back(lane: Any) -> None:
    for seed in lane.seeds(30, 300, 3000):
        raised(Register, seed)


def test_a_document_that_is_overwritten_goes_back() -> None:
    def fails(seed: int) -> bool:
        try:
            raised(Overwritten, seed)
        except AssertionError:
            return True
        return False

    assert any(fails(seed) for seed in range(20))


def test_old_documents_are_deleted_and_a_register_can_be_cleared() -> None:
    host = machine(1, "stop")
    register = Register(host, "s3://bucket/s", "floors")
    assert register.read() is None
    for number in range(5):
        assert register.raise_to([number, 9 - number]) == [number, 9]
    assert len(host.store("s3://bucket/s").list("floors")) == 1
    register.clear()
    assert register.read() is None


@pytest.mark.parametrize("raw", [b"", b"{}", document.pack({"numbers": ["x"]}), document.pack({"no": []})])
def test_a_damaged_document_is_named(raw: bytes) -> None:
    from kedge.errors import CorruptError

    host = machine(1, "stop")
    host.store("s3://bucket/s").put("floors/00000000000000000001-x.json", raw)
    with pytest.raises(CorruptError, match="at byte 0"):
        Register(host, "s3://bucket/s", "floors").read()
