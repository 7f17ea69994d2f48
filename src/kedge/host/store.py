"""A store of whole objects under names: what runs keep their records and units in.

An object is there whole or not at all, and durable when `put` returns. `put(if_absent=True)` wins a name once:
FileExistsError says that it was taken, UnavailableError that nobody knows (a time-out): then read before anything
else. Names are relative, with `/` between parts, and never leave the store's root.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from typing import Protocol

from kedge.errors import UsageError
from kedge.host.disk import Bytes, Disk
from kedge.host.rng import Rng


class Store(Protocol):
    """Objects by name."""

    def put(self, name: str, data: Bytes, *, if_absent: bool = False) -> None:
        """Write a whole object, durably."""
        ...

    def get(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        """An object, or its bytes [start, end); FileNotFoundError when there is none."""
        ...

    def list(self, prefix: str) -> list[str]:
        """The sorted names below the folder `prefix` (recursively); empty when there is none."""
        ...

    def delete(self, name: str) -> None:
        """Remove an object; nothing happens when there is none."""
        ...

    def settle(self, folder: str) -> None:
        """Make durable what this caller has seen directly in `folder`: others may show an object before it is."""
        ...

    def sweep(self, folder: str) -> None:
        """Remove what dead writers left half-written directly in `folder`; a live writer is not disturbed."""
        ...


def checked_name(name: str) -> str:
    """`name`, if it stays inside a store's root."""
    parts = name.split("/")
    if not name or any(part in ("", ".", "..") or "\\" in part or "\0" in part for part in parts):
        raise UsageError(f"{name!r} is not a name inside a store: use plain parts with '/' between them.")
    return name


TEMPORARY = ".tmp-"
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS})


class DirectoryStore:
    """Objects as files below a directory of a disk.

    An object is written under a temporary name, synced, and only then given its name; then the directory is synced.
    So other processes may see an object shortly before it is durable: `settle` closes that gap for a reader.
    A put whose temporary file was swept away starts again, so that `sweep` may remove any temporary file.
    """

    def __init__(self, disk: Disk, root: str, rng: Rng) -> None:
        self._disk, self.root, self._rng = disk, root.rstrip("/"), rng
        self._folders: set[str] = set()

    def put(self, name: str, data: Bytes, *, if_absent: bool = False) -> None:
        """Temporary file, sync, link or rename, sync of the directory."""
        path = self._path(name)
        folder = path.rpartition("/")[0]
        if if_absent and self._disk.exists(path):
            raise FileExistsError(path)  # spares the writing; `link` decides
        while True:
            temporary = f"{folder}/{TEMPORARY}{self._rng.token()}"
            self._write(temporary, data)
            try:
                self._name(temporary, path, if_absent)
                break
            except FileNotFoundError:
                continue  # the temporary file was swept away
        self._disk.sync_dir(folder)

    def _write(self, temporary: str, data: Bytes) -> None:
        folder = temporary.rpartition("/")[0]
        if folder not in self._folders:
            self._disk.mkdir(folder)  # even if it is there: it may not be durable
            self._folders.add(folder)
        try:
            file = self._disk.open(temporary, "create")
        except FileNotFoundError:  # somebody has removed the empty folder since
            self._disk.mkdir(folder)
            file = self._disk.open(temporary, "create")
        try:
            file.write(data, 0)
            file.sync()
        except OSError:
            self._forget(temporary)
            raise
        finally:
            file.close()

    def _name(self, temporary: str, path: str, if_absent: bool) -> None:
        if not if_absent:
            self._disk.rename(temporary, path)
            return
        try:
            self._disk.link(temporary, path)
        except OSError as error:
            if error.errno in _NO_LINKS:
                raise UsageError(
                    f"{self.root}: this file system has no hard links ({error.strerror}), so a name can't be won "
                    "once there. Use a local file system such as ext4, xfs or APFS."
                ) from error
            raise
        finally:
            self._forget(temporary)

    def _forget(self, temporary: str) -> None:
        with suppress(OSError):  # garbage is harmless, and the next sweep finds it
            self._disk.unlink(temporary)

    def get(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        """Read the file, or a range of it."""
        file = self._disk.open(self._path(name))
        try:
            stop = file.size() if end is None else end
            return file.read(max(0, stop - start), start)
        finally:
            file.close()

    def list(self, prefix: str) -> list[str]:
        """Walk the folder; temporary files are nobody's objects."""
        found: list[str] = []
        stack = [checked_name(prefix.rstrip("/"))] if prefix else [""]
        while stack:
            folder = stack.pop()
            path = f"{self.root}/{folder}" if folder else self.root
            try:
                names = self._disk.list(path)
            except (FileNotFoundError, NotADirectoryError):
                continue
            for name in names:
                if name.startswith(TEMPORARY):
                    continue
                full = f"{folder}/{name}" if folder else name
                (stack if self._disk.is_dir(f"{self.root}/{full}") else found).append(full)
        return sorted(found)

    def delete(self, name: str) -> None:
        """Unlink; durable at the next sync of the directory, and harmless to repeat."""
        try:
            self._disk.unlink(self._path(name))
        except FileNotFoundError:
            return

    def settle(self, folder: str) -> None:
        """fsync of the directory: cheap when nothing is pending."""
        with suppress(FileNotFoundError):
            self._disk.sync_dir(self._path(folder))

    def sweep(self, folder: str) -> None:
        """Unlink the temporary files; a live writer whose file goes simply writes another."""
        path = self._path(folder)
        try:
            names = self._disk.list(path)
        except FileNotFoundError:
            return
        for name in names:
            if name.startswith(TEMPORARY):
                self._forget(f"{path}/{name}")

    def _path(self, name: str) -> str:
        return f"{self.root}/{checked_name(name)}"
