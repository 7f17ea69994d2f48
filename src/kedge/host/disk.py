"""Files of one host: few calls, each of them one I/O call that the simulator can crash at.

Invariants that callers rely on:
- `write` is durable only after `sync` of the file; a new name only after `sync_dir` of its directory.
- `link` fails when the target exists, on every file system: that is how a name is won once.
- A `Lock` is held until it is closed or its process dies, whichever comes first.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from contextlib import suppress
from typing import ClassVar, Literal, Protocol, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from kedge.errors import UsageError

Bytes: TypeAlias = bytes | bytearray | memoryview | NDArray[np.uint8]
Mode: TypeAlias = Literal["read", "write", "create"]


class File(Protocol):
    """An open file; reads and writes name their offset, so that there is no position to share."""

    def write(self, data: Bytes, offset: int) -> None:
        """Write all of `data` at `offset`."""
        ...

    def read(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes from `offset`; fewer only at the end of the file."""
        ...

    def map(self) -> memoryview:
        """The whole file as read-only memory; valid as long as the view is held, even after `close`."""
        ...

    def sync(self) -> None:
        """Make the contents and the size durable (fdatasync). After a failure nothing can be trusted."""
        ...

    def allocate(self, size: int) -> None:
        """Reserve `size` bytes; what was not written reads as zeros. Raises OSError when the disk is full."""
        ...

    def truncate(self, size: int) -> None:
        """Cut or extend to `size` bytes."""
        ...

    def size(self) -> int:
        """The file's length in bytes."""
        ...

    def close(self) -> None:
        """Give the file back; syncs nothing."""
        ...


class Lock(Protocol):
    """An exclusive lock that its process holds."""

    def close(self) -> None:
        """Release it."""
        ...


class Disk(Protocol):
    """A file system. Paths are plain strings; errors are Python's own OSError subclasses."""

    def open(self, path: str, mode: Mode = "read") -> File:
        """Open a file: `read` and `write` need it to exist, `create` needs it not to."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Give `source` the name `target`, replacing what has it."""
        ...

    def link(self, source: str, target: str) -> None:
        """A second name for a file; FileExistsError when `target` exists."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a name; FileNotFoundError when there is none."""
        ...

    def mkdir(self, path: str) -> None:
        """Make a directory and its parents, durably; nothing happens when it exists."""
        ...

    def list(self, path: str) -> list[str]:
        """The sorted names in a directory; FileNotFoundError when there is none."""
        ...

    def is_dir(self, path: str) -> bool:
        """Whether `path` is a directory."""
        ...

    def exists(self, path: str) -> bool:
        """Whether anything has this name."""
        ...

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory durable (fsync)."""
        ...

    def lock(self, path: str) -> Lock:
        """Take an exclusive lock; BlockingIOError when another holder has it."""
        ...


PAGE_BYTES = 4096
DIRECT_BYTES = 1 << 20  # from here on a write goes around the page cache: copying would cost more than it saves


class LocalFile:
    """A file of the machine, by its descriptor.

    A large write of whole pages from page-aligned memory goes straight to the device, where the file system allows it.
    """

    def __init__(self, descriptor: int) -> None:
        self._fd = descriptor
        self._direct: int | None = None  # opened at the first such write; -1 where the file system refuses

    def write(self, data: Bytes, offset: int) -> None:
        """Write all of `data` at `offset`; the kernel may take it in pieces."""
        view = memoryview(cast(bytes, data)).cast("B")
        while view.nbytes:
            written = os.pwrite(self._descriptor_for(view, offset), view, offset)
            view, offset = view[written:], offset + written

    def _descriptor_for(self, view: memoryview, offset: int) -> int:
        if view.nbytes < DIRECT_BYTES or view.nbytes % PAGE_BYTES or offset % PAGE_BYTES:
            return self._fd
        if np.frombuffer(view, np.uint8).ctypes.data % PAGE_BYTES:
            return self._fd
        if self._direct is None:
            try:
                self._direct = os.open(f"/proc/self/fd/{self._fd}", os.O_WRONLY | os.O_DIRECT | os.O_CLOEXEC)
            except (OSError, AttributeError):  # no such flag, no /proc, or a file system in memory
                self._direct = -1
        return self._direct if self._direct >= 0 else self._fd

    def read(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes from `offset`."""
        parts: list[bytes] = []
        while size > 0:
            part = os.pread(self._fd, size, offset)
            if not part:
                break
            parts.append(part)
            size, offset = size - len(part), offset + len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def map(self) -> memoryview:
        """The whole file as read-only memory."""
        size = self.size()
        if size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(self._fd, size, prot=mmap.PROT_READ))

    def sync(self) -> None:
        """fdatasync: contents and size."""
        os.fdatasync(self._fd)

    def allocate(self, size: int) -> None:
        """posix_fallocate: a full disk is an OSError here, not a SIGBUS later."""
        if size > 0:
            os.posix_fallocate(self._fd, 0, size)

    def truncate(self, size: int) -> None:
        """Cut or extend."""
        os.ftruncate(self._fd, size)

    def size(self) -> int:
        """The length in bytes."""
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        """Close the descriptor; a second call does nothing."""
        descriptors, self._fd, self._direct = (self._fd, self._direct), -1, -1
        for descriptor in descriptors:
            if descriptor is not None and descriptor >= 0:
                os.close(descriptor)


