"""A job's directory: which intermediates are saved, in a ledger and files; no Spark in here.

    DIR/ledger/...                                         claims and records
    DIR/parts/CUT/ATTEMPT/PARTITION-ROWS-BYTES-SUM.parquet one finished partition of one intermediate

Invariants:
- A file gets its name when it is whole and durable (`Store.put`); the name carries rows, bytes and checksum. Files
  of attempts that no `cut` record announces are nobody's.
- Only the owner of the newest epoch adds records: a driver that was replaced gets ConflictError at its next one.
- A cut is `done` when each of its partitions has a file. Partitions of one attempt may come from several drivers,
  unless the record says `whole`: then an unfinished attempt counts for nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kedge import host
from kedge.errors import UnavailableError, UsageError
from kedge.host import DirectoryStore, Store
from kedge.ledger import Ledger, Record

FORMAT = 1  # of what is saved: names of files, Parquet with columns c0, c1, ..., and the fields of `cut`


@dataclass(frozen=True, slots=True)
class Part:
    """One saved partition, as its file's name tells."""

    partition: int
    rows: int
    bytes: int
    checksum: str
    file: str

    @classmethod
    def named(cls, file: str) -> Part | None:
        """The part that `file` holds; None for any other file."""
        fields = file.rpartition("/")[2].removesuffix(".parquet").split("-")
        if len(fields) != 4 or not file.endswith(".parquet") or not all(f.isdigit() for f in fields[:3]):
            return None
        return cls(int(fields[0]), int(fields[1]), int(fields[2]), fields[3], file)


def part_name(folder: str, partition: int, rows: int, size: int, checksum: str) -> str:
    """The name under which a finished partition is put."""
    return f"{folder}/{partition:05d}-{rows}-{size}-{checksum}.parquet"


@dataclass(slots=True)
class Cut:
    """One intermediate as the ledger knows it."""

    id: str
    attempt: str
    record: Record
    parts: dict[int, Part] = field(default_factory=dict[int, Part])
    since_us: int = 0

    @property
    def partitions(self) -> int:
        """How many partitions it has."""
        return int(self.record["partitions"])

    @property
    def label(self) -> str:
        """What people call it."""
        return str(self.record["label"])

    @property
    def done(self) -> bool:
        """Whether every partition is saved."""
        return len(self.parts) == self.partitions

    @property
    def bytes(self) -> int:
        """What is saved of it."""
        return sum(part.bytes for part in self.parts.values())

    @property
    def folder(self) -> str:
        """Where its files are."""
        return folder_of(self.id, self.attempt)


def folder_of(cut: str, attempt: str) -> str:
    """Where an attempt's files are, inside the job's directory."""
    return f"parts/{cut}/{attempt}"


def absolute(at: str | os.PathLike[str]) -> str:
    """A job's place as every process finds it: a task of Spark may run in another folder than the driver."""
    place = os.fspath(at)
    scheme, found, path = place.partition("://")
    if found and scheme != "file":
        return place
    return os.path.abspath(path if found else place)


def open_store(at: str) -> Store:
    """The store of a job: a local directory, or an address that `kedge.host` knows such as s3://bucket/jobs."""
    store = host.local().store(at)
    if "://" in at and isinstance(store, DirectoryStore):
        raise UsageError(f"{at}: there is no store of this kind here. Use a local path, or s3:// with kedge[s3].")
    return store


class Job:
    """What is saved in a directory, and the right to add to it."""

    def __init__(self, at: str | os.PathLike[str]) -> None:
        self.at = absolute(at)
        self.store = open_store(self.at)
        machine = host.local()
        self.clock, self._rng = machine.clock, machine.rng
        self.ledger = Ledger(self.store, machine.rng, machine.clock)
        self.epoch = 0

    def claim(self) -> None:
        """Become the job's one driver; any other gets ConflictError at its next record."""
        try:
            self.epoch = self.ledger.claim()
        except OSError as error:
            raise UsageError(f"{self.at} can't be written: {error}. Choose another place for the job.") from error

    def add(self, kind: str, **fields: Any) -> None:
        """One more record."""
        try:
            self.ledger.commit({"kind": kind, "at_us": self.clock.now_us(), **fields})
        except OSError as error:
            raise UnavailableError(f"{self.at} takes no more records: {error}. Make room there.") from error

    def records(self) -> list[Record]:
        """All records, the newest state read first."""
        self.ledger.refresh()
        return list(self.ledger.records())

    def token(self) -> str:
        """A name for an attempt."""
        return self._rng.token()[:12]

    def cuts(self) -> dict[str, Cut]:
        """The announced intermediates that were not withdrawn, with the files that are there."""
        found: dict[str, Cut] = {}
        for record in self.records():
            if record["kind"] == "cut":
                if record.get("parts_format", 1) > FORMAT:
                    raise UsageError(
                        f"{self.at} was saved by a newer Kedge (format {record['parts_format']}, this one reads up to "
                        f"{FORMAT}). Update Kedge, or name another place."
                    )
                found[record["cut"]] = Cut(record["cut"], record["attempt"], record, since_us=record["at_us"])
            elif record["kind"] == "withdrawn":
                found.pop(record["cut"], None)
            elif record["kind"] == "cleaned":
                found.clear()
        for cut in found.values():
            for name in self.store.list(cut.folder):
                part = Part.named(name)
                if part is not None and part.partition < cut.partitions:
                    cut.parts.setdefault(part.partition, part)
        return found

    def learned(self) -> dict[str, Any]:
        """Times and sizes of the stages of earlier runs, by the identity of their plan."""
        found: dict[str, Any] = {}
        for record in self.records():
            if record["kind"] == "learned":
                found.update(record["stages"])
        return found

    def moment_us(self) -> int:
        """The time that a query which reads the clock is pinned to: that of the first run since the last clean."""
        found = 0
        for record in self.records():
            if record["kind"] in ("moment", "cleaned"):
                found = record.get("moment_us", 0)
        if not found:
            found = self.clock.now_us()
            self.add("moment", moment_us=found)
        return found

    def announce(self, cut: str, fields: Mapping[str, Any]) -> Cut:
        """Begin an attempt to save an intermediate."""
        attempt = self.token()
        self.add("cut", cut=cut, attempt=attempt, parts_format=FORMAT, **fields)
        return Cut(cut, attempt, {"cut": cut, "attempt": attempt, **fields}, since_us=self.clock.now_us())

    def withdraw(self, cut: Cut, why: str) -> None:
        """Give up what is saved of an intermediate: the record first, then the files."""
        self.add("withdrawn", cut=cut.id, label=cut.label, why=why, parts=len(cut.parts))
        self.delete(cut.folder)

    def delete(self, folder: str) -> None:
        """Remove the files below a folder."""
        for name in self.store.list(folder):
            self.store.delete(name)

    def clean(self) -> int:
        """Remove everything that is saved; the history stays. The bytes that were freed."""
        freed = sum(part.bytes for part in map(Part.named, self.store.list("parts")) if part is not None)
        self.add("cleaned", bytes=freed)
        self.delete("parts")
        return freed


def missing(cut: Cut) -> Sequence[int]:
    """The partitions of a cut that have no file."""
    return [partition for partition in range(cut.partitions) if partition not in cut.parts]
