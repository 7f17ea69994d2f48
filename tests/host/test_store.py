from __future__ import annotations

import errno
import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import kedge.host.store as store_module
from kedge.errors import UsageError
from kedge.host import DirectoryStore, Host, LocalDisk, SystemRng
from kedge.host.sim import SimHost, SimStore, Turns, attempts, explore, machine, mutate

SEEDS = range(6)


def put_some(host: SimHost, acked: list[Any], kind: type[DirectoryStore] = DirectoryStore) -> None:
    store = kind(host.disk, "/run", host.rng)
    for number in range(4):
        body = bytes([65 + number]) * 900
        store.put(f"a/{number}", body, if_absent=True)
        acked.append((f"a/{number}", body))
        store.put("a/current", body)
        acked.append(("a/current", body))


def finds_all(host: SimHost, acked: list[Any]) -> None:
    store = host.store("/run")
    latest = dict(acked)
    for name in store.list(""):
        body = store.get(name)
        assert len(body) == 900, f"{name} is torn"
        assert len(set(body)) == 1, f"{name} is torn"
    for name, body in latest.items():
        assert store.get(name) >= body, f"{name} is gone"  # a later put may have landed


@pytest.mark.parametrize("fault", ["stop", "lose", "tear"])
def test_every_acknowledged_object_survives_every_crash(fault: Any) -> None:
    assert explore(put_some, finds_all, fault, SEEDS) == []


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("            file.sync()\n", ""),
        ("        self._disk.sync_dir(folder)\n\n    def _write", "\n    def _write"),
    ],
)
def test_a_store_without_a_sync_is_caught(line: str, instead: str) -> None:
    mutant = mutate(store_module, line, instead).DirectoryStore
    assert explore(partial(put_some, kind=mutant), finds_all, "lose", SEEDS)


def race(kind: type[DirectoryStore], seed: int) -> list[bytes]:
    """Three attempts put one name if it is absent: what was told it won, and what is there."""
    host = machine(seed)
    host.machine.turns = turns = Turns(seed)

    def attempt(number: int) -> bytes:
        body = b"%d" % number
        kind(host.disk, "/run", host.process().rng).put("a/name", body, if_absent=True)
        return body

    ends = attempts(turns, attempt, 3)
    assert all(end.error is None or isinstance(end.error, FileExistsError) for end in ends)
    host.machine.turns = None
    return [end.value for end in ends if end.error is None] + [host.store("/run").get("a/name")]


def test_a_name_is_won_once() -> None:
    for seed in range(100):
        winner, there = race(DirectoryStore, seed)
        assert winner == there


def test_a_store_that_renames_instead_of_linking_is_caught() -> None:
    mutant = mutate(store_module, "self._disk.link(temporary, path)", "self._disk.rename(temporary, path)")
    assert any(len(race(mutant.DirectoryStore, seed)) != 2 for seed in range(100))


def swept_race(kind: type[DirectoryStore], seed: int) -> None:
    host = machine(seed)
    host.machine.turns = turns = Turns(seed)
    other = host.process()

    def write() -> None:
        store = kind(host.disk, "/run", host.rng)
        for number in range(6):
            store.put(f"a/{number}", b"x", if_absent=number % 2 == 0)

    def sweep() -> None:
        store = kind(other.disk, "/run", other.rng)
        for _ in range(6):
            store.sweep("a")

    for end in turns.run(write, sweep):
        if end.error is not None:
            raise end.error
    host.machine.turns = None
    assert host.disk.list("/run/a") == [str(number) for number in range(6)]


def test_sweeping_does_not_disturb_a_live_writer() -> None:
    for seed in range(60):
        swept_race(DirectoryStore, seed)


def test_a_store_that_does_not_write_again_after_a_sweep_is_caught() -> None:
    mutant = mutate(store_module, "continue  # the temporary file was swept away", "raise")

    def dies(seed: int) -> bool:
        try:
            swept_race(mutant.DirectoryStore, seed)
        except FileNotFoundError:
            return True
        return False

    assert any(dies(seed) for seed in range(60))


