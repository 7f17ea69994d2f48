"""Makes a damaged stream readable again: keeps every row that still checks, and says what it dropped.

Units are looked for at every byte, not only where they should be, so that bytes that were inserted or lost before
them do not matter. Kept rows keep their offsets: a unit with the flag LOST stands in for rows that are gone, so
that subscriptions and runs stay right about everything else. A damaged partition is written anew; its old files
move to `damaged/` beside the segments.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from kedge import host as hosts
from kedge.errors import CorruptError, UsageError
from kedge.host import Host
from kedge.streams import description, layout
from kedge.streams.decisions import PREFIX, Decisions
from kedge.streams.epoch import Claim, Slot
from kedge.streams.files import PartitionFiles
from kedge.streams.layout import BUFFER, COLUMN, LOST, MAGIC, ROWS_MAX, Header, aligned
from kedge.streams.object_check import mend_objects
from kedge.streams.positions import FLOOR, FOLDER, Positions
from kedge.streams.recovery import check_bodies, create_segment, note
from kedge.streams.segment import PAGE, Mark, Place, SegmentName, chain, parse_header, parse_name
from kedge.streams.verifying import check


@dataclass
class Repaired:
    """What a repair did."""

    done: list[str] = field(default_factory=list[str])
    dropped: list[str] = field(default_factory=list[str])
    rows_kept: int = 0
    rows_lost: int = 0


@dataclass(frozen=True, slots=True)
class _Found:
    header: Header
    body: memoryview


def repair(path: str | os.PathLike[str], *, host: Host | None = None) -> Repaired:
    """Repair a stream of segments; nobody may be writing to it."""
    return mend(host or hosts.local(), description.normal(os.fspath(path)))


def mend(host: Host, path: str) -> Repaired:
    """The same, on a given host."""
    report = Repaired()
    what = _description(host, path, report)
    if what.run is not None:
        raise UsageError(
            f"{path} is the result of run {what.run}: what is damaged has to come from a copy, or be run anew."
        )
    if what.objects:
        report.rows_kept, report.rows_lost = mend_objects(host, path, what, report.done, report.dropped)
        return report
    _documents(host, path, what.partitions, report)
    problems = check(host, path).problems
    undecided = any(problem.file == PREFIX for problem in problems)
    damaged = {problem.partition for problem in problems if problem.partition is not None}
    for partition in range(what.partitions) if undecided else sorted(damaged):
        _Partition(PartitionFiles(host, path, what.id, partition, what.segment_bytes), report).repair()
    if undecided:
        _clear_ledger(host, path, report)
    return report


def _clear_ledger(host: Host, path: str, report: Repaired) -> None:
    """Every partition has just been decided, so no record is needed any more."""
    store = host.store(path)
    for name in store.list(PREFIX):
        store.delete(name)
    report.dropped.append(
        f"{PREFIX}/: did not check; appends to several partitions that it had not yet shown are cut"
    )


def _description(host: Host, path: str, report: Repaired) -> description.Description:
    """One of the two copies checks; the other is written anew."""
    for name, other in ((description.NAME, description.COPY), (description.COPY, description.NAME)):
        try:
            what = description.load(host, path, name)
        except CorruptError:
            continue
        if what is None:
            continue
        raw = what.to_bytes()
        if _content(host, path, other) != raw:
            host.store(path).put(other, raw)
            report.done.append(f"{other}: written anew from {name}")
        return what
    raise CorruptError(f"{path}: neither copy of the description checks. Restore {description.NAME} from a backup.")


def _content(host: Host, path: str, name: str) -> bytes | None:
    try:
        return host.store(path).get(name)
    except FileNotFoundError:
        return None


def _documents(host: Host, path: str, partitions: int, report: Repaired) -> None:
    positions, store = Positions(host, path, partitions), host.store(path)
    names = [FLOOR, *(f"{FOLDER}/{name}.json" for name in positions.names())]
    for name in names:
        try:
            _ = positions.floors() if name == FLOOR else positions.read(name[len(FOLDER) + 1 : -5])
        except (CorruptError, ValueError, KeyError):
            # Without them nothing more is deleted: a floor or a position starts again from the begin.
            store.delete(name)
            report.dropped.append(f"{name}: did not check; it starts again from the first row that is there")


class _Partition:
    """The repair of one partition."""

    def __init__(self, files: PartitionFiles, report: Repaired) -> None:
        self._files, self._report = files, report

    def repair(self) -> None:
        """Write anew what checks, and let the damaged files go."""
        files = self._files
        claim = files.epochs.claim()
        try:
            slot = self._last_slot(claim.epoch)
            names = self._chain(slot)
            units = self._whole(self._units(names), slot)
            end = max([slot.end if slot else 0, *(unit.header.end for unit in units)])
            self._write(claim, names, units, end)
            claim.forget_older(claim.epoch)
        finally:
            claim.close()

    def _last_slot(self, before: int) -> Slot | None:
        slots = [self._files.epochs.slot(epoch) for epoch in self._files.epochs.listed() if epoch < before]
        return next((slot for slot in slots if slot is not None), None)

    def _chain(self, slot: Slot | None) -> list[SegmentName]:
        """The segments that count; when no slot says it, those that end with the latest."""
        texts = self._files.names()
        names = sorted(name for text in texts if (name := parse_name(text)) is not None)
        if slot is not None and slot.segment:
            later = [name for name in names if name.number > slot.segment and name.epoch == slot.epoch]
            return self._files.chain(slot) + later
        if not names:
            return []
        last = max(names, key=lambda name: (name.epoch, name.number))
        return chain(texts, last.number, last.epoch)

    def _units(self, names: list[SegmentName]) -> list[_Found]:
        """The units that check, in order, none twice."""
        kept: list[_Found] = []
        for index, name in enumerate(names):
            stop = names[index + 1].first_offset if index + 1 < len(names) else 1 << 62
            found = sorted(self._scan(name), key=lambda unit: unit.header.first_offset)
            for unit in found:
                end = kept[-1].header.end if kept else name.first_offset
                if end <= unit.header.first_offset and unit.header.end <= stop:
                    kept.append(unit)
        return kept

    def _whole(self, units: list[_Found], slot: Slot | None) -> list[_Found]:
        """Without what lies after the last slot and does not count: appends that have no end, or no commit."""
        decisions = Decisions(self._files.host, self._files.root, self._files.partition)
        kept = [unit for unit in units if slot is None or unit.header.end <= slot.end]
        group: list[_Found] = []
        for unit in units[len(kept) :]:
            group.append(unit)
            first = group[0].header
            if unit.header.more:
                continue
            if not first.atomic or self._committed(decisions, first):
                kept.extend(group)
            group = []
        return kept

    def _committed(self, decisions: Decisions, first: Header) -> bool:
        try:
            return decisions.committed(first.first_offset, first.epoch)
        except CorruptError:
            self._report.dropped.append(
                f"{self._files.relative}: an append at offset {first.first_offset} that nobody can decide any more"
            )
            return False

    def _scan(self, name: SegmentName) -> Iterator[_Found]:
        buffer = self._files.map(name)
        raw = bytes(buffer)
        at = raw.find(MAGIC)
        while at >= 0:
            try:
                header = _claimed(buffer, self._files.place(name), at)
                check_bodies(buffer, header, at)
            except CorruptError as error:
                self._report.dropped.append(f"{self._files.relative}/segments/{name}: {error}")
                at = raw.find(MAGIC, at + 1)
                continue
            yield _Found(header, buffer[at : at + header.bytes])
            at = raw.find(MAGIC, at + header.bytes)

    def _write(self, claim: Claim, names: list[SegmentName], units: list[_Found], end: int) -> None:
        first = names[0].first_offset if names else 0
        marks = self._marks(names)
        number, before = (names[0].number - 1, names[0].before) if names else (0, 0)
        name = SegmentName(number + 1, first, claim.epoch, before)
        total = sum(aligned(unit.header.bytes, PAGE) for unit in units)
        holes = list(_holes(units, first, end))
        file, position = create_segment(self._files, name, marks, total + PAGE * len(holes))
        try:
            for unit in sorted([*units, *holes], key=lambda unit: unit.header.first_offset):
                copy = _copied(unit)
                place = layout.seed(
                    self._files.stream, self._files.partition, name.number, claim.epoch, unit.header.first_offset
                )
                layout.place(memoryview(copy), claim.epoch, place)
                file.write(copy, position)
                position += len(copy)
                self._count(unit.header)
                note(marks, unit.header)
            file.sync()
        finally:
            file.close()
        claim.check()
        claim.publish(Slot(0, name.number, claim.epoch, position, end, sealed=True, clean=True), durable=True)
        self._put_away(str(name))

    def _count(self, header: Header) -> None:
        if header.lost:
            self._report.rows_lost += header.rows
            self._report.dropped.append(
                f"{self._files.relative}: {header.rows} rows from offset {header.first_offset} on are lost"
            )
        else:
            self._report.rows_kept += header.rows

    def _marks(self, names: list[SegmentName]) -> dict[str, Mark]:
        """The producers' marks before the first segment that is written anew."""
        if not names:
            return {}
        try:
            _, marks = parse_header(self._files.map(names[0]), self._files.stream, self._files.partition, names[0])
        except CorruptError:
            self._report.dropped.append(
                f"{self._files.relative}: the marks of producers before offset "
                f"{names[0].first_offset}; a retry from before then would be appended again"
            )
            return {}
        return marks

    def _put_away(self, kept: str) -> None:
        disk, folder = self._files.host.disk, f"{self._files.folder}/damaged"
        disk.mkdir(folder)
        for text in self._files.names():
            if text != kept:
                disk.rename(f"{self._files.segments_folder}/{text}", f"{folder}/{text}")
        disk.sync_dir(folder)
        disk.sync_dir(self._files.segments_folder)
        self._report.done.append(f"{self._files.relative}: written anew as {kept}; the old files are in damaged/")


