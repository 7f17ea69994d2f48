"""What a file and a directory of the simulated disk hold: now, for sure, and perhaps.

Invariants:
- `Inode.content` is what processes see; `durable` is what a power cut can't take; `pending` lies between.
- `Names.visible` and `Names.durable` are the same for directory entries; an entry change is atomic (a rename inside
  one directory never loses both names), and changes of one name keep their order.
- Of pending changes any subset may survive a crash, unless the fault is "stop".

Directories themselves are durable as soon as they are made, because `Disk.mkdir` promises that.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Fault: TypeAlias = Literal["stop", "lose", "tear"]

SECTOR_BYTES = 512


@dataclass(frozen=True)
class Change:
    """One unsynced change of a file: `data` at `offset`, or a new length."""

    kind: Literal["write", "truncate", "allocate"]
    offset: int = 0
    data: bytes = b""
    size: int = 0

    def apply(self, content: bytearray) -> None:
        """Make the change."""
        if self.kind == "write":
            end = self.offset + len(self.data)
            _extend(content, end)
            content[self.offset : end] = self.data
        elif self.kind == "truncate":
            del content[self.size :]
            _extend(content, self.size)
        else:
            _extend(content, self.size)

    def tear(self, content: bytearray, rng: random.Random) -> None:
        """Make a part of the change: some sectors of a write, the rest of its range as it was or zeros."""
        if self.kind != "write":
            self.apply(content)
            return
        end = self.offset + len(self.data)
        if rng.random() < 0.5:
            _extend(content, end)  # the length reached the disk, the data did not
        start = self.offset
        while start < end:
            stop = min(end, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
            if rng.random() < 0.5:
                _extend(content, stop)
                content[start:stop] = self.data[start - self.offset : stop - self.offset]
            start = stop


def _extend(content: bytearray, size: int) -> None:
    if len(content) < size:
        content.extend(bytes(size - len(content)))


@dataclass(eq=False)
class Inode:
    """A file, whatever its names."""

    content: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    pending: list[Change] = field(default_factory=list[Change])

    def change(self, change: Change) -> None:
        """Make a change that is not yet durable."""
        change.apply(self.content)
        self.pending.append(change)

    def sync(self) -> None:
        """Everything pending is durable; pages that a failed sync dropped stay lost."""
        if self.pending:
            durable = bytearray(self.durable)
            for change in self.pending:
                change.apply(durable)
            self.durable = bytes(durable)
            self.pending.clear()

    def fail_sync(self, fault: Fault, rng: random.Random) -> None:
        """As Linux: the pages are marked clean whatever reached the disk, so a second sync finds nothing to do."""
        self.durable = bytes(self.survivor("lose" if fault == "stop" else fault, rng))
        self.pending.clear()
        if rng.random() < 0.5:  # the clean pages may be read again from the disk, or still be in memory
            self.content[:] = self.durable

    def survivor(self, fault: Fault, rng: random.Random) -> bytearray:
        """What a restart finds in the file."""
        if fault == "stop":
            return bytearray(self.content)
        found = bytearray(self.durable)
        keep = rng.choice((0.0, 0.5, 0.5, 1.0))
        for change in self.pending:
            if rng.random() >= keep:
                continue
            if fault == "tear" and rng.random() < 0.5:
                change.tear(found, rng)
            else:
                change.apply(found)
        return found


Entry: TypeAlias = tuple[str, Inode | None]  # a path and what it names from now on


@dataclass
class Names:
    """The directory entries of the disk, by full path."""

    visible: dict[str, Inode] = field(default_factory=dict[str, Inode])
    durable: dict[str, Inode] = field(default_factory=dict[str, Inode])
    pending: dict[str, list[tuple[Entry, ...]]] = field(default_factory=dict[str, list[tuple[Entry, ...]]])

    def change(self, *entries: Entry) -> None:
        """Change entries: those of one directory together, other directories on their own."""
        by_folder: dict[str, list[Entry]] = {}
        for path, inode in entries:
            _set(self.visible, path, inode)
            by_folder.setdefault(folder_of(path), []).append((path, inode))
        for folder, group in by_folder.items():
            self.pending.setdefault(folder, []).append(tuple(group))

    def sync(self, folder: str) -> None:
        """All entries of a directory are durable."""
        for group in self.pending.pop(folder, []):
            for path, inode in group:
                _set(self.durable, path, inode)

    def survivors(self, fault: Fault, rng: random.Random) -> dict[str, Inode]:
        """The names that a restart finds."""
        if fault == "stop":
            return dict(self.visible)
        found = dict(self.durable)
        for folder in sorted(self.pending):
            keep = rng.choice((0.0, 0.5, 0.5, 1.0))
            for group in self.pending[folder]:
                if rng.random() < keep:
                    for path, inode in group:
                        _set(found, path, inode)
        return found


def _set(names: dict[str, Inode], path: str, inode: Inode | None) -> None:
    if inode is None:
        names.pop(path, None)
    else:
        names[path] = inode


def folder_of(path: str) -> str:
    """The directory that holds `path`."""
    return path.rpartition("/")[0] or "/"
