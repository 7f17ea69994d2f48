"""A machine that a test can crash: its disk, clock and randomness all follow from one seed.

`machine(seed, fault)` starts one; `process()` starts a second process on the same disk; `kill()` ends a process as
SIGKILL does (the page cache stays); `after_crash()` cuts the power and gives the machine that a restart finds.

What survives a power cut, by fault:
- "stop": all that was issued; the crashing call perhaps, or a prefix of its write.
- "lose": any subset of unsynced writes and unsynced directory entries. A synced file whose directory was not synced
  may be gone; a renamed file that was not synced may be empty or have holes.
- "tear": as "lose", and surviving writes may be torn at 512-byte sectors, or leave zeros in the new length.

It does not model: bit rot (tests flip bytes themselves), delayed allocation order, or power cuts during `mkdir`
that lose a directory which `mkdir` had returned.
"""

from __future__ import annotations

import errno
import os
import random
import threading

from kedge.host import Host, Store, is_url
from kedge.host.rng import SeededRng
from kedge.host.sim.clock import SimClock
from kedge.host.sim.disk import Call, Process, SimDisk, SimLock
from kedge.host.sim.files import Fault, Inode, Names, folder_of
from kedge.host.sim.store import Prefixed, SimStore
from kedge.host.sim.turns import Turns


class Machine:
    """What the processes of one simulated machine share."""

    def __init__(self, seed: int, fault: Fault, generation: int) -> None:
        self.seed, self.generation = seed, generation
        self.fault: Fault = fault
        self.rng = random.Random(f"{seed}/{generation}")  # noqa: S311  (a simulation must repeat)
        self.clock = SimClock(1_700_000_000_000_000 + generation * 60_000_000)
        self.mutex = threading.RLock()
        self.turns: Turns | None = None
        self.names = Names()
        self.folders: set[str] = {"/"}
        self.locks: dict[Inode, SimLock] = {}
        self.capacity_bytes: int | None = None
        self.objects = SimStore(seed)  # lives elsewhere: a power cut does not reach it
        self.processes = 0
        self.off = False

    def file(self, path: str) -> Inode:
        """The file with this name, or the error that a real disk gives."""
        inode = self.names.visible.get(path)
        if inode is None:
            code = errno.EISDIR if path in self.folders else errno.ENOENT
            raise OSError(code, os.strerror(code), path)
        return inode

    def free(self, path: str) -> None:
        """Check that `path` can be made."""
        if path in self.names.visible or path in self.folders:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self.parent(path)

    def parent(self, path: str) -> None:
        """Check that the directory of `path` exists."""
        if folder_of(path) not in self.folders:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def make_folders(self, path: str, part: float) -> None:
        """Make the missing directories, or the first of them."""
        missing: list[str] = []
        path = path.rstrip("/") or "/"
        while path not in self.folders:
            if path in self.names.visible:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            missing.append(path)
            path = folder_of(path)
        missing.reverse()
        self.folders.update(missing[: round(len(missing) * part)])

    def listing(self, path: str) -> list[str]:
        """The names in a directory."""
        path = path.rstrip("/") or "/"
        if path not in self.folders:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        inside = [name for name in (*self.names.visible, *self.folders) if name != "/" and folder_of(name) == path]
        return sorted(name.rpartition("/")[2] for name in inside)

    def reserve(self, inode: Inode, size: int, path: str) -> None:
        """ENOSPC when the file's new length does not fit."""
        if self.capacity_bytes is None or size <= len(inode.content):
            return
        used = sum(len(held.content) for held in set(self.names.visible.values()))
        if used + size - len(inode.content) > self.capacity_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def release_locks(self, process: Process) -> None:
        """The locks of a dead process are free."""
        for inode, lock in list(self.locks.items()):
            if lock.process is process:
                del self.locks[inode]

    def restarted(self) -> Machine:
        """The machine after a power cut."""
        after = Machine(self.seed, self.fault, self.generation + 1)
        after.folders = set(self.folders)
        after.capacity_bytes = self.capacity_bytes
        after.objects = self.objects
        twins: dict[Inode, Inode] = {}
        for path, inode in sorted(self.names.survivors(self.fault, self.rng).items()):
            if inode not in twins:
                content = inode.survivor(self.fault, self.rng)
                twins[inode] = Inode(content, bytes(content))
            after.names.visible[path] = twins[inode]
        after.names.durable = dict(after.names.visible)
        return after


class SimHost(Host):
    """One process on a simulated machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._process = Process(machine)
        machine.processes += 1
        rng = SeededRng(hash((machine.seed, machine.generation, machine.processes)))
        super().__init__(clock=machine.clock, disk=SimDisk(self._process), rng=rng)

    @property
    def machine(self) -> Machine:
        """What all processes of this machine share."""
        return self._machine

    @property
    def calls(self) -> Process:
        """This process's counter of I/O calls."""
        return self._process

    @property
    def crash_at(self) -> int:
        """The I/O call to die at; 0 for never."""
        return self._process.crash_at

    @crash_at.setter
    def crash_at(self, number: int) -> None:
        self._process.crash_at = number

    @property
    def io_calls(self) -> int:
        """How many I/O calls this process has made."""
        return len(self._process.trace)

    @property
    def trace(self) -> list[Call]:
        """The I/O calls of this process."""
        return self._process.trace

    @property
    def fail_at(self) -> dict[int, int]:
        """I/O call number -> errno that it raises: EIO, or ENOSPC. A failed sync drops its pages."""
        return self._process.fail_at

    def store(self, root: str) -> Store:
        """A directory of the simulated disk, or a prefix of the one object store that all machines of a seed share."""
        if not is_url(root):
            return super().store(root)
        return Prefixed(self._machine.objects.client(self), root.partition("://")[2])

    def process(self) -> SimHost:
        """Another process on the same machine."""
        return SimHost(self._machine)

    def kill(self) -> None:
        """SIGKILL: the process is dead and its locks are free; the page cache stays."""
        self._process.dead = True
        self._machine.release_locks(self._process)

    def after_crash(self) -> SimHost:
        """Cut the power; the first process after the restart. Every process from before is dead."""
        self._machine.off = True
        return SimHost(self._machine.restarted())


def machine(seed: int, fault: Fault = "lose") -> SimHost:
    """The first process of a new machine with an empty disk."""
    return SimHost(Machine(seed, fault, 0))
