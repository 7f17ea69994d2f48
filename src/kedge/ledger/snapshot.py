"""Reads a ledger: a consistent view of its floor, its summary and every record from the floor to the tip.

Objects: `<prefix>/<slot, 20 digits>.json` are the records, `<prefix>/floor/<slot, 20 digits>.json` the floors, each
with the summary that stands for every record below it. The highest floor counts.

Invariants:
- Records from the floor to the tip are dense. A record below the floor does not exist, whatever lies there: a
  writer that was cut off long ago can put an object into a slot that compaction has emptied.
- So the floor is read after the records. If it is then not above a slot, nothing had been emptied at that slot when
  it was read: what was there is the record, and what was absent is the end. If it is above, the view starts again
  from the new floor, which was durable, with its summary, before the first record below it went.
- The highest floor lasts until a higher one is durable, and few floors ever lie there: a listing of them is one
  moment on a disk, and on an object store, which lists in the order of names, its last page is.
- `refresh` publishes a new view only when it is whole; between refreshes `floor` and `records` do no I/O.

It does not write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from kedge.errors import CorruptError, UnavailableError
from kedge.host import Clock, Rng, Store
from kedge.ledger.record import Record, decode

T = TypeVar("T")

TRIES = 8  # of a call whose outcome is unknown, or of a view that compaction overtakes


@dataclass
class View:
    """What a reader has seen: the floor, its summary, and the records from it on, as bytes."""

    floor: int = 0
    base: Record | None = None  # the floor's own record; its "summary" stands for everything below
    records: list[bytes] = field(default_factory=list[bytes])
    epoch: int = 0  # of the last record

    @property
    def end(self) -> int:
        """The slot after the tip."""
        return self.floor + len(self.records)


class Snapshot:
    """The reading half of a ledger."""

    def __init__(self, store: Store, rng: Rng, clock: Clock, prefix: str) -> None:
        self._store, self._rng, self._clock, self._prefix = store, rng, clock, prefix
        self._view: View | None = None

    @property
    def view(self) -> View:
        """What was seen last; the first use looks."""
        if self._view is None:
            self.refresh()
        assert self._view is not None
        return self._view

    def refresh(self) -> int | None:
        """Read forward to the real tip; its slot, or None when the ledger is empty."""
        last = self._last_listed() if self._view is None else -1
        start = self._view or View()
        for _ in range(TRIES):
            view = self._read_from(start)
            floor = self.read_floor()
            if floor <= view.floor:
                if last < view.end and (view.records or floor == 0):
                    return self._publish(view)
            else:
                start = self._at_floor(floor, start) or start
        missing = self.name_of(self._read_from(start).end)
        raise CorruptError(f"{missing} is missing. Restore it from a copy of the directory.", code="ledger-hole")

    def _last_listed(self) -> int:
        """The highest slot that a listing shows: what is read afterwards must reach it, or there is a hole."""
        names = self.patiently(lambda: self._store.list(self._prefix))
        return max((slot_of(name) for name in names), default=-1)

    def read_floor(self) -> int:
        """The highest floor, as the store has it now."""
        names = self.patiently(lambda: self._store.list(f"{self._prefix}/floor"))
        return max((slot_of(name) for name in names), default=0)

    def _publish(self, view: View) -> int | None:
        if self._view is None or view.end > self._view.end:
            self._store.settle(self._prefix)  # a reader must not act on what a power cut could still take
        self._view = view
        return view.end - 1 if view.end else None

    def _read_from(self, view: View) -> View:
        """The view and all records that follow it without a hole."""
        news, epoch = list[bytes](), view.epoch
        while True:
            slot = view.end + len(news)
            data = self.read_record(slot)
            if data is None:
                return View(view.floor, view.base, [*view.records, *news], epoch) if news else view
            found = decode(data, slot, self.name_of(slot))["epoch"]
            if found < epoch:
                if self.read_floor() > view.floor:
                    return view  # compaction is emptying these slots, and a late claim has refilled one
                raise CorruptError(
                    f"{self.name_of(slot)}: epoch {found} after {epoch}. Restore the directory from a copy.",
                    code="ledger-epoch",
                )
            news.append(data)
            epoch = found

    def _at_floor(self, floor: int, seen: View) -> View | None:
        """A view that starts at `floor`; the records that an earlier view has above it are not read again."""
        name = f"{self._prefix}/floor/{floor:020d}.json"
        try:
            base = decode(self.patiently(lambda: self._store.get(name)), floor, name)
        except FileNotFoundError:
            return None  # a higher floor has replaced it
        if floor < seen.end:
            return View(floor, base, seen.records[floor - seen.floor :], seen.epoch)
        return View(floor, base, [], base["epoch"])

    def read_record(self, slot: int) -> bytes | None:
        """What lies in a slot, if anything."""
        try:
            return self.patiently(lambda: self._store.get(self.name_of(slot)))
        except FileNotFoundError:
            return None

    def records(self, start: int | None = None) -> Iterator[Record]:
        """The records from `start`, or from the floor, to the tip seen."""
        view = self.view
        for slot in range(max(start or 0, view.floor), view.end):
            yield decode(view.records[slot - view.floor], slot, self.name_of(slot))

    def name_of(self, slot: int) -> str:
        """The object of a slot."""
        return f"{self._prefix}/{slot:020d}.json"

    def patiently(self, call: Callable[[], T]) -> T:
        """Repeat a call that may be repeated, until the store answers."""
        for attempt in range(TRIES - 1):
            try:
                return call()
            except UnavailableError:
                self.wait(attempt)
        return call()

    def wait(self, attempt: int) -> None:
        """A pause that grows, with jitter."""
        self._clock.sleep(min(1.0, 0.01 * 2**attempt) * (0.5 + self._rng.random()))


def slot_of(name: str) -> int:
    """The slot in an object's name; -1 for objects that are not slots."""
    digits = name.rpartition("/")[2].removesuffix(".json")
    return int(digits) if len(digits) == 20 and digits.isdecimal() else -1
