"""Who may write a partition, and how far the others may read: one file per epoch.

A writer claims epoch N + 1 by creating the file `epochs/<N+1>`, and keeps a kernel lock on it while it lives. The
file holds the writer's *slots*: after each fdatasync of its data the writer says there how far the partition is
durable.

Invariants:
- Claims are dense: whoever takes over creates exactly the next file. So a writer still holds its partition if,
  asked in this order, the next file does not exist and its own does (old files are removed lowest first).
- A writer publishes only in its own file, and only after it has seen that it still holds the partition. A writer
  that was taken over can't touch what the new one published.
- The first slot of an epoch is durable before the epoch's writer appends anything, and so is the first slot in each
  new segment; the others need not be, since a slot that is too low only makes recovery look further.
- Four slots, a page each: durable ones alternate between the first two, others between the last two. A torn write
  spoils a page, and never the only one that counts.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import dataclass, replace

from kedge.errors import ConflictError, UnavailableError
from kedge.host import Disk, File, Host, Lock
from kedge.streams.layout import checksum, seed

_SLOT = struct.Struct("<8sQQQQQQQQ")
_MAGIC = b"KDG-SLOT"
_PAGE = 4096
_SEALED, _CLEAN = 1, 2
_TRIES, _PAUSE_SECONDS = 100, 0.01


@dataclass(frozen=True, slots=True)
class Slot:
    """How far a partition is durable: `end` rows, of which the last lie before `position` of `segment`."""

    epoch: int
    segment: int = 0  # its number and epoch; 0: there is none yet
    segment_epoch: int = 0
    position: int = 0
    end: int = 0
    sealed: bool = False  # the next append begins a new segment
    clean: bool = False  # its writer has closed: there is nothing after it
    turn: int = 0


def name(epoch: int) -> str:
    """The file of an epoch."""
    return f"{epoch:016d}"


class Epochs:
    """The epoch files of one partition."""

    def __init__(self, host: Host, folder: str, stream: str, partition: int) -> None:
        self.folder, self._host = folder, host
        self._stream, self._partition = stream, partition

    @property
    def _disk(self) -> Disk:
        return self._host.disk

    def listed(self) -> list[int]:
        """The epochs that have a file, newest first."""
        try:
            names = self._disk.list(self.folder)
        except FileNotFoundError:
            return []
        return sorted((int(n) for n in names if n.isdigit()), reverse=True)

    def slot(self, epoch: int) -> Slot | None:
        """The newest slot in one epoch's file; None when there is none that checks."""
        found = self._slots(epoch)
        return max((slot for slot in found if slot is not None), key=lambda slot: slot.turn, default=None)

    def _raw(self, epoch: int) -> bytes:
        try:
            file = self._disk.open(f"{self.folder}/{name(epoch)}")
        except FileNotFoundError:
            return b""
        try:
            return file.read(4 * _PAGE, 0)
        finally:
            file.close()

    def _slots(self, epoch: int) -> list[Slot | None]:
        raw = self._raw(epoch)
        return [self._parse(raw[at : at + _SLOT.size], epoch) for at in range(0, len(raw), _PAGE)]

    def oldest_segment(self, epoch: int) -> int:
        """The segment of the older of the two durable slots: recovery needs nothing before it."""
        slots = [slot for slot in self._slots(epoch)[:2] if slot is not None]
        return min((slot.segment for slot in slots), default=0)

    def spoiled(self, epoch: int) -> list[int]:
        """The bytes at which a page is neither empty nor a slot that checks."""
        slots = self._slots(epoch)
        with_bytes = self._raw(epoch)
        pages = [with_bytes[at : at + _PAGE] for at in range(0, len(with_bytes), _PAGE)]
        wrong = [
            page.strip(b"\0") != b"" if slot is None else page[_SLOT.size :].strip(b"\0") != b""
            for page, slot in zip(pages, slots, strict=True)
        ]
        return [index * _PAGE for index, bad in enumerate(wrong) if bad]

    def current(self) -> tuple[int, Slot | None]:
        """The newest epoch claimed (0: none), and the newest slot published in it or in one before."""
        epochs = self.listed()
        while True:
            for epoch in epochs:
                slot = self.slot(epoch)
                if slot is not None:
                    return epochs[0], slot
            before, epochs = epochs, self.listed()
            if epochs == before:  # else a new epoch came while we looked, and old ones went
                return (epochs[0] if epochs else 0), None

    def alive(self, epoch: int) -> bool:
        """Whether the writer of `epoch` lives."""
        mutex = self._mutex()
        try:
            self._disk.lock(f"{self.folder}/{name(epoch)}").close()
        except BlockingIOError:
            return True
        finally:
            mutex.close()
        return False

    def claim(self, *, takeover: bool = False) -> Claim:
        """Become the partition's writer; ConflictError when another one lives, unless this one takes over."""
        self._disk.mkdir(self.folder)
        mutex = self._mutex()
        try:
            newest = next(iter(self.listed()), 0)
            before = self._lock_of_last(newest, takeover)
            try:
                return self._create(newest + 1)
            finally:
                if before is not None:
                    before.close()
        finally:
            mutex.close()

    def _create(self, epoch: int) -> Claim:
        path = f"{self.folder}/{name(epoch)}"
        claim = Claim(self, epoch, self._disk.open(path, "create"), self._disk.lock(path))
        try:
            self._disk.sync_dir(self.folder)
        except BaseException:
            claim.close()
            raise
        return claim

    def _lock_of_last(self, newest: int, takeover: bool) -> Lock | None:
        try:
            return self._disk.lock(f"{self.folder}/{name(newest)}") if newest else None
        except BlockingIOError:
            if takeover:
                return None
            raise ConflictError(
                f"{self.folder}: the writer of epoch {newest} is alive. Close it, or open with takeover=True."
            ) from None

    def _mutex(self) -> Lock:
        for _ in range(_TRIES):
            try:
                return self._disk.lock(f"{self.folder}/claim.lock")
            except BlockingIOError:
                self._host.clock.sleep(_PAUSE_SECONDS)
        raise UnavailableError(f"{self.folder}/claim.lock is held by another process. Try again.")

    def pack(self, slot: Slot) -> bytes:
        """The bytes of a slot."""
        flags = (_SEALED if slot.sealed else 0) | (_CLEAN if slot.clean else 0)
        body = _SLOT.pack(
            _MAGIC, slot.epoch, slot.turn, slot.segment, slot.segment_epoch, slot.position, slot.end, flags, 0
        )[:-8]  # fmt: skip
        return body + struct.pack("<Q", checksum(body, self._seed(slot.epoch)))

    def _parse(self, raw: bytes, epoch: int) -> Slot | None:
        if len(raw) < _SLOT.size:
            return None
        magic, owner, turn, segment, segment_epoch, position, end, flags, sum_ = _SLOT.unpack(raw)
        if magic != _MAGIC or owner != epoch or sum_ != checksum(raw[:-8], self._seed(epoch)):
            return None
        return Slot(epoch, segment, segment_epoch, position, end, bool(flags & _SEALED), bool(flags & _CLEAN), turn)

    def _seed(self, epoch: int) -> int:
        return seed(self._stream, self._partition, 0, epoch, 0)