def test_a_sweep_removes_what_dead_writers_left() -> None:
    left = 0
    for crash_at in range(1, 40):
        host = machine(crash_at, "lose")
        host.crash_at = crash_at
        try:
            put_some(host, [])
        except BaseException:
            after = host.after_crash()
            store = after.store("/run")
            names = store.list("")
            left += any(name.startswith(".tmp-") for name in listing(after))
            store.sweep("a")
            assert not any(name.startswith(".tmp-") for name in listing(after))
            assert store.list("") == names
    assert left > 3


def listing(host: Host) -> list[str]:
    return host.disk.list("/run/a") if host.disk.is_dir("/run/a") else []


def test_settle_makes_what_was_seen_durable() -> None:
    def seen_then_cut(settle: bool, seed: int) -> bool:
        host = machine(seed, "lose")
        reader = host.process()
        host.disk.mkdir("/run/a")
        host.crash_at = host.io_calls + 6  # mkdir, create, write, sync, link: it dies in the unlink
        try:
            host.store("/run").put("a/x", b"x", if_absent=True)
        except BaseException:
            assert reader.store("/run").get("a/x") == b"x"
        if settle:
            reader.store("/run").settle("a")
        return host.after_crash().store("/run").list("a") == ["a/x"]

    assert all(seen_then_cut(True, seed) for seed in range(30))
    assert not all(seen_then_cut(False, seed) for seed in range(30))


def test_a_put_into_an_existing_folder_takes_five_or_six_calls() -> None:
    host = machine(1)
    store = host.store("/run")
    store.put("a/x", b"1")
    before = host.io_calls
    store.put("a/x", b"2")
    store.put("a/y", b"2", if_absent=True)
    kinds = [call.kind for call in host.trace[before:]]
    assert kinds == [
        *("create", "write", "sync", "rename", "sync_dir"),
        *("create", "write", "sync", "link", "unlink", "sync_dir"),
    ]


def test_real_and_simulated_stores_answer_alike(tmp_path: Path) -> None:
    rng = random.Random(3)
    stores = [DirectoryStore(LocalDisk(), str(tmp_path), SystemRng()), machine(1).store("/run"), SimStore(1)]
    for _ in range(120):
        name = rng.choice(["a/1", "a/2", "b/c/1", "d"])
        body = bytes(rng.randrange(256) for _ in range(rng.randrange(9)))
        act = rng.randrange(6)
        answers = [answer(store, act, name, body) for store in stores]
        assert answers[0] == answers[1] == answers[2]


def answer(store: Any, act: int, name: str, body: bytes) -> Any:
    try:
        if act < 2:
            return store.put(name, body, if_absent=bool(act))
        if act == 2:
            return store.delete(name)
        if act == 3:
            return store.list(name.partition("/")[0])
        return store.get(name) if act == 4 else store.get(name, 1, 4)
    except OSError as error:
        return type(error)


def test_a_failed_put_leaves_no_name_and_no_temporary_file() -> None:
    host = machine(1)
    store = host.store("/run")
    store.put("a/x", b"1")
    for call in (1, 2, 3):  # create, write, sync
        host.fail_at[host.io_calls + call] = 28
        with pytest.raises(OSError, match="No space"):
            store.put("a/y", b"2", if_absent=True)
        assert host.disk.list("/run/a") == ["x"]


@pytest.mark.parametrize("seed", range(3))
def test_late_and_lost_calls_of_the_object_store(seed: int) -> None:
    from kedge.errors import UnavailableError

    store = SimStore(seed, faults=0.5)
    fates = {"told": 0, "there": 0, "late": 0, "not there": 0}
    for number in range(200):
        name, late = f"a/{number}", len(store.late)
        try:
            store.put(name, b"x", if_absent=True)
            fates["told"] += 1
            assert name in store.objects
        except UnavailableError:
            fates["there" if name in store.objects else "not there"] += 1
        fates["late"] += len(store.late) > late
    before = len(store.objects)
    store.land()
    assert len(store.objects) >= before
    assert min(fates.values()) > 0
    assert set(store.objects.values()) == {b"x"}


def test_a_file_system_without_hard_links_is_refused() -> None:
    host = machine(1)
    host.disk.mkdir("/run/a")
    host.fail_at[host.io_calls + 5] = errno.EPERM
    with pytest.raises(UsageError, match="hard links"):
        host.store("/run").put("a/x", b"1", if_absent=True)
    assert host.trace[-2].kind == "link"
    assert host.disk.list("/run/a") == []
