"""What a new writer does before it appends: find what is there, keep the longest prefix that checks, publish it.

The writer of the last epoch published a slot: everything before it is durable. After it may lie units that were
written and not published: whole, torn, or some of an append and not all. Recovery keeps the whole appends that
check, in order, and copies them into a segment of its own epoch. It never writes into a file that another writer
may still hold, and it never trusts that bytes it can read are on the disk (after a failed sync they may not be):
copying them and syncing the copy settles both.

Invariants: see `epoch`. The tail lies in the slot's segment from its position on, then in segments with higher
numbers whose epoch is the slot's; any other segment is a stray of somebody who was taken over, and is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from kedge.errors import CorruptError
from kedge.host import File
from kedge.streams import layout
from kedge.streams.decisions import Decisions
from kedge.streams.epoch import Claim, Slot
from kedge.streams.files import PartitionFiles
from kedge.streams.layout import Header, aligned, checksum
from kedge.streams.segment import PAGE, Mark, SegmentName, header_at, pack_header, parse_header, parse_name, walk


@dataclass
class Recovered:
    """What a partition holds, and what was cut from it."""

    slot: Slot
    marks: dict[str, Mark]
    kept_units: int = 0
    kept_rows: int = 0
    cut: list[str] = field(default_factory=list)


def recover(files: PartitionFiles, claim: Claim) -> Recovered:
    """Make the partition whole under a fresh claim."""
    try:
        return _recover(files, claim)
    except (CorruptError, FileNotFoundError):
        claim.check()  # whoever has taken over has also tidied up: then that is the error
        raise


def _recover(files: PartitionFiles, claim: Claim) -> Recovered:
    slot = slot_or_nothing(files, lambda: _last_slot(files, claim.epoch))
    base = slot.epoch
    marks = _marks(files, slot)
    found = Recovered(slot, marks)
    if not slot.clean:  # an epoch that published nothing has appended nothing, so only this one counts
        tail = list(_tail(files, slot, found))
        slot = _copy(files, claim, slot, tail, found) if tail else _sealed(slot)
    claim.check()
    found.slot = claim.publish(replace(slot, clean=False), durable=True)
    _remove_strays(files, found.slot, base)
    claim.forget_older(base)
    return found


def _last_slot(files: PartitionFiles, before: int) -> Slot | None:
    epochs = files.epochs
    for epoch in epochs.listed():
        slot = epochs.slot(epoch) if epoch < before else None
        if slot is not None:
            return slot
    return None


def slot_or_nothing(files: PartitionFiles, look: Callable[[], Slot | None]) -> Slot:
    """The last slot, looked for once more when there was none: or nothing was ever written here."""
    segments = any(parse_name(text) for text in files.names())
    slot = look()  # after the listing: a segment is made after its writer's first slot
    if slot is None and segments:
        raise CorruptError(
            f"{files.folder}/epochs at byte 0: no slot checks, though there are segments. "
            f"Run `kedge stream repair {files.root}`.",
            code="slot-missing",
        )
    return slot or Slot(0)


def _sealed(slot: Slot) -> Slot:
    return replace(slot, sealed=True)


def _marks(files: PartitionFiles, slot: Slot) -> dict[str, Mark]:
    """The producers' marks at the slot: those at the start of its segment and what its units add."""
    if not slot.segment:
        return {}
    segments = files.chain(slot)
    if not segments or segments[-1].number != slot.segment:
        raise CorruptError(
            f"{files.segments_folder}: segment {slot.segment} is gone. Run `kedge stream repair {files.root}`.",
            code="segment-missing",
        )
    name = segments[-1]
    buffer = files.map(name)
    try:
        position, marks = parse_header(buffer, files.stream, files.partition, name)
        for _, header in walk(buffer, files.place(name), position, name.first_offset, slot.position):
            note(marks, header)
    except CorruptError as error:
        raise CorruptError(
            f"{files.path(name)}: {error} Run `kedge stream repair {files.root}`.", code=error.code
        ) from error
    return marks


def note(marks: dict[str, Mark], header: Header) -> None:
    """Move a producer's mark over one more unit."""
    if header.producer is None or header.sequence is None:
        return
    last = marks.get(header.producer)
    first = last.first_offset if last is not None and last.sequence == header.sequence else header.first_offset
    marks[header.producer] = Mark(header.sequence, first, header.end)


@dataclass(frozen=True, slots=True)
class _Unit:
    header: Header
    body: memoryview