class Claim:
    """One epoch, held by this process until it is closed or another one takes over."""

    def __init__(self, epochs: Epochs, epoch: int, file: File, lock: Lock) -> None:
        self.epoch, self._epochs, self._file, self._lock = epoch, epochs, file, lock
        self._turn = 0
        self._durable_turns = 0
        self.slot: Slot | None = None

    def held(self) -> bool:
        """Whether nobody has taken over; the order of the two questions matters (see above)."""
        disk, folder = self._epochs._disk, self._epochs.folder  # pyright: ignore[reportPrivateUsage]
        return not disk.exists(f"{folder}/{name(self.epoch + 1)}") and disk.exists(f"{folder}/{name(self.epoch)}")

    def check(self) -> None:
        """ConflictError when another writer has taken over."""
        if not self.held():
            raise ConflictError(
                f"{self._epochs.folder}: another writer has taken over from epoch {self.epoch}. "
                "What was not acknowledged may be lost: read the end, and append again from there."
            )

    def publish(self, slot: Slot, *, durable: bool = False) -> Slot:
        """Say how far the partition is durable; call it only after the data's sync and `check`."""
        self._turn += 1
        slot = replace(slot, epoch=self.epoch, turn=self._turn)
        if durable:
            self._durable_turns += 1
        page = self._durable_turns % 2 if durable else 2 + self._turn % 2
        self._file.write(self._epochs.pack(slot), page * _PAGE)
        if durable:
            self._file.sync()
        self.slot = slot
        return slot

    def forget_older(self, base: int) -> None:
        """Remove the files of epochs before `base`, from which this one started, lowest first.

        That of `base` stays: who takes over from us right now may not have seen our first slot yet.
        """
        disk, folder = self._epochs._disk, self._epochs.folder  # pyright: ignore[reportPrivateUsage]
        for epoch in sorted(self._epochs.listed()):
            if epoch >= base:
                break
            with suppress(FileNotFoundError):
                disk.unlink(f"{folder}/{name(epoch)}")

    def close(self) -> None:
        """Give the partition back; a second call does nothing."""
        self._file.close()
        self._lock.close()
