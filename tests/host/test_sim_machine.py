from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import toylog

from kedge.errors import UsageError
from kedge.host.sim import Crashed, SimHost, explore, machine, mutate, replay

SEEDS = range(8)


def test_a_sound_log_survives_every_crash_under_every_fault() -> None:
    for fault in ("stop", "lose", "tear"):
        assert explore(toylog.append_all, toylog.keeps, fault, SEEDS, twice=True) == []


@pytest.mark.parametrize(
    ("line", "instead", "faults"),
    [
        ("file.sync()", "pass", ("lose", "tear")),
        ('host.disk.sync_dir("/data")', "pass", ("lose", "tear")),
        ('if zlib.crc32(body).to_bytes(4, "big") != data[:4]:', "if False:", ("tear",)),
    ],
)
def test_a_log_without_a_safety_line_is_caught(line: str, instead: str, faults: tuple[Any, ...]) -> None:
    mutant = mutate(toylog, line, instead)
    for fault in faults:
        failures = explore(mutant.append_all, mutant.keeps, fault, SEEDS)
        assert failures, f"{line!r} is not missed under {fault!r}"
        first = failures[0]
        with pytest.raises(AssertionError):
            replay(mutant.append_all, mutant.keeps, first.fault, first.seed, first.crash_at)
        assert f"{first.seed}, {first.crash_at}" in str(first)


def test_a_recovery_that_is_not_safe_against_a_crash_is_caught() -> None:
    """It moves the log away and writes it anew: a crash in between loses it."""

    def moves(host: SimHost, acked: list[Any]) -> None:
        toylog.keeps(host, acked)
        if not host.disk.exists(toylog.LOG):
            return
        old = bytes(host.disk.open(toylog.LOG).map())
        host.disk.unlink(toylog.LOG)
        file = host.disk.open(toylog.LOG, "create")
        file.write(old, 0)
        file.sync()
        host.disk.sync_dir("/data")

    assert explore(toylog.append_all, moves, "lose", SEEDS) == []
    assert explore(toylog.append_all, moves, "lose", SEEDS, twice=True)


def test_stop_is_too_weak_to_miss_a_sync() -> None:
    mutant = mutate(toylog, "file.sync()", "pass")
    assert explore(mutant.append_all, mutant.keeps, "stop", SEEDS) == []


def test_a_seed_repeats_its_trace_and_its_survivors() -> None:
    def run() -> tuple[list[Any], Any, str, int]:
        host = machine(7, "tear")
        host.crash_at = 9
        with pytest.raises(Crashed):
            toylog.append_all(host, [])
        after = host.after_crash()
        content = bytes(after.disk.open(toylog.LOG).map()) if after.disk.exists(toylog.LOG) else None
        return host.trace, content, after.rng.token(), after.clock.now_us()

    assert run() == run()


def survivors(
    work: Callable[[SimHost], None], path: str, fault: Any, seeds: range = range(60)
) -> set[bytes | None]:
    found: set[bytes | None] = set()
    for seed in seeds:
        host = machine(seed, fault)
        host.disk.mkdir("/d")
        work(host)
        after = host.after_crash()
        found.add(bytes(after.disk.open(path).map()) if after.disk.exists(path) else None)
    return found


def test_unsynced_writes_survive_in_any_subset() -> None:
    def work(host: SimHost) -> None:
        file = host.disk.open("/d/f", "create")
        host.disk.sync_dir("/d")
        file.write(b"aa", 0)
        file.write(b"bb", 2)

    assert survivors(work, "/d/f", "lose") == {b"", b"aa", b"\0\0bb", b"aabb"}
    assert survivors(work, "/d/f", "stop") == {b"aabb"}


def test_torn_writes_break_at_sectors_and_leave_zeros() -> None:
    def work(host: SimHost) -> None:
        file = host.disk.open("/d/f", "create")
        host.disk.sync_dir("/d")
        file.write(b"x" * 100, 0)
        file.sync()
        file.write(b"y" * 1500, 100)

    found = survivors(work, "/d/f", "tear", range(300))
    assert {b"x" * 100, b"x" * 100 + b"y" * 1500, b"x" * 100 + b"\0" * 1500} <= found
    for content in found:
        assert content is not None
        assert content[:100] == b"x" * 100
        sectors = [content[100:512], *(content[start : start + 512] for start in range(512, len(content), 512))]
        assert all(len(set(sector)) <= 1 for sector in sectors)


def test_a_name_needs_its_directory_synced() -> None:
    def renamed(host: SimHost) -> None:
        file = host.disk.open("/d/t", "create")
        file.write(b"new", 0)
        host.disk.rename("/d/t", "/d/f")

    def synced_file(host: SimHost) -> None:
        file = host.disk.open("/d/t", "create")
        file.write(b"new", 0)
        file.sync()
        host.disk.rename("/d/t", "/d/f")

    def synced_both(host: SimHost) -> None:
        synced_file(host)
        host.disk.sync_dir("/d")

    assert survivors(renamed, "/d/f", "lose") == {None, b"", b"new"}
    assert survivors(synced_file, "/d/f", "lose") == {None, b"new"}
    assert survivors(synced_both, "/d/f", "lose") == {b"new"}


