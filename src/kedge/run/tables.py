"""Tables as files on a host's disk: the working state of tasks, found again by whichever process works next.

A run's tables are `DIRECTORY/RUN_ID/00042.table`. They are caches and never needed for correctness: what does not
check, or is at another version, is a miss, and the caller restores it from state units.

Invariants:
- A table is touched only under an exclusive lock on its file, held for the whole attempt. Who does not get the lock
  works on private memory, which dies with it.
- A table is attached when its version is the parent's nonce, or when its undo log leads there.
- A file gets its name complete and locked; growth and restoration are a new file and a rename, so a process that
  still maps the old file sees that the name has moved on. Space is reserved before it is mapped: a full disk is
  an OSError.
- The header names boot, run and epoch under a checksum: after a restart of the machine nothing is trusted, since
  nothing was synced.

This file maps memory for writing, which no simulated disk can crash: it uses `os` itself, and takes only nonces
from the host. A process that forks must not have an attempt open.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType

import numpy as np
import pyarrow as pa
import xxhash

from kedge.errors import ConflictError, CorruptError
from kedge.host import Host
from kedge.kernel import Applied, Grow, Program, Table, apply_all, load_all, move_all
from kedge.kernel.table import LOADING, NEVER_US, bytes_needed
from kedge.kernel.table_kernels import STATE

MARKS = slice(40, 47)  # run, boot, epoch, task, checksum: words of the header that the kernels leave alone
MAPPINGS_MAX = 512


@dataclass(slots=True)
class _Mapping:
    """An open file and the table in it; `descriptor` is -1 for private memory."""

    descriptor: int
    inode: tuple[int, int]
    table: Table

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class Tables:
    """The tables of one run on this host; keeps files mapped between attempts."""

    def __init__(self, directory: str, run_id: str, program: Program, host: Host) -> None:
        self.folder = os.path.join(directory, run_id)
        self.run_id, self.program, self.host = run_id, program, host
        self._kept: dict[int, _Mapping] = {}
        os.makedirs(self.folder, mode=0o700, exist_ok=True)

    def attempt(self, epoch: int) -> Attempt:
        """Begin an attempt at one batch; `with tables.attempt(epoch) as attempt: ...` gives the locks back."""
        return Attempt(self, epoch)

    def path(self, task: int) -> str:
        """The file of a task."""
        return os.path.join(self.folder, f"{task:05d}.table")

    def close(self) -> None:
        """Unmap everything; the files stay for the next process."""
        for mapping in self._kept.values():
            mapping.close()
        self._kept.clear()

    def remove(self) -> None:
        """Delete the files of this run on this host."""
        self.close()
        for name in os.listdir(self.folder):
            os.unlink(os.path.join(self.folder, name))
        os.rmdir(self.folder)

    def current(self, task: int) -> _Mapping | None:
        """The mapping of the file that has the task's name now, or None; not locked, not trusted."""
        try:
            status = os.stat(self.path(task))
        except FileNotFoundError:
            return None
        kept = self._kept.get(task)
        if kept is not None and kept.inode == (status.st_dev, status.st_ino):
            return kept
        if kept is not None:
            kept.close()
            del self._kept[task]
        return None

    def keep(self, task: int, mapping: _Mapping) -> None:
        """Remember a mapping for later attempts."""
        old = self._kept.pop(task, None)
        if old is not None and old is not mapping:
            old.close()
        self._kept[task] = mapping

    def forget_most(self) -> None:
        """Keep the number of open files within bounds."""
        for task in list(self._kept)[: max(0, len(self._kept) - MAPPINGS_MAX)]:
            self._kept.pop(task).close()


