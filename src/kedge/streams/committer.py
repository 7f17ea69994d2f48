"""The one writer of an object stream: puts units into objects, and makes them count with one record.

A commit takes all that was staged for any partition: its units go up in parallel, large ones in an object each,
small ones packed together; then one record names them. So a durable append costs one put for its units, one for the
record and one listing (the ledger's floor), however many appends and partitions share them.

Invariants:
- Every object that a record names is there before the record is put, under a name that nobody else ever uses.
- The ledger is claimed before anything is put: from the claim on no record of an older writer counts, and objects of
  older epochs that no record names are garbage.
- After an error nothing is committed any more: what the store has is unknown until somebody claims and reads it.
- A writer that lives says so in `alive.json`. That is a courtesy, which lets a second writer see that there is a
  first one. Safety rests on the ledger alone: a writer that was silent too long is fenced, not believed dead.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from kedge.errors import ClosedError, ConflictError, InternalError, UnavailableError
from kedge.host import Host
from kedge.host.disk import Bytes
from kedge.ledger import Ledger
from kedge.streams import layout
from kedge.streams.contents import FOLDER, Contents, entry, seed
from kedge.streams.epoch import Slot
from kedge.streams.index import UnitInfo
from kedge.streams.layout import aligned
from kedge.streams.recovery import Recovered
from kedge.streams.registers import KEPT, Register
from kedge.streams.segment import Mark

PACKED_BYTES = 1 << 20  # a smaller unit shares its object
PACK_BYTES_MAX = 8 << 20
COMPACT_EVERY = 64  # records above the floor; more, when the summary is long
UNITS_PER_RECORD = 64  # how many known units make one more record worth keeping
ALIVE = "alive.json"
BEAT_SECONDS = 2.0
SILENCE_SECONDS = 8.0
_LOOK_SECONDS = 0.5
_TRIES = 6


@dataclass
class Staged:
    """One append to one partition, not yet committed."""

    partition: int
    units: Sequence[NDArray[np.uint8]]
    rows: int
    producer: str | None
    sequence: int | None


class Committer:
    """Holds a stream's epoch until it is closed."""

    def __init__(
        self, host: Host, root: str, stream: str, partitions: int, *, takeover: bool, io: Executor | None
    ) -> None:
        self._host, self._root, self._stream, self._io = host, root, stream, io
        self._store = host.store(root)
        self._ledger = Ledger(self._store, host.rng, host.clock)
        self._kept = Register(host, root, KEPT)
        self.contents = Contents(stream, partitions, f"{root}/ledger")
        self._staged: list[Staged] = []
        self._staging, self._committing = threading.Lock(), threading.Lock()
        self._broken: BaseException | None = None
        self._open: set[int] = set()
        self._written = 0
        self._claim(takeover)
        self._ended = threading.Event()
        if io is not None:
            threading.Thread(target=self._beat, name=f"kedge-alive {root}", daemon=True).start()

    # ---- becoming the writer ---------------------------------------------------------------------------------

    def _claim(self, takeover: bool) -> None:
        self._ledger.refresh()
        self._follow()
        clean = not self.contents.held_by
        if not clean and not takeover:
            self._wait_for_silence(self.contents.held_by)
        self.epoch = self._ledger.claim()
        self._token = self._host.rng.token()[:12]
        self._follow()
        if not clean:
            self._sweep()

    def _follow(self) -> None:
        self.contents.follow(*self._ledger.floor(), self._ledger.records(self.contents.next_slot))
        self.contents.drop_below(self._kept.read() or [0] * len(self.contents.ends))

    def _wait_for_silence(self, epoch: int) -> None:
        """ConflictError if the writer of `epoch` lives; one change may be a late call of a dead one."""
        clock = self._host.clock
        before, changes = (self._alive(), self._ledger.refresh()), 0
        began_ns = clock.monotonic_ns()
        while clock.monotonic_ns() - began_ns < SILENCE_SECONDS * 1e9:
            clock.sleep(_LOOK_SECONDS)
            now = (self._alive(), self._ledger.refresh())
            if now == before:
                continue
            before, changes, began_ns = now, changes + 1, clock.monotonic_ns()
            if changes == 2:
                raise ConflictError(
                    f"{self._root}: another writer (epoch {epoch}) has this stream open. Close it, or open the "
                    "stream with takeover=True to push it out."
                )

    def _alive(self) -> bytes:
        try:
            return self._store.get(ALIVE)
        except (FileNotFoundError, UnavailableError):
            return b""

    def _beat(self) -> None:
        """Say that this writer lives, for as long as it does."""
        number = 0
        while not self._ended.wait(BEAT_SECONDS if number else 0) and self._broken is None:
            number += 1
            with suppress(Exception):  # a courtesy
                self._store.put(ALIVE, json.dumps({"epoch": self.epoch, "beat": number}).encode())

    def _sweep(self) -> None:
        """Delete what older writers put up and no record names."""
        named = {unit.file for units in self.contents.units for unit in units}
        for name in self._store.list(FOLDER):
            if name not in named and _epoch_of(name) < self.epoch:
                with suppress(UnavailableError):  # the next sweep finds it
                    self._store.delete(name)

    # ---- writing ---------------------------------------------------------------------------------------------

    def partition(self, partition: int) -> ObjectPartition:
        """One partition of the stream, to be written to."""
        self._open.add(partition)
        return ObjectPartition(self, partition)

    def stage(self, appends: Sequence[Staged]) -> None:
        """Take appends that one record is to name; they are durable after `commit`."""
        self._check()
        with self._staging:
            self._staged.extend(appends)

    def drop(self, partition: int) -> None:
        """Forget what was staged for a partition: its append has failed."""
        with self._staging:
            self._staged = [staged for staged in self._staged if staged.partition != partition]

    def commit(self) -> None:
        """Make all that was staged durable and visible; what another thread has just committed is done."""
        with self._committing:
            self._check()
            with self._staging:
                staged, self._staged = self._staged, []
            if not staged:
                return
            try:
                self._commit(staged)
            except BaseException as error:
                self._broken = error
                raise
            with suppress(ConflictError, UnavailableError):  # the commit stands; the next one will find out
                self._compact()

    def lose(self, units: Sequence[UnitInfo]) -> None:
        """Say that the rows of some units are lost, and end."""
        rows = [[unit.partition, unit.first_offset, unit.rows] for unit in units]
        self._ledger.commit({"kind": "lost", "units": rows})
        self._ledger.commit({"kind": "close"})
        self._broken = ClosedError("it was opened for a repair")

    def _commit(self, staged: Sequence[Staged]) -> None:
        units, marks = self._placed(staged)
        record = {"kind": "append", "units": [entry(info) for info in units], "marks": marks}
        try:
            slot = self._ledger.commit(record)
        except ConflictError as error:
            raise ConflictError(
                f"{self._root}: another writer has taken over from epoch {self.epoch} ({error}). Open the stream "
                "again to go on; what was not acknowledged may be missing.",
                code=error.code,
            ) from error
        self.contents.take({**record, "slot": slot, "epoch": self.epoch})

    def _placed(self, staged: Sequence[Staged]) -> tuple[list[UnitInfo], list[list[Any]]]:
        """Give every unit its offset and object, and put the objects up."""
        ends = list(self.contents.ends)
        marks: list[list[Any]] = []
        objects: list[Future[None]] = []
        found: list[UnitInfo] = []
        pack = self._new_pack()
        for one in staged:
            first, partition = ends[one.partition], one.partition
            for unit in one.units:
                raw = memoryview(cast(bytes, unit)).cast("B")
                head = layout.parse(raw, 0, 0)  # as it was encoded: without a place
                if head.first_offset != ends[partition]:
                    raise InternalError(
                        f"partition {partition}: a unit at {head.first_offset}, not {ends[partition]}"
                    )
                ends[partition] += head.rows
                if not head.rows:
                    continue
                if head.bytes >= PACKED_BYTES:
                    alone = self._new_pack()
                    found.append(alone.add(self, partition, raw[: head.bytes], head))
                    objects.append(self._put(alone))
                    continue
                if pack.bytes + head.bytes > PACK_BYTES_MAX:
                    objects.append(self._put(pack))
                    pack = self._new_pack()
                found.append(pack.add(self, partition, raw[: head.bytes], head))
            if one.producer is not None:
                marks.append([partition, one.producer, one.sequence, first, ends[partition]])
        if pack.bytes:
            objects.append(self._put(pack))
        for put in objects:
            put.result()
        return found, marks

    def _new_pack(self) -> _Pack:
        self._written += 1
        return _Pack(f"{FOLDER}/{self.epoch:010d}-{self._token}-{self._written:08d}.unit", [], 0)

    def place(self, unit: memoryview, partition: int, file: str, offset: int) -> int:
        """Tie a unit to its place; the seed of its checksums."""
        place = seed(self._stream, partition, file, offset)
        layout.place(unit, self.epoch, place)
        return place

    def _put(self, pack: _Pack) -> Future[None]:
        data: Bytes = pack.parts[0] if len(pack.parts) == 1 else b"".join(pack.parts)
        if self._io is not None:
            return self._io.submit(self._put_patiently, pack.name, data)
        done: Future[None] = Future()
        self._put_patiently(pack.name, data)
        done.set_result(None)
        return done

    def _put_patiently(self, name: str, data: Bytes) -> None:
        """Put again until there is an answer: the same bytes under the same name are the same object."""
        for attempt in range(_TRIES - 1):
            try:
                return self._store.put(name, data)
            except UnavailableError:
                self._host.clock.sleep(min(1.0, 0.05 * 2**attempt))
        return self._store.put(name, data)

    def _compact(self) -> None:
        """Let a summary stand for the records, once there are many."""
        floor, _ = self._ledger.floor()
        known = sum(len(units) for units in self.contents.units)
        if self.contents.next_slot - floor <= max(COMPACT_EVERY, known // UNITS_PER_RECORD):
            return
        below = self.contents.next_slot - 1
        summarised = Contents(self._stream, len(self.contents.ends), f"{self._root}/ledger")
        records = (record for record in self._ledger.records() if record["slot"] < below)
        summarised.follow(*self._ledger.floor(), records)
        summarised.drop_below(self._kept.read() or [0] * len(self.contents.ends))
        self._ledger.compact(below, summarised.summary())

    # ---- the end ---------------------------------------------------------------------------------------------

    def release(self, partition: int) -> None:
        """A partition is closed; with the last one the stream is free for the next writer."""
        if partition not in self._open:
            return
        self._open.discard(partition)
        if self._broken is None:
            self.commit()
        if self._open:
            return
        self._ended.set()
        if self._broken is None:
            with self._committing:
                self._ledger.commit({"kind": "close"})
                self._broken = ClosedError(f"{self._root} is closed. Open it again with kedge.stream.")

    def _check(self) -> None:
        broken = self._broken
        if isinstance(broken, ConflictError):
            raise ConflictError(str(broken), code=broken.code)
        if broken is not None:
            raise ClosedError(f"{self._root} takes no more appends: {broken}")


@dataclass
class _Pack:
    """Units that share an object."""

    name: str
    parts: list[Any]
    bytes: int

    def add(self, owner: Committer, partition: int, unit: memoryview, head: layout.Header) -> UnitInfo:
        """One unit more; where it is."""
        place = owner.place(unit, partition, self.name, head.first_offset)
        info = UnitInfo(
            partition,
            head.first_offset,
            head.rows,
            head.min_us,
            head.max_us,
            self.name,
            self.bytes,
            head.bytes,
            place,
        )
        self.parts.append(unit)
        self.bytes += aligned(len(unit))
        assert len(unit) == aligned(len(unit))
        return info


class ObjectPartition:
    """One partition, as `appender` wants its writer; it holds nothing of its own."""

    def __init__(self, committer: Committer, partition: int) -> None:
        self._committer, self._partition = committer, partition
        contents = committer.contents
        units = contents.units[partition]
        slot = Slot(committer.epoch, end=contents.ends[partition], clean=True)
        self.recovered = Recovered(slot, self.marks, len(units), sum(unit.rows for unit in units))

    @property
    def epoch(self) -> int:
        """The epoch of the stream's writer."""
        return self._committer.epoch

    @property
    def end(self) -> int:
        """The durable end."""
        return self._committer.contents.ends[self._partition]

    @property
    def marks(self) -> dict[str, Mark]:
        """The last durable append of each producer."""
        return dict(self._committer.contents.marks[self._partition])

    def write(
        self, units: Sequence[NDArray[np.uint8]], rows: int, producer: str | None, sequence: int | None
    ) -> None:
        """Stage one append; durable only after `commit`."""
        self._committer.stage([Staged(self._partition, list(units), rows, producer, sequence)])

    def commit(self) -> int:
        """Make everything staged durable and visible; the new end."""
        self._committer.commit()
        return self.end

    def close(self) -> None:
        """Commit, and give the partition back."""
        self._committer.release(self._partition)

    def abandon(self) -> None:
        """An append has failed: what is not committed never will be."""
        self._committer.drop(self._partition)


class ObjectAtomic:
    """Appends to several partitions: staged together, so that one record names them all."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer

    def append(self, shares: Sequence[Any], producer: str | None, sequence: int | None) -> None:
        """Commit all shares at once; the caller has stopped everything else on their partitions."""
        self._committer.stage(
            [Staged(share.partition, share.units, share.rows, producer, sequence) for share in shares]
        )
        self._committer.commit()


def _epoch_of(name: str) -> int:
    digits = name.rpartition("/")[2].partition("-")[0]
    return int(digits) if digits.isdecimal() else 1 << 62
