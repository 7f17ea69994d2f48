"""The simulated disk as one process sees it: every call that touches it is counted and may be the last.

Invariants:
- A call is counted before anything happens. At `crash_at` it may happen, in part or not at all, and then `Crashed`
  is raised, by this call and by every later one of the process.
- `close`, `size`, `exists` and `is_dir` touch no disk and are not counted.
- Two processes of one machine see each other's changes at once: they share the page cache.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar, cast

from kedge.host.disk import Bytes, File, Lock, Mode
from kedge.host.sim.calls import Call, Crashed
from kedge.host.sim.files import Change, Inode

if TYPE_CHECKING:
    from kedge.host.sim.machine import Machine

T = TypeVar("T")

MOMENT_NAMES = 20  # a directory with fewer is read in one getdents call; really, with some 500
FAILED = -1.0  # the part of a sync that failed: its pages are dropped


class Process:
    """Counts the I/O calls of one process and lets it die or fail at any of them."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.crash_at = 0
        self.fail_at: dict[int, int] = {}
        self.trace: list[Call] = []
        self.dead = False

    def io(self, kind: str, path: str, act: Callable[[float], T], *, offset: int = 0, length: int = 0) -> T:
        """Count a call and do it; `act(part)` does all of it (1.0) or a part."""
        if self.machine.turns is not None:
            self.machine.turns.step()
        with self.machine.mutex:
            if self.dead or self.machine.off:
                raise Crashed(f"{kind} {path}: the process is dead")
            call = Call(len(self.trace) + 1, kind, path, offset, length)
            self.trace.append(call)
            self.machine.clock.at_us += 10
            if call.number == self.crash_at:
                self._die(call, act)
            if call.number in self.fail_at:
                self._fail(call, act)
            return act(1.0)

    def _die(self, call: Call, act: Callable[[float], T]) -> None:
        rng = self.machine.rng
        part = rng.choice((0.0, rng.random(), 1.0))
        try:
            if part > 0.0 and call.changes:
                act(part)
        except OSError:
            pass  # the call had no effect, and nobody is left to hear of it
        finally:
            self.dead = True
            self.machine.release_locks(self)
        raise Crashed(f"crash at I/O call {call.number}: {call.kind} {call.path}")

    def _fail(self, call: Call, act: Callable[[float], T]) -> None:
        code = self.fail_at[call.number]
        if call.kind == "sync":
            act(FAILED)
        elif call.kind == "write" and code == errno.ENOSPC:
            act(self.machine.rng.random())
        raise OSError(code, os.strerror(code), call.path)


class SimFile:
    """An open file of the simulated disk."""

    def __init__(self, process: Process, path: str, inode: Inode, writable: bool) -> None:
        self._process, self._path, self._inode, self._writable = process, path, inode, writable
        self._open = True

    def write(self, data: Bytes, offset: int) -> None:
        """Write `data`; a crash leaves a prefix of it."""
        raw = bytes(memoryview(cast(bytes, data)).cast("B"))

        def act(part: float) -> None:
            kept = raw[: round(len(raw) * part)]
            self._process.machine.reserve(self._inode, offset + len(kept), self._path)
            self._inode.change(Change("write", offset, kept))

        self._io("write", act, offset, len(raw), changes=True)

    def read(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes."""
        return self._io("read", lambda _: bytes(self._inode.content[offset : offset + size]), offset, size)

    def map(self) -> memoryview:
        """The content as it is now: a snapshot, unlike a real map."""
        return self._io("map", lambda _: memoryview(bytes(self._inode.content)))

    def sync(self) -> None:
        """Make the file's pending changes durable; its name is another matter."""
        machine = self._process.machine

        def act(part: float) -> None:
            if part == FAILED:
                self._inode.fail_sync(machine.fault, machine.rng)
            else:
                self._inode.sync()

        self._io("sync", act)

    def allocate(self, size: int) -> None:
        """Zeros up to `size`."""

        def act(_: float) -> None:
            self._process.machine.reserve(self._inode, size, self._path)
            self._inode.change(Change("allocate", size=size))

        self._io("allocate", act, 0, size, changes=True)

    def truncate(self, size: int) -> None:
        """Cut or extend."""
        self._io("truncate", lambda _: self._inode.change(Change("truncate", size=size)), 0, size, changes=True)

    def size(self) -> int:
        """The length that processes see."""
        return len(self._inode.content)

    def close(self) -> None:
        """Nothing is synced."""
        self._open = False

    def _io(
        self, kind: str, act: Callable[[float], T], offset: int = 0, length: int = 0, *, changes: bool = False
    ) -> T:
        if not self._open or (changes and not self._writable):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path)
        return self._process.io(kind, self._path, act, offset=offset, length=length)


