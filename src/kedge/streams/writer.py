"""The one writer of a partition: appends units, makes them durable, says so.

No threads here: `appender` gives this class work from its own thread, the simulator from none.

Invariants:
- `commit` is: sync of the data, check that the epoch is still held, publish the slot, and only then acknowledge.
- The units of one append are written into one segment, one after the other.
- The data of a segment is durable before a unit is written to the next one.
- Writes may be under way at the same time; all have ended before the sync that makes them durable.
- After any I/O error nothing is written any more: what is on the disk is unknown until recovery has read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, Future, wait
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from kedge.codec import Choosers
from kedge.errors import ClosedError, KedgeError
from kedge.host import File
from kedge.streams import layout
from kedge.streams.epoch import Slot
from kedge.streams.files import PartitionFiles
from kedge.streams.recovery import create_segment, recover
from kedge.streams.segment import PAGE, Mark, SegmentName

_ALONE_BYTES = 256 << 10  # a smaller unit is not worth another thread's time
_PART_BYTES = 4 << 20  # of a large unit: more parts cost more than a longer queue gains
_MEASURED_BYTES = 1 << 20  # a smaller group takes as long as a sync does, whatever its size
_FADE = 0.97  # a bandwidth that is not reached again is forgotten: half of it after 23 groups


class PartitionWriter:
    """Holds a partition's epoch until it is closed."""

    def __init__(
        self,
        files: PartitionFiles,
        *,
        takeover: bool = False,
        io: Executor | None = None,
        choosers: Choosers | None = None,
    ) -> None:
        self._files, self._io, self._choosers = files, io, choosers
        self._begun_ns = self._group_bytes = 0  # of what is written and not yet synced
        self._bandwidth = 0.0  # bytes per second
        self._under_way: list[Future[None]] = []
        self._claim = files.epochs.claim(takeover=takeover)
        self._file: File | None = None
        self._room = 0
        self._broken: str | None = None
        try:
            self.recovered = recover(files, self._claim)
        except BaseException:
            self._claim.close()
            raise
        self._slot: Slot = self.recovered.slot
        self._written = self._slot  # how far units are written; `_slot` is how far they are durable
        self.marks: dict[str, Mark] = dict(self.recovered.marks)  # of what is written

    @property
    def epoch(self) -> int:
        """The epoch that this writer holds."""
        return self._claim.epoch

    @property
    def end(self) -> int:
        """The durable end."""
        return self._slot.end

    @property
    def written_end(self) -> int:
        """The end of what is written, durable or not."""
        return self._written.end

    def write(
        self, units: Sequence[NDArray[np.uint8]], rows: int, producer: str | None, sequence: int | None
    ) -> None:
        """Write the units of one append (whole pages each); durable only after `commit`."""
        self._check_open()
        if not self._group_bytes:
            self._begun_ns = self._files.host.clock.monotonic_ns()
        self._group_bytes += sum(unit.nbytes for unit in units)
        try:
            self._write(units)
        except (OSError, KedgeError) as error:
            raise self._break(error) from error
        first = self._written.end
        self._written = replace(self._written, end=first + rows)
        if producer is not None and sequence is not None:
            self.marks[producer] = Mark(sequence, first, first + rows)

    def commit(self) -> int:
        """Make everything written durable and visible; the new end."""
        self._check_open()
        if self._written == self._slot:
            return self._slot.end
        self.prepare()
        return self.publish()

    def prepare(self) -> None:
        """Make everything written durable, and see that nobody has taken over; nothing is visible yet."""
        self._check_open()
        try:
            self._sync()
        except (OSError, KedgeError) as error:
            raise self._break(error) from error
        self._measure()

    def _measure(self) -> None:
        """Tell the choosers what the disk takes: the best of late, since small groups show its latency."""
        size, self._group_bytes = self._group_bytes, 0
        taken_ns = self._files.host.clock.monotonic_ns() - self._begun_ns
        if self._choosers is not None and size >= _MEASURED_BYTES and taken_ns > 0:
            self._bandwidth = max(size / taken_ns * 1e9, _FADE * self._bandwidth)
            self._choosers.measured(self._bandwidth)

    def publish(self, *, durable: bool = False) -> int:
        """Let everything written be seen: `prepare` comes first; the new end."""
        self._check_open()
        try:
            self._slot = self._written = self._claim.publish(self._written, durable=durable)
        except (OSError, KedgeError) as error:
            raise self._break(error) from error
        return self._slot.end

    def close(self) -> None:
        """Commit, leave the partition clean for the next writer, and give it back."""
        if self._broken is not None:
            self._release()
            return
        try:
            self.commit()
            if self._file is not None and not self._slot.sealed:
                self._file.truncate(self._slot.position)  # what a crash leaves of the room is zeros
            # Nobody needs to ask who holds the partition: the slot says nothing that the commit has not said.
            self._claim.publish(replace(self._slot, clean=True), durable=True)
        finally:
            self._broken = "it was closed"
            self._release()

    def abandon(self) -> None:
        """Give the partition back without writing another byte."""
        self._broken = self._broken or "it was closed"
        self._release()

    def _write(self, units: Sequence[NDArray[np.uint8]]) -> None:
        total = sum(unit.nbytes for unit in units)
        if self._file is None or self._written.position + total > self._room:
            self._make_room(total)
        assert self._file is not None
        name = self._name
        offset, position = self._written.end, self._written.position
        for unit in units:
            seed = layout.seed(self._files.stream, self._files.partition, name.number, self.epoch, offset)
            rows = layout.place(unit.data, self.epoch, seed)
            if self._io is None or unit.nbytes < _ALONE_BYTES:
                self._file.write(unit, position)
            else:  # several at a time: a disk wants a queue
                for part in _parts(unit):
                    self._under_way.append(self._io.submit(self._file.write, unit[part], position + part.start))
            offset += rows
            position += unit.nbytes
        self._written = replace(self._written, position=position)

    def _make_room(self, total: int) -> None:
        """Go on in the segment of a clean close if there is room, else begin a new one."""
        last = self._written
        if self._file is None and last.segment and not last.sealed:
            self._name = self._files.chain(last)[-1]
            if last.position + total <= self._files.segment_bytes:
                self._file = self._files.host.disk.open(self._files.path(self._name), "write")
                self._room = self._files.segment_bytes
                self._file.allocate(self._room)
                return
        if self._file is not None:
            self._settle()
            self._file.truncate(last.position)
            self._sync()
            self._file.close()
            self._file = None
        self._name = SegmentName(last.segment + 1, last.end, self.epoch, last.segment_epoch)
        self._file, position = create_segment(
            self._files, self._name, self.marks, max(total, self._files.segment_bytes - PAGE)
        )
        self._room = self._file.size()
        self._slot = self._claim.publish(
            Slot(self.epoch, self._name.number, self.epoch, position, last.end), durable=True
        )
        self._written = self._slot

    def _settle(self) -> None:
        """Return when every write that was begun has ended."""
        wait(self._under_way)  # all of them, even when one has failed: none may meet a closed file
        under_way, self._under_way = self._under_way, []
        for write in under_way:
            write.result()

    def _sync(self) -> None:
        self._settle()
        if self._file is not None:
            self._file.sync()
        self._claim.check()

    def _check_open(self) -> None:
        if self._broken is not None:
            raise ClosedError(f"{self._files.folder} takes no more appends: {self._broken}. Open the stream again.")

    def _break(self, error: Exception) -> Exception:
        self._broken = str(error)
        if isinstance(error, KedgeError):
            return error
        return ClosedError(
            f"{self._files.folder}: {error}. Nothing after the last acknowledged append is certain; "
            "open the stream again, which recovers it."
        )

    def _release(self) -> None:
        wait(self._under_way)  # the file stays open until they have ended
        if self._file is not None:
            self._file.close()
            self._file = None
        self._claim.close()


def _parts(unit: NDArray[np.uint8]) -> list[slice]:
    """A unit in parts of four mebibytes or somewhat more, each whole pages."""
    count = max(1, unit.nbytes // _PART_BYTES)
    starts = [unit.nbytes * part // count // PAGE * PAGE for part in range(count)]
    return [slice(*ends) for ends in pairwise([*starts, unit.nbytes])]
