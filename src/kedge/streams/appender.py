"""Appends of one partition on their way to the writer: encoded by workers, written and synced by one thread.

The caller's thread only cuts the rows into units and gives them their offsets. Encoding runs on the stream's
pool; the writing thread takes appends in order, writes all that are ready, and makes them durable with one sync:
while the disk syncs, the next ones are encoded. What waits is bounded, so a slow disk slows the caller down
instead of filling the memory. With no threads (`pool=None`) the same happens in the caller: `append` writes,
waiting commits.

Small appends that come faster than workers take them share a unit: an append joins the last one that no worker has
taken yet, until the unit is large enough. An append that finds an idle worker is encoded at once.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kedge.errors import ClosedError, UsageError
from kedge.streams.segment import Mark
from kedge.streams.ticket import Appended, Ticket

Unit = NDArray[np.uint8]
Encode = Callable[[pa.RecordBatch | pa.Table, int, bool, bool, str | None, int | None], Unit]

WAITING_BYTES_MAX = 256 << 20
GROUP_BYTES_MAX = 64 << 20
JOINED_BYTES_MAX = 32 << 20  # beyond this a unit gains nothing, and workers could not share what waits


@dataclass
class _Append:
    """One append, or several that share a unit."""

    tickets: list[tuple[Ticket, Appended]]
    units: list[Future[Unit]]
    bytes: int
    producer: str | None = None
    sequence: int | None = None
    open: list[pa.RecordBatch] | None = None  # rows that no worker has taken: others may join

    @property
    def rows(self) -> int:
        """How many rows."""
        return self.tickets[-1][1].end - self.tickets[0][1].first_offset

    def resolve(self) -> None:
        """All of it is durable."""
        for ticket, result in self.tickets:
            ticket.resolve(result)

    def fail(self, error: BaseException) -> None:
        """None of it may be."""
        for ticket, _ in self.tickets:
            ticket.fail(error)


class Writer(Protocol):
    """What makes the appends of one partition durable."""

    @property
    def end(self) -> int:
        """The durable end."""
        ...

    @property
    def marks(self) -> dict[str, Mark]:
        """The last append of each producer."""
        ...

    def write(self, units: Sequence[Unit], rows: int, producer: str | None, sequence: int | None) -> None:
        """Take the units of one append; durable only after `commit`."""
        ...

    def commit(self) -> int:
        """Make everything written durable and visible; the new end."""
        ...

    def close(self) -> None:
        """Commit, and give the partition back."""
        ...

    def abandon(self) -> None:
        """Give the partition back as it is."""
        ...


class Appender:
    """The appends of one partition."""

    def __init__(
        self, writer: Writer, partition: int, encode: Encode, pool: ThreadPoolExecutor | None, unit_rows: int
    ) -> None:
        self.writer, self._partition, self._encode, self._pool = writer, partition, encode, pool
        self._unit_rows = unit_rows
        self._next = writer.end
        self._marks: dict[str, Mark] = dict(writer.marks)
        self._waiting: deque[_Append] = deque()
        self._waiting_bytes = 0
        self._written: list[_Append] = []  # written, not yet committed (no threads)
        self._changed = threading.Condition()
        self._closing = False
        self._failed: BaseException | None = None
        self._thread: threading.Thread | None = None
        if pool is not None:
            self._thread = threading.Thread(target=self._work, name=f"kedge-write-{partition}", daemon=True)
            self._thread.start()

    @property
    def next_offset(self) -> int:
        """The offset that the next append will begin at."""
        return self._next

    def append(self, batches: Sequence[pa.RecordBatch], producer: str | None, sequence: int | None) -> Ticket:
        """Take the rows of one append; its ticket resolves when they are durable."""
        with self._changed:
            self._check_open()
            rows = sum(batch.num_rows for batch in batches)
            size = sum(batch.nbytes for batch in batches)
            self._changed.wait_for(
                lambda: (
                    self._failed is not None or not self._waiting or self._waiting_bytes + size <= WAITING_BYTES_MAX
                )
            )
            self._check_open()
            known = self._known(producer, sequence)
            if known is not None:
                return known
            if self._pool is None:
                item = self._take(batches, rows, size, producer, sequence)
                self._write_now(item)
                return item.tickets[0][0]
            self._waiting_bytes += size
            joined = self._join(batches, rows, size) if producer is None else None
            if joined is not None:
                return joined
            item = self._take(batches, rows, size, producer, sequence)
            self._waiting.append(item)
            self._changed.notify_all()
            return item.tickets[0][0]

    def _join(self, batches: Sequence[pa.RecordBatch], rows: int, size: int) -> Ticket | None:
        """Share the unit of the last append, if no worker has taken it yet and it has room."""
        last = self._waiting[-1] if self._waiting else None
        if last is None or last.open is None or len(batches) != 1:
            return None
        if last.rows + rows > self._unit_rows or last.bytes + size > JOINED_BYTES_MAX:
            return None
        ticket = Ticket()
        last.open.append(batches[0])
        last.bytes += size
        last.tickets.append((ticket, Appended(self._partition, self._next, self._next + rows)))
        self._next += rows
        return ticket

    def known(self, producer: str | None, sequence: int | None) -> Appended | None:
        """Where an append went that was made before; None for a new one. Nothing may be on its way."""
        ticket = self._known(producer, sequence)
        return None if ticket is None else ticket.wait()

    @contextmanager
    def stopped(self) -> Generator[None]:
        """Nothing is on its way and nothing can be appended, for as long as the caller writes itself."""
        with self._changed:
            self._check_open()
            if self._pool is None:
                self._commit_written()
            self._changed.wait_for(lambda: self._failed is not None or not self._waiting)
            self._check_open()
            try:
                yield
            except BaseException as error:
                self._fail(error, ())
                raise
            self._next = self.writer.end
            self._marks = dict(self.writer.marks)

    def flush(self) -> None:
        """Return when everything appended so far is durable."""
        with self._changed:
            last = self._waiting[-1].tickets[-1][0] if self._waiting else None
            if self._pool is None:
                self._commit_written()
            if self._failed is not None:
                raise self._failed
        if last is not None:
            last.wait()

    def close(self) -> None:
        """Finish what was appended, and give the partition back."""
        with self._changed:
            if self._closing:
                return
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        elif self._failed is None:
            self._commit_written()
        self.writer.close()

    def _check_open(self) -> None:
        if self._failed is not None:
            raise ClosedError(f"Partition {self._partition} takes no more appends: {self._failed}")
        if self._closing:
            raise ClosedError("The stream is closed. Open it again.")

    def _known(self, producer: str | None, sequence: int | None) -> Ticket | None:
        """The ticket of an append that was made before; None for a new one."""
        if producer is None:
            if sequence is not None:
                raise UsageError("A sequence number needs a producer: append(..., producer='name', sequence=n).")
            return None
        if sequence is None or sequence < 0:
            raise UsageError("A producer needs a sequence number for each append, from 0 up.")
        mark = self._marks.get(producer)
        if mark is None or sequence > mark.sequence:
            return None
        exact = sequence == mark.sequence
        result = Appended(self._partition, mark.first_offset if exact else mark.end, mark.end, duplicate=True)
        for item in reversed(self._waiting or self._written):
            if item.producer == producer:  # the first attempt is still on its way: it is durable when that one is
                ticket = Ticket(self._commit_now if self._pool is None else None)
                item.tickets[0][0].also(ticket, result)
                return ticket
        ticket = Ticket()
        ticket.resolve(result)
        return ticket

    def _take(
        self, batches: Sequence[pa.RecordBatch], rows: int, size: int, producer: str | None, sequence: int | None
    ) -> _Append:
        first = self._next
        ticket = Ticket(self._commit_now if self._pool is None else None)
        item = _Append([(ticket, Appended(self._partition, first, first + rows))], [], size, producer, sequence)
        if self._pool is not None and producer is None and len(batches) == 1:
            item.open = list(batches)
            item.units.append(self._pool.submit(self._encode_joined, item))
            self._next += rows
            return item
        for index, batch in enumerate(batches):
            more = index + 1 < len(batches)
            arguments = (batch, self._next, more, False, producer, sequence)
            item.units.append(
                self._pool.submit(self._encode, *arguments) if self._pool else _ready(self._encode(*arguments))
            )
            self._next += batch.num_rows
        if producer is not None and sequence is not None:
            self._marks[producer] = Mark(sequence, first, first + rows)
        return item

    def _encode_joined(self, item: _Append) -> Unit:
        """By a worker: from now on nobody joins."""
        with self._changed:
            batches, item.open = item.open or [], None
        rows = batches[0] if len(batches) == 1 else pa.Table.from_batches(batches)
        return self._encode(rows, item.tickets[0][1].first_offset, False, False, None, None)

    # ---- without threads -----------------------------------------------------------------------------------

    def _write_now(self, item: _Append) -> None:
        try:
            self._write(item)
        except BaseException as error:
            self._fail(error, [item, *self._written])
            raise
        self._written.append(item)

    def _commit_now(self) -> None:
        with self._changed:
            if self._failed is None:
                self._commit_written()

    def _commit_written(self) -> None:
        done, self._written = self._written, []
        if not done:
            return
        try:
            self.writer.commit()
        except BaseException as error:
            self._fail(error, done)
            raise
        for item in done:
            item.resolve()

    # ---- the writing thread --------------------------------------------------------------------------------

    def _work(self) -> None:
        group: list[_Append] = []
        try:
            while self._gather(group):
                self.writer.commit()
                for item in group:
                    item.resolve()
                with self._changed:
                    for item in group:
                        self._waiting.popleft()
                        self._waiting_bytes -= item.bytes
                    self._changed.notify_all()
                group.clear()
        except BaseException as error:
            with self._changed:
                self._fail(error, list(self._waiting))
                self._waiting.clear()
                self._changed.notify_all()

    def _gather(self, group: list[_Append]) -> bool:
        """Write the next append and those after it that are encoded; False when there will be none."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            if not self._waiting:
                return False
        size = 0
        while size < GROUP_BYTES_MAX:
            with self._changed:
                if len(group) == len(self._waiting):
                    break
                item = self._waiting[len(group)]
            if group and not all(unit.done() for unit in item.units):
                break
            size += self._write(item)
            group.append(item)
        return True

    def _write(self, item: _Append) -> int:
        units = [unit.result() for unit in item.units]
        self.writer.write(units, item.rows, item.producer, item.sequence)
        item.units.clear()
        return sum(unit.nbytes for unit in units)

    def _fail(self, error: BaseException, items: Sequence[_Append]) -> None:
        self._failed = error
        for item in items:
            item.fail(error)
        self.writer.abandon()


def _ready(unit: Unit) -> Future[Unit]:
    future: Future[Unit] = Future()
    future.set_result(unit)
    return future