def _copied(unit: _Found) -> bytearray:
    """The unit in memory of its own; between its bodies zeros, whatever was there."""
    copy = bytearray(aligned(unit.header.bytes, PAGE))
    copy[: unit.header.header_bytes] = unit.body[: unit.header.header_bytes]
    for start, size in zip(
        unit.header.buffers["start"].tolist(), unit.header.buffers["bytes"].tolist(), strict=True
    ):
        copy[start : start + size] = unit.body[start : start + size]
    return copy


def _claimed(buffer: memoryview, place: Place, at: int) -> Header:
    """The header at `at`, checked under the place that it claims to have in its segment."""
    epoch, first, _ = layout.peek(buffer, at)
    return layout.parse(buffer, at, layout.seed(place.stream, place.partition, place.name.number, epoch, first))


def _holes(units: list[_Found], first: int, end: int) -> Iterator[_Found]:
    """Units that stand for the rows that no unit has."""
    offset = first
    for start, after in [*((unit.header.first_offset, unit.header.end) for unit in units), (end, end)]:
        while offset < start:
            rows = min(ROWS_MAX, start - offset)
            yield _hole(offset, rows)
            offset += rows
        offset = max(offset, after)


def _hole(offset: int, rows: int) -> _Found:
    size = layout.header_size(0, 0, None, None)
    head = Header(
        rows, offset, None, None, size, size, 0, LOST, None, None, None, 0, np.zeros(0, COLUMN), np.zeros(0, BUFFER)
    )
    return _Found(replace(head), memoryview(layout.pack(head)))