def _tail(files: PartitionFiles, slot: Slot, found: Recovered) -> Iterator[_Unit]:
    """The units after the slot that check, only whole appends."""
    offset = slot.end
    decisions = Decisions(files.host, files.root, files.partition)
    for name, position in _tail_segments(files, slot):
        if position < 0 and name.first_offset != offset:
            found.cut.append(
                f"{files.path(name)}: begins at offset {name.first_offset}, the rows before it end at {offset}"
            )
            return
        group: list[_Unit] = []
        try:
            for unit in _units(files, name, position, offset, slot.epoch):
                group.append(unit)
                if not unit.header.more and _counts(group, decisions):
                    yield from group
                    offset = unit.header.end
                    group = []
        except CorruptError as error:
            if error.code != "unit-end":
                found.cut.append(f"{files.path(name)}: {error}")
        if group:
            first = group[0].header.first_offset
            found.cut.append(f"{files.path(name)}: offset {first}: {len(group)} units of an append that has no end")


def _counts(group: list[_Unit], decisions: Decisions) -> bool:
    """Whether a whole append counts: one to several partitions only if the ledger says so."""
    header = group[0].header
    if header.atomic and not decisions.committed(header.first_offset, header.epoch):
        raise CorruptError(f"offset {header.first_offset}: an append to several partitions that was not committed")
    return True


def _tail_segments(files: PartitionFiles, slot: Slot) -> Iterator[tuple[SegmentName, int]]:
    here = files.chain(slot)
    if here and not slot.sealed:
        yield here[-1], slot.position
    links = {(name.number, name.epoch, name.before): name for text in files.names() if (name := parse_name(text))}
    link = (slot.segment + 1, slot.epoch, slot.segment_epoch)
    while (name := links.get(link)) is not None:
        yield name, -1
        link = (name.number + 1, slot.epoch, slot.epoch)


def _units(files: PartitionFiles, name: SegmentName, position: int, offset: int, epoch: int) -> Iterator[_Unit]:
    buffer = files.map(name)
    if position < 0:
        position, _ = parse_header(buffer, files.stream, files.partition, name)
    while True:
        if len(buffer) - position < PAGE or bytes(buffer[position : position + 8]) == bytes(8):
            raise CorruptError(f"byte {position}: the units end here", code="unit-end")
        header = header_at(buffer, files.place(name), position, offset)
        if header.epoch != epoch:
            raise CorruptError(f"byte {position}: a unit of epoch {header.epoch}, not {epoch}", code="unit-place")
        check_bodies(buffer, header, position)
        yield _Unit(header, buffer[position : position + header.bytes])
        position += aligned(header.bytes, PAGE)
        offset += header.rows


def check_bodies(buffer: memoryview, header: Header, position: int) -> None:
    """CorruptError when a body's checksum does not match."""
    for index, entry in enumerate(header.buffers):
        start, size = position + int(entry["start"]), int(entry["bytes"])
        if checksum(buffer[start : start + size]) != int(entry["checksum"]):
            raise CorruptError(f"byte {start}: the checksum of body {index} does not match.", code="unit-checksum")


def _copy(files: PartitionFiles, claim: Claim, slot: Slot, tail: list[_Unit], found: Recovered) -> Slot:
    """Write the tail into a segment of this epoch, durably."""
    name = SegmentName(slot.segment + 1, slot.end, claim.epoch, slot.segment_epoch)
    total = sum(aligned(unit.header.bytes, PAGE) for unit in tail)
    file, position = create_segment(files, name, found.marks, total)
    try:
        for unit in tail:
            copy = bytearray(aligned(unit.header.bytes, PAGE))
            copy[: unit.header.bytes] = unit.body
            at = layout.seed(files.stream, files.partition, name.number, claim.epoch, unit.header.first_offset)
            layout.place(memoryview(copy), claim.epoch, at)
            file.write(copy, position)
            position += len(copy)
            note(found.marks, unit.header)
            found.kept_units += 1
            found.kept_rows += unit.header.rows
        file.sync()
    finally:
        file.close()
    return Slot(claim.epoch, name.number, name.epoch, position, tail[-1].header.end, sealed=True)


def create_segment(
    files: PartitionFiles, name: SegmentName, marks: Mapping[str, Mark], size: int
) -> tuple[File, int]:
    """A new segment with room for `size` bytes of units; its name and header are durable."""
    disk = files.host.disk
    disk.mkdir(files.segments_folder)
    head = pack_header(files.stream, files.partition, name, marks)
    file = disk.open(files.path(name), "create")
    try:
        file.allocate(len(head) + size)
        file.write(head, 0)
        file.sync()
        disk.sync_dir(files.segments_folder)
    except BaseException:
        file.close()
        raise
    return file, len(head)


def _remove_strays(files: PartitionFiles, slot: Slot, base: int) -> None:
    """Remove segments that no chain has, of epochs before `base`.

    Somebody who takes over from us right now may still start from the slot of `base`, as we did, and need its tail.
    """
    kept = {str(name) for name in files.chain(slot)}
    for text in files.names():
        name = parse_name(text)
        if name is not None and text not in kept and name.epoch < base:
            with suppress(FileNotFoundError):
                files.host.disk.unlink(f"{files.segments_folder}/{text}")
