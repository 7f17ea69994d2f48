"""Numbers that only go up, in an object store that may carry out a put long after it was sent.

A register is a folder of small documents, each a list of numbers; what it holds is the highest of each place over
all documents that are there. So a document that lands late changes nothing, two writers need no lock, and the
documents that a new one covers can be deleted after it. The new one's name sorts after theirs: a listing that comes
in pages misses a document only if it shows a newer one.

    <stream>/floors/N-TOKEN.json               rows below may go at any time (see positions)
    <stream>/kept/N-TOKEN.json                 rows below are gone: objects are deleted only after this is there
    <stream>/subscriptions/NAME/N-TOKEN.json   what this reader has not passed stays
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from kedge.errors import CorruptError, UnavailableError
from kedge.host import Host, Store
from kedge.streams import document
from kedge.streams.positions import FOLDER, Positions, subscription_file

FLOORS = "floors"
KEPT = "kept"
_TRIES = 8


class Register:
    """A list of numbers that only go up."""

    def __init__(self, host: Host, root: str, folder: str) -> None:
        self._host, self._root, self.folder = host, root, folder
        self._store: Store = host.store(root)
        self._documents: dict[str, list[int]] = {}  # as they were read: a name is written once

    def read(self) -> list[int] | None:
        """What it holds now; None when nothing was ever written. One listing, and a get for each new document."""
        return self._highest(self._names())

    def _names(self) -> list[str]:
        return [name for name in self._store.list(self.folder) if name.count("/") == self.folder.count("/") + 1]

    def _highest(self, names: Sequence[str]) -> list[int] | None:
        try:
            self._documents = {name: self._documents.get(name) or self._load(name) for name in names}
        except FileNotFoundError:  # a higher one has taken its place since the listing, and only that one counts
            return self.read()
        return [max(place) for place in zip(*self._documents.values(), strict=True)] or None

    def _load(self, name: str) -> list[int]:
        where = f"{self._root}/{name}"
        try:
            return [int(number) for number in document.parse(self._store.get(name), where)["numbers"]]
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptError(
                f"{where} at byte 0: {error!r}. Run `kedge stream repair`.", code="document"
            ) from error

    def raise_to(self, wanted: Sequence[int]) -> list[int]:
        """Let it hold at least `wanted`, durably; what it holds now."""
        names = self._names()
        there = self._highest(names) or [0] * len(wanted)
        higher = [max(pair) for pair in zip(there, wanted, strict=True)]
        if higher == there and names:
            return there
        number = 1 + max((int(old.rpartition("/")[2].partition("-")[0]) for old in names), default=0)
        for attempt in range(_TRIES):
            name = f"{self.folder}/{number:020d}-{self._host.rng.token()}.json"
            try:
                self._store.put(name, document.pack({"numbers": higher}))
                break
            except UnavailableError:
                if attempt == _TRIES - 1:
                    raise
                self._host.clock.sleep(0.01 * 2**attempt)
        for old in names:
            with suppress(UnavailableError):  # a lower document is harmless
                self._store.delete(old)
        return higher

    def clear(self) -> None:
        """Forget all of it."""
        for name in self._names():
            self._store.delete(name)


class ObjectPositions(Positions):
    """The floor and the subscriptions of an object stream: the same promises, kept without a lock."""

    def floors(self) -> list[int]:
        """The trim floor of each partition."""
        return self._register(FLOORS).read() or [0] * self._partitions

    def raise_floors(self, wanted: Sequence[int]) -> list[int]:
        """Publish higher floors, durably; the floors that hold now."""
        return self._register(FLOORS).raise_to(wanted)

    def names(self) -> list[str]:
        """The subscriptions that exist."""
        found = (name.split("/") for name in self._store.list(FOLDER))
        return sorted({parts[1] for parts in found if len(parts) == 3})

    def read(self, name: str) -> list[int] | None:
        """A subscription's positions; None when there is no such subscription."""
        return self._subscription(name).read()

    def write(self, name: str, positions: Sequence[int]) -> None:
        """Save a subscription's positions, durably; they only go up."""
        self._subscription(name).raise_to(positions)

    def remove(self, name: str) -> None:
        """End a subscription."""
        self._subscription(name).clear()

    def _subscription(self, name: str) -> Register:
        return self._register(subscription_file(name).removesuffix(".json"))

    def _register(self, folder: str) -> Register:
        return Register(self._host, self._root, folder)
