"""A stream kept as objects: what its readers see, and what its one writer, its trims and its readers share.

The stream's ledger is its manifest: a unit counts when a record names it (see `contents`), and appends to several
partitions that one record names happen together. Nothing here needs a disk, a lock or a clock that others share, so
the format works wherever `host.store` does.

Invariants:
- Readers see what the ledger's records say, less what `kept` says is gone, and nothing else; never a listing.
- A trim publishes its floor, then reads the subscriptions, then publishes what is kept, and only then deletes.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Executor

from kedge.errors import UnavailableError
from kedge.host import Host
from kedge.ledger import Ledger
from kedge.streams.committed import CommittedIndex
from kedge.streams.committer import Committer, ObjectAtomic, ObjectPartition
from kedge.streams.contents import Contents
from kedge.streams.fetched import Fetched
from kedge.streams.index import UnitInfo
from kedge.streams.registers import KEPT, ObjectPositions, Register


class ObjectManifest:
    """The durable units of all partitions, read forward."""

    def __init__(self, host: Host, root: str, stream: str, partitions: int) -> None:
        self._host, self.root, self._stream, self._partitions = host, root, stream, partitions
        store = host.store(root)
        self._ledger = Ledger(store, host.rng, host.clock)
        self._kept = Register(host, root, KEPT)
        self._fetched = Fetched(store, root)
        self._contents = Contents(stream, partitions, f"{root}/ledger")
        self._kept_now = [0] * partitions
        self._lock = threading.Lock()

    @property
    def units(self) -> list[list[UnitInfo]]:
        """By partition, as far as this was refreshed."""
        return self._contents.units

    @property
    def ends(self) -> list[int]:
        """The durable end of each partition at the last refresh."""
        return self._contents.ends

    @property
    def lost(self) -> list[tuple[int, int, int]]:
        """(partition, offset, rows) of what a repair could not keep."""
        return self._contents.lost

    def refresh(self) -> None:
        """Read what was committed and trimmed since."""
        with self._lock:
            self._ledger.refresh()
            contents = self._contents
            contents.follow(*self._ledger.floor(), self._ledger.records(contents.next_slot))
            self._kept_now = self._kept.read() or self._kept_now
            contents.drop_below(self._kept_now)

    def begin(self, partition: int) -> int:
        """The first offset that was not let go."""
        return min(self._kept_now[partition], self.ends[partition])

    def file(self, info: UnitInfo, columns: Sequence[int] | None = None) -> memoryview:
        """The bytes of a unit's object; with `columns`, those of the header and of these columns at least."""
        return self._fetched.unit(info, columns)

    def forget(self) -> None:
        """Give the memory back."""
        self._fetched.forget()


class ObjectIndex(CommittedIndex):
    """One partition of an object stream, as a reader sees it."""

    def __init__(self, manifest: ObjectManifest, partition: int) -> None:
        super().__init__(manifest, partition)
        self._objects = manifest

    @property
    def begin(self) -> int:
        """The first offset that is still there."""
        return self._objects.begin(self._partition)


class Objects:
    """The shared parts of one open object stream."""

    def __init__(self, host: Host, root: str, stream: str, partitions: int, *, takeover: bool) -> None:
        self._host, self._root, self._stream, self._partitions = host, root, stream, partitions
        self._takeover = takeover
        self.positions = ObjectPositions(host, root, partitions)
        self.manifest = ObjectManifest(host, root, stream, partitions)
        self._committer: Committer | None = None

    def indexes(self) -> list[ObjectIndex]:
        """What readers of each partition ask."""
        return [ObjectIndex(self.manifest, partition) for partition in range(self._partitions)]

    def committer(self, io: Executor | None) -> Committer:
        """This process as the stream's one writer; ConflictError when another is."""
        if self._committer is None:
            self._committer = Committer(
                self._host, self._root, self._stream, self._partitions, takeover=self._takeover, io=io
            )
        return self._committer

    def writer(self, partition: int, io: Executor | None) -> ObjectPartition:
        """A partition, to be written to."""
        return self.committer(io).partition(partition)

    def atomic(self, io: Executor | None) -> ObjectAtomic:
        """Appends to several partitions."""
        return ObjectAtomic(self.committer(io))

    def trim(self, floors: Sequence[int]) -> None:
        """Let go of what lies below both the published floors and every subscription; delete its objects."""
        keep = [min(pair) for pair in zip(floors, self.positions.needed(), strict=True)]
        self.manifest.refresh()
        before = {unit.file for units in self.manifest.units for unit in units}
        Register(self._host, self._root, KEPT).raise_to(keep)
        self.manifest.refresh()
        after = {unit.file for units in self.manifest.units for unit in units}
        store = self._host.store(self._root)
        for name in sorted(before - after):
            try:
                store.delete(name)
            except UnavailableError:
                continue  # garbage is harmless: the next writer sweeps it