def test_an_unsynced_unlink_may_come_back() -> None:
    def work(host: SimHost) -> None:
        file = host.disk.open("/d/f", "create")
        file.write(b"x", 0)
        file.sync()
        host.disk.sync_dir("/d")
        host.disk.unlink("/d/f")

    assert survivors(work, "/d/f", "lose") == {None, b"x"}


def test_a_failed_sync_drops_its_pages_and_the_next_one_lies() -> None:
    found: set[bytes] = set()
    for seed in range(20):
        host = machine(seed)
        host.disk.mkdir("/d")
        file = host.disk.open("/d/f", "create")
        host.disk.sync_dir("/d")
        file.write(b"lost", 0)
        host.fail_at[host.io_calls + 1] = errno.EIO
        with pytest.raises(OSError, match="Input/output"):
            file.sync()
        file.sync()  # succeeds, and means nothing
        found.add(bytes(host.after_crash().disk.open("/d/f").map()))
    assert found == {b"", b"lost"}


def test_a_full_disk_and_a_bad_sector() -> None:
    host = machine(1)
    host.disk.mkdir("/d")
    file = host.disk.open("/d/f", "create")
    host.machine.capacity_bytes = 10
    file.write(b"12345", 0)
    for call in (lambda: file.write(b"1234567", 5), lambda: file.allocate(11)):
        with pytest.raises(OSError, match="No space") as full:
            call()
        assert full.value.errno == errno.ENOSPC
    file.write(b"54321", 0)
    host.fail_at[host.io_calls + 1] = errno.EIO
    with pytest.raises(OSError, match="Input/output"):
        file.read(5, 0)
    assert file.read(5, 0) == b"54321"


def test_locks_end_with_their_process_and_at_a_power_cut() -> None:
    first = machine(1)
    first.disk.mkdir("/d")
    second = first.process()
    held = first.disk.lock("/d/lock")
    with pytest.raises(BlockingIOError):
        second.disk.lock("/d/lock")
    held.close()
    second.disk.lock("/d/lock")
    second.kill()
    first.disk.lock("/d/lock")
    with pytest.raises(Crashed):
        second.disk.list("/d")
    after = first.after_crash()
    after.disk.lock("/d/lock")
    with pytest.raises(Crashed):
        first.disk.list("/d")


def test_a_killed_process_loses_nothing_but_itself() -> None:
    first = machine(1, "lose")
    first.disk.mkdir("/d")
    first.disk.open("/d/f", "create").write(b"x", 0)
    first.kill()
    assert first.process().disk.open("/d/f").read(9, 0) == b"x"


def test_the_simulated_disk_gives_the_errors_of_a_real_one(tmp_path: Path) -> None:
    from kedge.host import LocalDisk

    host = machine(1)
    for disk, root in ((host.disk, "/r"), (LocalDisk(), str(tmp_path))):
        disk.mkdir(f"{root}/d")
        disk.mkdir(f"{root}/d")
        file = disk.open(f"{root}/d/f", "create")
        file.write(b"abc", 2)
        assert file.read(10, 0) == b"\0\0abc"
        assert file.size() == 5
        file.truncate(3)
        file.allocate(6)
        assert bytes(file.map()) == b"\0\0a\0\0\0"
        for error, call in (
            (FileExistsError, lambda d=disk, r=root: d.open(f"{r}/d/f", "create")),
            (FileNotFoundError, lambda d=disk, r=root: d.open(f"{r}/d/g")),
            (FileNotFoundError, lambda d=disk, r=root: d.open(f"{r}/e/g", "create")),
            (FileNotFoundError, lambda d=disk, r=root: d.list(f"{r}/e")),
            (FileNotFoundError, lambda d=disk, r=root: d.unlink(f"{r}/d/g")),
            (FileNotFoundError, lambda d=disk, r=root: d.sync_dir(f"{r}/e")),
            (FileNotFoundError, lambda d=disk, r=root: d.rename(f"{r}/d/g", f"{r}/d/h")),
            (FileExistsError, lambda d=disk, r=root: d.link(f"{r}/d/f", f"{r}/d/f")),
            (OSError, lambda d=disk, r=root: d.open(f"{r}/d/f").write(b"x", 0)),
        ):
            with pytest.raises(error):
                call()
        disk.link(f"{root}/d/f", f"{root}/d/g")
        disk.rename(f"{root}/d/g", f"{root}/d/h")
        disk.unlink(f"{root}/d/f")
        assert disk.list(f"{root}/d") == ["h"]
        assert disk.open(f"{root}/d/h").size() == 6
        assert disk.is_dir(f"{root}/d")
        assert disk.exists(f"{root}/d/h")
        assert not disk.exists(f"{root}/d/nothing")


def test_a_store_refuses_names_that_leave_its_root() -> None:
    store = machine(1).store("/r")
    for name in ("", "../x", "a//b", "/a", "a/./b", "a\\b"):
        with pytest.raises(UsageError):
            store.put(name, b"")
