from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

import kedge.host
from kedge.errors import UsageError
from kedge.host import LocalDisk
from kedge.host.rng import SeededRng

HOLDER = "import sys, kedge.host; lock = kedge.host.local().disk.lock(sys.argv[1]); print(1, flush=True); input()"


def test_a_lock_is_held_once_and_until_it_is_closed(tmp_path: Path) -> None:
    disk, path = LocalDisk(), str(tmp_path / "lock")
    lock = disk.lock(path)
    with pytest.raises(BlockingIOError):
        disk.lock(path)
    lock.close()
    lock.close()
    disk.lock(path).close()


def test_a_killed_process_gives_its_lock_back(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "1\n"
        with pytest.raises(BlockingIOError):
            LocalDisk().lock(path)
        holder.kill()
        holder.wait()
    LocalDisk().lock(path).close()


def test_a_map_outlives_its_file(tmp_path: Path) -> None:
    disk, path = LocalDisk(), str(tmp_path / "f")
    file = disk.open(path, "create")
    assert bytes(file.map()) == b""
    file.write(b"abc", 0)
    file.sync()
    view = file.map()
    file.close()
    file.close()
    disk.unlink(path)
    disk.sync_dir(str(tmp_path))
    assert bytes(view) == b"abc"
    with pytest.raises(TypeError):
        view[0] = 1


def test_making_a_directory_over_a_file_fails(tmp_path: Path) -> None:
    disk = LocalDisk()
    disk.open(str(tmp_path / "f"), "create").close()
    with pytest.raises(OSError, match=r"exists|directory"):
        disk.mkdir(str(tmp_path / "f"))
    with pytest.raises(OSError, match=r"exists|directory"):
        disk.mkdir(str(tmp_path / "f/g"))
    disk.mkdir(str(tmp_path / "a/b/c"))
    assert disk.is_dir(str(tmp_path / "a/b/c"))


def test_a_directory_that_a_dead_process_made_is_synced_once(tmp_path: Path) -> None:
    synced: list[str] = []

    class Watched(LocalDisk):
        def sync_dir(self, path: str) -> None:
            synced.append(path)
            super().sync_dir(path)

    (tmp_path / "a/b").mkdir(parents=True)
    for _ in range(2):
        Watched().mkdir(str(tmp_path / "a/b"))
    assert synced[-2:] == [str(tmp_path), str(tmp_path / "a")]
    assert len(synced) == len(set(synced))


def test_clocks_go_forward_and_tokens_differ() -> None:
    host = kedge.host.local()
    first, then = host.clock.monotonic_ns(), host.clock.monotonic_ns()
    assert then >= first
    assert host.clock.now_us() > 1_600_000_000_000_000
    assert len({host.rng.token() for _ in range(100)}) == 100
    assert 0 <= host.rng.random() < 1
    assert [SeededRng(4).token(), SeededRng(4).random()] == [SeededRng(4).token(), SeededRng(4).random()]


def test_a_file_system_without_locks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("kedge.host.disk.fcntl.flock", refuse)
    with pytest.raises(UsageError, match="has no locks"):
        LocalDisk().lock(str(tmp_path / "lock"))
