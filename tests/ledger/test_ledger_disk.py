"""The ledger on a directory of a disk: crashes at every I/O call, and readers of what may still vanish."""

from __future__ import annotations

import errno
from functools import partial
from typing import Any

import pytest
from fight import view_of

import kedge.ledger.ledger as ledger_module
import kedge.ledger.snapshot as snapshot_module
from kedge.host.sim import Crashed, Fault, SimHost, Turns, explore, machine, mutate
from kedge.ledger import Ledger


def open_ledger(host: SimHost, kind: type[Ledger] = Ledger) -> Ledger:
    return kind(host.store("/run"), host.rng, host.clock)


def commit_one(ledger: Ledger, number: int) -> str:
    nonce = f"batch {number}"
    ledger.commit({"kind": "batch", "nonce": nonce})
    return nonce


def write_some(host: SimHost, acked: list[Any], kind: type[Ledger] = Ledger) -> None:
    """Claim, commit and compact; what is acknowledged, the claims too, is the view so far."""
    for start in (0, 4):
        ledger = open_ledger(host, kind)
        ledger.claim()
        acked[:] = view_of(ledger)
        for number in range(start, start + 4):
            acked.append(commit_one(ledger, number))
        ledger.compact(len(acked) - 2, {"nonces": acked[:-2]})


def goes_on(host: SimHost, acked: list[Any]) -> None:
    """A restart sees all that was acknowledged, in its place, and can take over."""
    reader = open_ledger(host)
    reader.refresh()
    view = view_of(reader)
    assert view[: len(acked)] == acked, "an acknowledged record is gone"
    successor = open_ledger(host)
    successor.claim()
    nonce = commit_one(successor, 99)
    reader.refresh()
    assert view_of(reader)[: len(view)] == view
    assert view_of(reader)[-1] == nonce


@pytest.mark.parametrize("fault", ["stop", "lose", "tear"])
def test_every_crash_is_survived(fault: Fault, lane: Any) -> None:
    assert explore(write_some, goes_on, fault, lane.seeds(1, 3, 200), twice=True) == []


@pytest.mark.slow
def test_deletes_before_the_floor_are_caught() -> None:
    line = "            with suppress(FileExistsError):  # as good"
    mutant = mutate(ledger_module, line, "            self._delete_below(below)\n" + line)
    assert explore(partial(write_some, kind=mutant.Ledger), goes_on, "lose", range(3))


def watch(seed: int, kind: type[Ledger] = Ledger) -> None:
    """A reader watches a writer until the power goes; all that it ever saw must be there afterwards."""
    writer = machine(seed, "lose")
    watcher = writer.process()
    writer.crash_at = 40 + seed % 97
    writer.machine.turns = turns = Turns(seed)
    seen: list[str] = []

    def read() -> None:
        ledger = open_ledger(watcher, kind)
        while not writer.calls.dead:
            ledger.refresh()
            seen[:] = view_of(ledger)

    def write() -> None:
        ledger = open_ledger(writer, kind)
        ledger.claim()
        for number in range(100):
            commit_one(ledger, number)

    for end in turns.run(write, read):
        assert end.error is None or isinstance(end.error, Crashed), end.error
    reader = open_ledger(writer.after_crash())
    reader.refresh()
    assert view_of(reader)[: len(seen)] == seen, "a reader saw what a power cut took"


def test_what_a_reader_saw_stays(lane: Any) -> None:
    for seed in lane.seeds(20, 200, 5000):
        watch(seed)


def test_a_reader_that_does_not_settle_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = mutate(snapshot_module, "self._store.settle(self._prefix)", "pass")
    monkeypatch.setattr(ledger_module, "Snapshot", mutant.Snapshot)

    def caught(seed: int) -> bool:
        try:
            watch(seed)
        except AssertionError:
            return True
        return False

    assert any(caught(seed) for seed in range(200))


def compact_twice(seed: int, kind: type[Ledger] = Ledger) -> None:
    """A coordinator dies between naming its floor and syncing the name; its successor compacts at the same slot."""
    first = machine(seed, "lose")
    acked: list[str] = []
    ledger = open_ledger(first, kind)
    ledger.claim()
    acked += [*view_of(ledger), *(commit_one(ledger, number) for number in range(5))]
    kinds = record_floor_calls(first, ledger, acked)
    assert kinds[-1] == "unlink"
    second = first.process()
    successor = open_ledger(second, kind)
    successor.claim()
    successor.compact(4, {"nonces": acked[:4]})
    reader = open_ledger(first.after_crash())
    reader.refresh()
    assert view_of(reader)[: len(acked)] == acked


def record_floor_calls(host: SimHost, ledger: Ledger, acked: list[str]) -> list[str]:
    """Compact, and die when the floor has its name; the kinds of calls until then."""
    before = host.io_calls
    original = host.calls.io

    def io(kind: str, path: str, act: Any, **more: Any) -> Any:
        result = original(kind, path, act, **more)
        if kind == "unlink" and "/floor/" in path:
            host.kill()
            raise Crashed
        return result

    host.calls.io = io  # type: ignore[method-assign]
    with pytest.raises(Crashed):
        ledger.compact(4, {"nonces": acked[:4]})
    return [call.kind for call in host.trace[before:]]


def test_a_floor_that_another_named_is_settled_before_records_go() -> None:
    for seed in range(40):
        compact_twice(seed)


def test_a_floor_that_is_not_settled_is_caught() -> None:
    mutant = mutate(ledger_module, 'self._store.settle(f"{self._prefix}/floor")  #', "pass  #")
    lost = 0
    for seed in range(40):
        try:
            compact_twice(seed, mutant.Ledger)
        except Exception:
            lost += 1
    assert lost > 0


def keep_going(host: SimHost, acked: list[str], failures: list[int]) -> None:
    """Commit ten batches; after a failed call open the ledger again, as its error says, and look what counts."""
    ledger = None
    while len(acked) < 10:
        try:
            if ledger is None:
                ledger = open_ledger(host)
                ledger.claim()
                there = view_of(ledger)
                assert there[: len(acked)] == acked
                acked[:] = there
            acked.append(commit_one(ledger, len(acked)))
            if len(acked) == 6:
                ledger.compact(4, {"nonces": acked[:4]})
        except OSError:
            failures.append(host.io_calls)
            ledger = None


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_every_failing_call_is_survived(code: int, lane: Any) -> None:
    """A failed sync drops its pages; a commit that failed may count or not, one that was acknowledged counts."""
    for seed in lane.seeds(1, 4, 200):
        whole = machine(seed, "tear")
        keep_going(whole, [], [])
        for fail_at in range(1, whole.io_calls + 1):
            host, acked, failures = machine(seed, "tear"), list[str](), list[int]()
            host.fail_at[fail_at] = code
            keep_going(host, acked, failures)
            goes_on(host.after_crash(), acked)
            forgiven = host.trace[fail_at - 1].kind == "unlink"
            assert failures or forgiven, host.trace[fail_at - 1]