class Attempt:
    """One attempt's hold on tables: locked files, or private memory where another attempt has the lock."""

    def __init__(self, tables: Tables, epoch: int) -> None:
        self._tables, self._epoch = tables, epoch
        self._locked: dict[int, _Mapping] = {}
        self._lost: set[int] = set()  # tasks whose lock another attempt holds
        self.tables: dict[int, Table] = {}  # attached or restored: ready for a batch

    def __enter__(self) -> Attempt:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def attach(self, task: int, parent: str) -> Table | None:
        """The task's table at version `parent`, or None: then `restore` it."""
        mapping = self._lock(task)
        if mapping is None:
            return None
        table = mapping.table
        try:
            if table.is_lost or (not table.in_progress and parent not in (table.version, table.previous)):
                return None
            if table.in_progress or table.version != parent:
                table.undo()
        except CorruptError:
            return None
        if table.version != parent:
            if table.previous != parent:
                return None
            table.undo()
        self.tables[task] = table
        return table

    def attach_all(self, tasks: Iterable[int], parent: str) -> list[int]:
        """Attach what can be; the tasks that were missed."""
        return [task for task in tasks if self.attach(task, parent) is None]

    def create(self, task: int, rows: int, text_bytes: int = 0) -> Table:
        """A new table with room for `rows`; it counts as lost until it is loaded."""
        return self._new(task, bytes_needed(self._tables.program, rows, text_bytes))

    def restore(
        self, tasks: Sequence[int], rows: Sequence[pa.RecordBatch], version: str, close_us: int = NEVER_US
    ) -> None:
        """Make the tables of `tasks` anew from batches of state rows, later ones newer; without rows they are empty."""
        counts = np.zeros(self._tables.program.tasks, np.int64)
        for batch in rows:
            counts += np.bincount(batch.column(0).to_numpy(), minlength=self._tables.program.tasks)
        spread = sum(batch.nbytes for batch in rows) // max(1, int(counts.sum()))
        for task in tasks:
            count = int(counts[task])
            self.create(task, count + count // 4, count * spread)
        self._load(tasks, rows, version, close_us)

    def _load(self, tasks: Sequence[int], rows: Sequence[pa.RecordBatch], version: str, close_us: int) -> None:
        refused = load_all(self._tables.program, {t: self.tables[t] for t in tasks}, rows, version, close_us)
        while refused is not None:
            for task, size in refused.bytes_needed.items():
                self._new(task, size)
            refused = load_all(self._tables.program, {t: self.tables[t] for t in tasks}, rows, version, close_us)

    def grow(self, needed: Mapping[int, int]) -> None:
        """Move tables into larger files (or memory), at the same version."""
        old = [self.tables[task] for task in needed]
        temporary = {task: self._make(task, size) for task, size in needed.items()}
        move_all(self._tables.program, old, [mapping.table for mapping, _ in temporary.values()])
        for task, (mapping, path) in temporary.items():
            self._install(task, mapping, path)

    def apply(self, nonce: str, partials: Sequence[pa.RecordBatch], close_us: int) -> Applied:
        """Apply a batch to all tables of this attempt, growing them as it needs."""
        applied = apply_all(self._tables.program, self.tables, nonce, partials, close_us)
        while isinstance(applied, Grow):
            self.grow(applied.bytes_needed)
            applied = apply_all(self._tables.program, self.tables, nonce, partials, close_us)
        return applied

    def is_private(self, task: int) -> bool:
        """Whether the task's table is memory that dies with this attempt."""
        return task in self._lost

    def close(self) -> None:
        """Give the locks back."""
        for mapping in self._locked.values():
            if mapping.descriptor >= 0:
                fcntl.flock(mapping.descriptor, fcntl.LOCK_UN)
        self._locked.clear()
        self.tables.clear()
        self._lost.clear()
        self._tables.forget_most()

    def _lock(self, task: int) -> _Mapping | None:
        """Lock and map the task's file; None when there is none, it does not check, or another attempt has it."""
        if task in self._locked:
            return self._locked[task]
        for _ in range(8):  # the name may move on while we wait for nothing
            mapping = self._tables.current(task) or self._open(task)
            if mapping is None or task in self._lost:
                return None
            try:
                fcntl.flock(mapping.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._lost.add(task)
                return None
            if self._tables.current(task) is mapping:
                self._locked[task] = mapping
                return mapping
        raise ConflictError(f"{self._tables.path(task)} is replaced again and again: another attempt is at work.")

    def _open(self, task: int) -> _Mapping | None:
        """Map the file and check its marks; a file that does not check is removed under its lock."""
        try:
            descriptor = os.open(self._tables.path(task), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            self._lost.add(task)
            return None
        status = os.fstat(descriptor)
        try:
            table = Table(mmap.mmap(descriptor, status.st_size), self._tables.program)
            if not np.array_equal(table.words[MARKS], self._marks(task, int(table.words[MARKS][4]))):
                raise CorruptError(f"{self._tables.path(task)} is of another run or boot.")
        except (CorruptError, ValueError):
            self._unlink(task, descriptor)
            os.close(descriptor)
            return None
        mapping = _Mapping(descriptor, (status.st_dev, status.st_ino), table)
        self._tables.keep(task, mapping)
        return mapping

    def _unlink(self, task: int, descriptor: int) -> None:
        """Remove a file that does not check, if it still has the name (its lock is held)."""
        path, mine = self._tables.path(task), os.fstat(descriptor)
        if os.path.exists(path) and os.path.samestat(os.stat(path), mine):
            os.unlink(path)

    def _new(self, task: int, size: int) -> Table:
        mapping, path = self._make(task, size)
        self._install(task, mapping, path)
        return mapping.table

    def _make(self, task: int, size: int) -> tuple[_Mapping, str]:
        """A formatted table that counts as lost, in a locked file without its name yet, or in memory."""
        size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        path, descriptor, inode = "", -1, (0, 0)
        if task in self._lost:
            memory = mmap.mmap(-1, size)
        else:
            path = os.path.join(self._tables.folder, f".tmp-{self._tables.host.rng.token()}")
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.posix_fallocate(descriptor, 0, size)
            status = os.fstat(descriptor)
            inode = (status.st_dev, status.st_ino)
            memory = mmap.mmap(descriptor, size)
        Table.format(memory, self._tables.program, "0" * 32)
        table = Table(memory, self._tables.program)
        table.words[STATE] = LOADING
        table.words[MARKS] = self._marks(task, self._epoch)
        return _Mapping(descriptor, inode, table), path

    def _install(self, task: int, mapping: _Mapping, path: str) -> None:
        """Give a new table its task's name."""
        self.tables[task] = mapping.table
        if mapping.descriptor < 0:
            self._locked[task] = mapping
            return
        if task in self._locked:
            os.replace(path, self._tables.path(task))
        else:
            try:
                os.link(path, self._tables.path(task))
            except FileExistsError:  # another attempt was quicker: ours stays without a name
                self._lost.add(task)
            os.unlink(path)
        self._locked[task] = mapping
        if task not in self._lost:
            self._tables.keep(task, mapping)

    def _marks(self, task: int, epoch: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        boot, run = xxhash.xxh3_128_digest(boot_id().encode()), xxhash.xxh3_128_digest(self._tables.run_id.encode())
        head = run + boot + epoch.to_bytes(8, "little", signed=True) + task.to_bytes(8, "little")
        return np.frombuffer(head + xxhash.xxh3_64_digest(head), np.int64)


_NO_BOOT_ID = os.urandom(16).hex()


def boot_id() -> str:
    """What changes when the machine restarts; where there is none, what changes with the process."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return _NO_BOOT_ID