class SimLock:
    """A lock that ends with its process."""

    def __init__(self, process: Process, inode: Inode) -> None:
        self._process, self._inode = process, inode

    def close(self) -> None:
        """Release it; a second call does nothing."""
        locks = self._process.machine.locks
        if locks.get(self._inode) is self:
            del locks[self._inode]

    @property
    def process(self) -> Process:
        """Who holds it."""
        return self._process


class SimDisk:
    """The simulated file system, for one process."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._machine = process.machine

    def open(self, path: str, mode: Mode = "read") -> File:
        """Open or create a file."""
        if mode != "create":
            inode = self._process.io("open", path, lambda _: self._machine.file(path))
            return SimFile(self._process, path, inode, writable=mode == "write")

        def act(_: float) -> Inode:
            self._machine.free(path)
            inode = Inode()
            self._machine.names.change((path, inode))
            return inode

        return SimFile(self._process, path, self._process.io("create", path, act), writable=True)

    def rename(self, source: str, target: str) -> None:
        """Replace `target` by `source`; atomic inside one directory."""

        def act(_: float) -> None:
            inode = self._machine.file(source)
            self._machine.parent(target)
            if self._machine.names.visible.get(target) is not inode:
                self._machine.names.change((target, inode), (source, None))

        self._process.io("rename", f"{source} -> {target}", act)

    def link(self, source: str, target: str) -> None:
        """A second name."""

        def act(_: float) -> None:
            inode = self._machine.file(source)
            self._machine.free(target)
            self._machine.names.change((target, inode))

        self._process.io("link", f"{source} -> {target}", act)

    def unlink(self, path: str) -> None:
        """Remove a name."""

        def act(_: float) -> None:
            self._machine.file(path)
            self._machine.names.change((path, None))

        self._process.io("unlink", path, act)

    def mkdir(self, path: str) -> None:
        """Make directories, durably; a crash may leave only the first of them."""
        self._process.io("mkdir", path, lambda part: self._machine.make_folders(path, part))

    def list(self, path: str) -> list[str]:
        """The sorted names. In a large directory what comes or goes meanwhile may be among them or not."""
        before = set(self._machine.listing(path)) if self.is_dir(path) else set[str]()

        def act(_: float) -> list[str]:
            names = self._machine.listing(path)
            if len(names) < MOMENT_NAMES:
                return names
            steady = before & set(names)
            return [
                name for name in sorted(before | set(names)) if name in steady or self._machine.rng.random() < 0.5
            ]

        return self._process.io("list", path, act)

    def is_dir(self, path: str) -> bool:
        """Whether `path` is a directory."""
        return path.rstrip("/") in self._machine.folders or path == "/"

    def exists(self, path: str) -> bool:
        """Whether anything has this name."""
        return path in self._machine.names.visible or self.is_dir(path)

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory durable."""

        def act(_: float) -> None:
            if not self.is_dir(path):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            self._machine.names.sync(path.rstrip("/") or "/")

        self._process.io("sync_dir", path, act)

    def lock(self, path: str) -> Lock:
        """Take a lock that dies with the process; the lock file stays."""

        def act(_: float) -> SimLock:
            inode = self._machine.names.visible.get(path)
            if inode is None:
                self._machine.free(path)
                inode = Inode()
                self._machine.names.change((path, inode))
            if inode in self._machine.locks:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)
            lock = SimLock(self._process, inode)
            self._machine.locks[inode] = lock
            return lock

        return self._process.io("lock", path, act)
