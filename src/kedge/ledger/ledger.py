"""The ledger: a dense sequence of records, each slot won once by put-if-absent.

Invariants:
- One writer at a time: a claim is a record with a higher epoch, and from its slot on no record of a lower epoch
  counts, because the slots of one sequence are dense and each is won once.
- A put whose outcome is unknown is resolved before anything else is done: the same bytes are put under the same
  name again, which is harmless (whichever lands, lands once), until the store answers; on "exists" the slot is
  read, and holds our bytes or another's. If the outcome stays unknown the ledger closes; the next claim takes the
  slot or finds the record in it.
- A record counts only if the floor, read after its put, is not above it: below the floor a slot may be free again.
- Compaction is summary and floor (one object, won by put-if-absent) first, deletes after. A floor that lands late
  is below a newer one and does nothing.

It does not know what records mean, does not deliver anything, and is not safe for several threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from kedge.errors import ClosedError, ConflictError, UnavailableError, UsageError
from kedge.host import Clock, Rng, Store
from kedge.ledger.record import Record, encode
from kedge.ledger.snapshot import Snapshot, slot_of


class Ledger:
    """The commit records of one run.

    >>> ledger = Ledger(host.store("runs/fares"), host.rng, host.clock)     # doctest: +SKIP
    >>> epoch = ledger.claim()                                              # doctest: +SKIP
    >>> slot = ledger.commit({"kind": "batch", "nonce": nonce})             # doctest: +SKIP
    """

    def __init__(self, store: Store, rng: Rng, clock: Clock, prefix: str = "ledger") -> None:
        self._store, self._rng, self._prefix = store, rng, prefix
        self._seen = Snapshot(store, rng, clock, prefix)
        self._epoch = 0
        self._closed = ""

    def claim(self) -> int:
        """Write the next epoch into the next slot, and give it; ConflictError if another claim was first."""
        self._epoch = 0
        self._probe()
        for folder in (self._prefix, f"{self._prefix}/floor"):
            self._store.sweep(folder)
        self._seen.refresh()
        epoch, nonce = self._seen.view.epoch + 1, self._rng.token()
        while True:
            slot = self._seen.view.end
            data = encode({"kind": "claim", "nonce": nonce}, slot, epoch)
            if self._win(slot, data) and self._seen.read_floor() <= slot:
                break
            self._seen.refresh()
            if self._seen.view.epoch >= epoch:
                raise self._conflict(f"another coordinator claimed epoch {self._seen.view.epoch} first")
        self._accept(data, epoch)
        self._epoch, self._closed = epoch, ""
        return epoch

    def commit(self, record: Mapping[str, Any]) -> int:
        """Put a record into the slot after the tip that this ledger has seen; its slot, once it is durable."""
        self._check_claimed()
        slot = self._seen.view.end
        data = encode(record, slot, self._epoch)
        try:
            won = self._win(slot, data)
            floor = self._seen.read_floor()
        except BaseException:
            self._closed = f"the outcome of the commit into slot {slot} is unknown"
            raise
        if floor <= slot and won:
            self._accept(data, self._epoch)
            return slot
        self._closed = f"slot {slot} was taken" if floor <= slot else f"compaction has passed slot {slot}"
        self._seen.refresh()
        if floor <= slot:
            raise self._conflict(self._closed)
        raise self._conflict(f"{self._closed}; only the summary can say if the record counts", "conflict-unknown")

    def refresh(self) -> int | None:
        """Read forward to the real tip; its slot, or None when the ledger is empty. Readers need no claim."""
        return self._seen.refresh()

    def records(self, start: int | None = None) -> Iterator[Record]:
        """The records from `start`, or from the floor, to the tip seen; no I/O."""
        return self._seen.records(start)

    def floor(self) -> tuple[int, Record | None]:
        """The floor seen, and the summary that stands for everything below it; no I/O."""
        view = self._seen.view
        return view.floor, view.base["summary"] if view.base else None

    def compact(self, below: int, summary: Mapping[str, Any]) -> None:
        """Let `summary`, which must follow from the records below `below` alone, stand for them; delete them."""
        self._seen.refresh()
        self._check_claimed()
        view = self._seen.view
        if not 0 < below < view.end:
            raise UsageError(f"{self._prefix}: can't compact below {below}; it must be in 1..{view.end - 1}.")
        if below > view.floor:
            epoch = next(self._seen.records(below - 1))["epoch"]
            data = encode({"kind": "floor", "summary": dict(summary)}, below, epoch)
            with suppress(FileExistsError):  # as good: any summary of the same records says the same
                self._put(f"{self._prefix}/floor/{below:020d}.json", data)
            self._seen.refresh()
        self._store.settle(f"{self._prefix}/floor")  # it may be another's, named but not yet durable
        self._delete_below(self._seen.view.floor)

    def _delete_below(self, floor: int) -> None:
        names = self._seen.patiently(lambda: self._store.list(self._prefix))
        for name in names:  # records and older floors
            if 0 <= slot_of(name) < floor:
                with suppress(UnavailableError):  # garbage is harmless; the next compaction finds it
                    self._store.delete(name)

    def _accept(self, data: bytes, epoch: int) -> None:
        self._seen.view.records.append(data)
        self._seen.view.epoch = epoch

    def _check_claimed(self) -> None:
        if not self._epoch:
            raise UsageError(f"{self._prefix}: claim the ledger before writing to it.")
        if self._seen.view.epoch > self._epoch:
            raise self._conflict(f"epoch {self._seen.view.epoch} has taken over from epoch {self._epoch}")
        if self._closed:
            raise ClosedError(f"{self._prefix}: {self._closed}. Claim it again and read its records.")

    def _win(self, slot: int, data: bytes) -> bool:
        """Whether `data` is now the record of `slot`; False if another's is, or compaction has passed it."""
        name = self._seen.name_of(slot)
        try:
            self._put(name, data)
        except FileExistsError:
            return self._seen.read_record(slot) == data
        return True

    def _put(self, name: str, data: bytes) -> None:
        """Put if absent, again until there is an answer; "exists" may then speak of our own earlier put."""
        self._seen.patiently(lambda: self._store.put(name, data, if_absent=True))

    def _probe(self) -> None:
        """Refuse a store that overwrites in spite of `if_absent`: it can't fence anybody."""
        name = f"{self._prefix}/probe.json"
        try:
            self._put(name, b'{"probe":1}')
            self._put(name, b'{"probe":2}')
        except FileExistsError:
            return
        raise UsageError(f"{self._prefix}: this store has no conditional put, so a run can't be kept safe in it.")

    def _conflict(self, what: str, code: str | None = None) -> ConflictError:
        return ConflictError(f"{self._prefix}: {what}. Stop this coordinator, or claim again.", code=code)