_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)


class LocalLock:
    """flock on a file: the kernel releases it when the process dies."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._fd)
            if error.errno in _NO_LOCKS:
                raise UsageError(
                    f"{path}: this file system has no locks ({error.strerror}), so two writers could not be told "
                    "apart. Use a local file system, or an object store."
                ) from error
            raise

    def close(self) -> None:
        """Release; a second call does nothing."""
        descriptor, self._fd = self._fd, -1
        if descriptor >= 0:
            os.close(descriptor)


_FLAGS = {"read": os.O_RDONLY, "write": os.O_RDWR, "create": os.O_RDWR | os.O_CREAT | os.O_EXCL}


class LocalDisk:
    """The machine's file systems."""

    def open(self, path: str, mode: Mode = "read") -> File:
        """Open a file by its mode."""
        return LocalFile(os.open(path, _FLAGS[mode] | os.O_CLOEXEC, 0o644))

    def rename(self, source: str, target: str) -> None:
        """Replace `target` by `source`."""
        os.replace(source, target)

    def link(self, source: str, target: str) -> None:
        """A second name."""
        os.link(source, target)

    def unlink(self, path: str) -> None:
        """Remove a name."""
        os.unlink(path)

    _durable: ClassVar[set[str]] = {"/"}  # directories that this process knows to be durable

    def mkdir(self, path: str) -> None:
        """Make the missing directories, each durable in its parent before the next is made.

        One that is there may have been made by a process that died before it could sync the parent.
        """
        path = os.path.abspath(path)
        there = os.path.isdir(path)
        if there and path in self._durable:
            return
        parent = os.path.dirname(path)
        self.mkdir(parent)
        if there:
            with suppress(OSError):  # not ours to sync, perhaps; whoever made it long ago has
                self.sync_dir(parent)
        else:
            try:
                os.mkdir(path)
            except FileExistsError:
                if not os.path.isdir(path):
                    raise
            self.sync_dir(parent)
        self._durable.add(path)

    def list(self, path: str) -> list[str]:
        """The sorted names."""
        return sorted(os.listdir(path))

    def is_dir(self, path: str) -> bool:
        """Whether `path` is a directory."""
        return os.path.isdir(path)

    def exists(self, path: str) -> bool:
        """Whether anything has this name."""
        return os.path.lexists(path)

    def sync_dir(self, path: str) -> None:
        """fsync of the directory."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self, path: str) -> Lock:
        """flock, at once or not at all."""
        return LocalLock(path)
