"""What an object stream holds, folded from its ledger: pure, the same in writers, readers and repair.

Records (see docs/format.md):

    {"kind": "append", "units": [[partition, offset, rows, file, start, bytes, min_us, max_us], ...],
                       "marks": [[partition, producer, sequence, first, end], ...]}
    {"kind": "lost", "units": [[partition, offset, rows], ...]}    rows that a repair could not keep
    {"kind": "close"}                                              the epoch's writer has ended in good order

A summary has the same lists for all that stood below it, and the end of each partition.

Invariants:
- The units of a partition follow each other: offsets are dense, apart from rows that are lost or trimmed.
- A summary leaves out what was deleted, and nothing else: marks and ends survive every trim.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kedge.errors import CorruptError
from kedge.streams import layout
from kedge.streams.index import UnitInfo
from kedge.streams.segment import Mark

FOLDER = "units"  # of the stream's prefix: one unit in each object, or a pack of small ones


def seed(stream: str, partition: int, file: str, offset: int) -> int:
    """The seed of a unit's checksums: its object's name, which is used once, its partition and its offset."""
    return layout.checksum(file.encode(), layout.seed(stream, partition, 0, 0, offset))


def entry(info: UnitInfo) -> list[Any]:
    """A unit as a record names it."""
    return [
        info.partition, info.first_offset, info.rows, info.file, info.start, info.bytes, info.min_us, info.max_us
    ]  # fmt: skip


class Contents:
    """Units, ends and producers' marks at a record of the ledger."""

    def __init__(self, stream: str, partitions: int, where: str) -> None:
        self._stream, self._where = stream, where
        self.units: list[list[UnitInfo]] = [[] for _ in range(partitions)]
        self.ends = [0] * partitions
        self.marks: list[dict[str, Mark]] = [{} for _ in range(partitions)]
        self.lost: list[tuple[int, int, int]] = []
        self.held_by = 0  # the epoch of a writer that has not said that it ended; 0: none
        self.next_slot = 0

    def follow(self, floor: int, summary: Mapping[str, Any] | None, records: Iterable[Mapping[str, Any]]) -> None:
        """Fold what a ledger shows from `next_slot` on; a floor above it begins anew from the summary."""
        if floor > self.next_slot and summary is not None:
            self._load(summary, floor)
        for record in records:
            if record["slot"] >= self.next_slot:
                self.take(record)

    def take(self, record: Mapping[str, Any]) -> None:
        """One record more."""
        slot, kind = record["slot"], record["kind"]
        where = f"{self._where}, slot {slot}"
        if kind == "claim":
            self.held_by = record["epoch"]
        elif kind == "close":
            self.held_by = 0
        elif kind == "append":
            for unit in record["units"]:
                self._add(unit, where)
            self._mark(record["marks"])
        elif kind == "lost":
            for partition, offset, rows in record["units"]:
                self._lose(partition, offset, rows)
        self.next_slot = slot + 1

    def drop_below(self, kept: Sequence[int]) -> None:
        """Forget the units that a trim has let go."""
        for partition, below in enumerate(kept):
            units = self.units[partition]
            if units and units[0].end <= below:
                self.units[partition] = [unit for unit in units if unit.end > below]
        self.lost = [lost for lost in self.lost if lost[1] + lost[2] > kept[lost[0]]]

    def summary(self) -> dict[str, Any]:
        """What stands for all records so far."""
        return {
            "kind": "stream",
            "ends": self.ends,
            "units": [entry(unit) for units in self.units for unit in units],
            "marks": [
                [partition, name, mark.sequence, mark.first_offset, mark.end]
                for partition, marks in enumerate(self.marks)
                for name, mark in sorted(marks.items())
            ],
            "lost": self.lost,
            "held_by": self.held_by,
        }

    def _load(self, summary: Mapping[str, Any], floor: int) -> None:
        partitions = len(self.ends)
        self.units, self.marks = [[] for _ in range(partitions)], [{} for _ in range(partitions)]
        for unit in summary["units"]:
            info = self._info(unit, f"{self._where}, the summary at slot {floor}")
            self.units[info.partition].append(info)
        self.ends = [int(end) for end in summary["ends"]]
        self._mark(summary["marks"])
        self.lost = [(int(p), int(offset), int(rows)) for p, offset, rows in summary["lost"]]
        self.held_by, self.next_slot = int(summary["held_by"]), floor

    def _info(self, unit: Sequence[Any], where: str) -> UnitInfo:
        partition, offset, rows, file, start, size, min_us, max_us = unit
        if not 0 <= partition < len(self.ends) or rows < 0 or not str(file).startswith(f"{FOLDER}/"):
            raise CorruptError(
                f"{where}: partition {partition}, {rows} rows in {file} can't be.", code="unit-place"
            )
        place = seed(self._stream, partition, file, offset)
        return UnitInfo(partition, offset, rows, min_us, max_us, file, start, size, place)

    def _add(self, unit: Sequence[Any], where: str) -> None:
        info = self._info(unit, where)
        if info.first_offset != self.ends[info.partition]:
            raise CorruptError(
                f"{where}: partition {info.partition} goes on at offset {info.first_offset}, but it ends at "
                f"{self.ends[info.partition]}. Restore the ledger from a copy, or run `kedge stream repair`.",
                code="unit-gap",
            )
        self.units[info.partition].append(info)
        self.ends[info.partition] = info.end

    def _mark(self, marks: Iterable[Sequence[Any]]) -> None:
        for partition, producer, sequence, first, end in marks:
            self.marks[partition][producer] = Mark(sequence, first, end)

    def _lose(self, partition: int, offset: int, rows: int) -> None:
        self.units[partition] = [unit for unit in self.units[partition] if unit.first_offset != offset]
        self.lost.append((partition, offset, rows))
