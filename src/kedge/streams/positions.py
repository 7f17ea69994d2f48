"""Who still needs which rows: the trim floor, and the positions of subscriptions.

    <stream>/floor.json                 {"floors": [...]}: rows below may go at any time
    <stream>/subscriptions/<name>.json  {"positions": [...]}: what this reader has not passed stays

Invariants:
- A subscriber writes its positions first and reads the floor after; a trim publishes the floor first and lists the
  positions after. So of the two, one sees the other: no row is deleted that a subscriber was promised.
- Floors and positions only go up.
- What is deleted is whole segments below both, lowest first, each deletion durable before the next: what a crash
  leaves has no hole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from kedge.errors import UnavailableError, UsageError
from kedge.host import Host
from kedge.host.store import checked_name
from kedge.streams import document
from kedge.streams.files import PartitionFiles

FLOOR = "floor.json"
FOLDER = "subscriptions"


class Positions:
    """The floor and the subscriptions of one stream."""

    def __init__(self, host: Host, root: str, partitions: int) -> None:
        self._host, self._root, self._partitions = host, root, partitions
        self._store = host.store(root)

    def floors(self) -> list[int]:
        """The trim floor of each partition."""
        return self._load(FLOOR, "floors") or [0] * self._partitions

    def raise_floors(self, wanted: Sequence[int]) -> list[int]:
        """Publish higher floors, durably; the floors that hold now."""
        try:
            lock = self._host.disk.lock(f"{self._root}/trim.lock")
        except BlockingIOError:
            raise UnavailableError(f"{self._root}: another process is trimming this stream. Try again.") from None
        try:
            there = self.floors()
            floors = [max(pair) for pair in zip(there, wanted, strict=True)]
            if floors != there:
                self._store.put(FLOOR, document.pack({"floors": floors}))
            return floors
        finally:
            lock.close()

    def needed(self) -> list[int]:
        """The lowest position of any subscription, for each partition."""
        lowest = [1 << 62] * self._partitions
        for name in self.names():
            positions = self.read(name)
            if positions is not None:
                lowest = [min(pair) for pair in zip(lowest, positions, strict=True)]
        return lowest

    def passed(self) -> list[int]:
        """How far all subscriptions are; 0 when there is none."""
        return [position if position < 1 << 62 else 0 for position in self.needed()]

    def names(self) -> list[str]:
        """The subscriptions that exist."""
        return [name[len(FOLDER) + 1 : -5] for name in self._store.list(FOLDER) if name.endswith(".json")]

    def read(self, name: str) -> list[int] | None:
        """A subscription's positions; None when there is no such subscription."""
        return self._load(subscription_file(name), "positions")

    def write(self, name: str, positions: Sequence[int]) -> None:
        """Save a subscription's positions, durably."""
        self._store.put(subscription_file(name), document.pack({"positions": list(positions)}))

    def remove(self, name: str) -> None:
        """End a subscription."""
        self._store.delete(subscription_file(name))

    def _load(self, name: str, key: str) -> list[int] | None:
        try:
            raw = self._store.get(name)
        except FileNotFoundError:
            return None
        found = document.parse(raw, f"{self._root}/{name}")[key]
        return [int(position) for position in found]


def subscription_file(name: str) -> str:
    """The object of a subscription."""
    if not name or "/" in name or name.startswith("."):
        raise UsageError(f"{name!r} is not a subscription's name: it is empty, has a '/' or begins with a dot.")
    return checked_name(f"{FOLDER}/{name}.json")


class Subscription:
    """A reader's saved position: what it has not passed is not trimmed.

    >>> todo = rides.subscribe("billing")       # doctest: +SKIP
    >>> for batch in rides.read(0, todo.positions[0]): ...     # doctest: +SKIP
    >>> todo.commit([rides.ends()[0]])          # doctest: +SKIP
    """

    def __init__(
        self, name: str, positions: Positions, start: Sequence[int], ends: Callable[[], Sequence[int]]
    ) -> None:
        self.name, self._saved, self._ends = name, positions, ends
        held = positions.read(name)
        self.positions = held or list(start)
        if held:
            return  # every trim since it was written has seen it
        self._check(self.positions)
        positions.write(name, self.positions)
        floors = positions.floors()
        if any(floor > position for floor, position in zip(floors, self.positions, strict=True)):
            # A trim was first: what lies below the floor is not promised.
            self.positions = [max(pair) for pair in zip(floors, self.positions, strict=True)]
            positions.write(name, self.positions)

    def commit(self, positions: Sequence[int]) -> None:
        """Save how far the reader is in each partition; it never goes back."""
        self._check(positions)
        ahead = [max(pair) for pair in zip(self.positions, positions, strict=True)]
        if ahead != self.positions:
            self._saved.write(self.name, ahead)
            self.positions = ahead

    def _check(self, positions: Sequence[int]) -> None:
        """A position beyond the end would pass rows that are still to come."""
        ends = self._ends()
        if len(positions) != len(ends) or any(not 0 <= at <= end for at, end in zip(positions, ends, strict=False)):
            raise UsageError(
                f"Subscription {self.name!r} needs a position for each partition, from 0 to its end {list(ends)}, "
                f"not {list(positions)}."
            )

    def end(self) -> None:
        """Give the subscription up: it holds nothing any more."""
        self._saved.remove(self.name)


def delete_below(files: PartitionFiles, keep: int) -> int:
    """Delete the segments of a partition whose rows are all below `keep`; how many."""
    _, slot = files.epochs.current()
    if slot is None:
        return 0
    deleted = 0
    oldest_slot = files.epochs.oldest_segment(slot.epoch)
    names = files.chain(slot)
    for name, after in pairwise(names):
        # Recovery may go back to the older of two durable slots, so the segment of that one stays.
        if after.first_offset > keep or name.number >= oldest_slot:
            break
        files.host.disk.unlink(files.path(name))
        files.host.disk.sync_dir(files.segments_folder)
        deleted += 1
    return deleted
