"""Where the units of a partition are: headers read once, and only those that are new.

A reader asks `refresh` how far the partition is durable, and `units` for what lies in a range. The headers of a
segment are checked when they are first walked; the memory of a segment is mapped once and again when it has grown.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from kedge.errors import ConflictError, CorruptError, UnavailableError, UsageError
from kedge.streams import layout
from kedge.streams.epoch import Slot
from kedge.streams.files import PartitionFiles
from kedge.streams.layout import aligned
from kedge.streams.recovery import recover, slot_or_nothing
from kedge.streams.segment import PAGE, SegmentName, header_at, parse_header, parse_name

_FINISHED = 1 << 62  # nothing is written to a segment any more: what was mapped since then is all of it


@dataclass(frozen=True, slots=True)
class UnitInfo:
    """A unit and where it is: enough to read it from any process (`Stream.read_unit`)."""

    partition: int
    first_offset: int
    rows: int
    min_us: int | None
    max_us: int | None
    file: str  # relative to the stream's directory
    start: int
    bytes: int
    seed: int

    @property
    def end(self) -> int:
        """The offset after the last row."""
        return self.first_offset + self.rows


@dataclass
class _Segment:
    """What is known of one segment so far."""

    name: SegmentName
    units: list[UnitInfo] = field(default_factory=list)
    position: int = 0  # of the first byte not walked yet; 0: the header neither
    end: int = 0  # the offset there


class Index:
    """The units of one partition, as this process has seen them."""

    def __init__(self, files: PartitionFiles) -> None:
        self._files = files
        self._slot: Slot | None = None
        self._trusted = False
        self._segments: list[_Segment] = []
        self._maps: dict[SegmentName, tuple[int, memoryview]] = {}

    def refresh(self) -> int:
        """How far the partition is durable, now."""
        newest, slot = self._files.epochs.current()
        if not self._trusted:
            if newest and (slot is None or not slot.clean) and not self._files.epochs.alive(newest):
                slot = self._recover() or slot
            self._trusted = True
        self._adopt(slot or slot_or_nothing(self._files, lambda: self._files.epochs.current()[1]))
        return self._slot.end if self._slot else 0

    def _recover(self) -> Slot | None:
        """The last writer died; when its machine crashed its last slots may be lost, though its rows are not.

        None when somebody else does it, or when we may not write here: what is published is right, perhaps not all.
        """
        try:
            claim = self._files.epochs.claim()
        except (OSError, ConflictError, UnavailableError):
            return None
        try:
            found = recover(self._files, claim)
            claim.check()
            return claim.publish(replace(found.slot, sealed=True, clean=True), durable=True)
        except ConflictError:  # a writer has taken over meanwhile
            return None
        finally:
            claim.close()

    def _adopt(self, slot: Slot) -> None:
        if self._slot == slot:
            return
        if self._slot is None or (self._slot.segment, self._slot.epoch) != (slot.segment, slot.epoch):
            known = {segment.name: segment for segment in self._segments}
            names = self._files.chain(slot)
            self._segments = [known.get(name) or _Segment(name) for name in names]
            self._maps = {name: mapped for name, mapped in self._maps.items() if name in set(names)}
            if slot.segment and (not names or names[-1].number != slot.segment):
                self._slot = None
                raise CorruptError(
                    f"{self._files.segments_folder}: segment {slot.segment} is not there. "
                    f"Run `kedge stream verify {self._files.root}`.",
                    code="segment-missing",
                )
        self._slot = slot

    @property
    def end(self) -> int:
        """The durable end of the last refresh."""
        return self._slot.end if self._slot else 0

    @property
    def begin(self) -> int:
        """The first offset that is still there."""
        return self._segments[0].name.first_offset if self._segments else self.end

    def units(self, start: int, end: int) -> list[UnitInfo]:
        """The units that hold rows of [start, end), in order."""
        if not self._segments or start >= end:
            return []
        first = max(0, bisect_right(self._segments, start, key=lambda segment: segment.name.first_offset) - 1)
        found: list[UnitInfo] = []
        for index in range(first, len(self._segments)):
            if self._segments[index].name.first_offset >= end:
                break
            units = self._walked(index)
            stop = min(end, self._segments[index + 1].name.first_offset) if index + 1 < len(self._segments) else end
            low = max(0, bisect_right(units, start, key=lambda unit: unit.first_offset) - 1)
            for unit in units[low:]:
                if unit.first_offset >= stop:
                    break
                if unit.end > start:
                    found.append(unit)
        return found

    def buffer(self, name: SegmentName, needed: int) -> memoryview:
        """The bytes of a segment, at least the first `needed`."""
        known, sure = self._maps.get(name), self._sure(name)
        if known is None or known[0] < needed or known[0] < sure == _FINISHED:
            try:
                mapped = self._files.map(name)
            except FileNotFoundError:
                raise CorruptError(
                    f"{self._files.path(name)} is not there: it was trimmed or lost. Read from `begins()` on.",
                    code="segment-missing",
                ) from None
            # Only what was written when the memory was mapped is sure to be in it.
            known = self._maps[name] = (max(needed, sure), mapped)
        if len(known[1]) < needed:
            raise CorruptError(
                f"{self._files.path(name)}: cut at byte {len(known[1])}, {needed} were written.", code="unit-cut"
            )
        return known[1]

    def _sure(self, name: SegmentName) -> int:
        if self._slot is None or name.number > self._slot.segment:
            return 0
        return self._slot.position if name.number == self._slot.segment else _FINISHED

    def _walked(self, index: int) -> list[UnitInfo]:
        """The units of a segment, up to what is durable."""
        segment = self._segments[index]
        assert self._slot is not None
        last = index + 1 == len(self._segments)
        end = self._slot.end if last else self._segments[index + 1].name.first_offset
        if segment.position and segment.end >= end:
            return segment.units
        try:
            for unit in self._walk(segment, end, self._slot.position if last else PAGE):
                if unit.rows:
                    segment.units.append(unit)
        except CorruptError as error:
            raise CorruptError(
                f"{self._files.path(segment.name)}: {error} Run `kedge stream verify {self._files.root}`.",
                code=error.code,
            ) from error
        return segment.units

    def _walk(self, segment: _Segment, end: int, needed: int) -> Iterator[UnitInfo]:
        files, name = self._files, segment.name
        buffer = self.buffer(name, needed)
        if not segment.position:
            segment.position, _ = parse_header(buffer, files.stream, files.partition, name)
            segment.end = name.first_offset
        place, file = files.place(name), f"{files.relative}/segments/{name}"
        while segment.end < end:
            header = header_at(buffer, place, segment.position, segment.end)
            if header.end > end:
                raise CorruptError(
                    f"byte {segment.position}: a unit reaches to offset {header.end}, its segment to {end}.",
                    code="unit-place",
                )
            info = UnitInfo(
                files.partition, header.first_offset, header.rows, header.min_us, header.max_us, file,
                segment.position, header.bytes, header.seed,
            )  # fmt: skip
            segment.position += aligned(header.bytes, PAGE)
            segment.end = header.end
            if not header.lost:
                yield info

    def file(self, info: UnitInfo, columns: Sequence[int] | None = None) -> memoryview:  # noqa: ARG002  (mapped: all)
        """The bytes of the file of a unit; with `columns`, those of the header and of these columns at least."""
        name = parse_name(info.file.rpartition("/")[2])
        if name is None:
            raise UsageError(f"{info.file} is not a segment of this stream.")
        return self.buffer(name, info.start + info.bytes)

    def forget(self) -> None:
        """Give the mapped memory back."""
        self._maps.clear()


def header_of(buffer: memoryview, info: UnitInfo) -> layout.Header:
    """The checked header of a unit whose place is known."""
    header = layout.parse(buffer, info.start, info.seed)  # the seed is the unit's place, so only rows are left
    if header.rows != info.rows:
        raise CorruptError(
            f"byte {info.start}: the unit is not the one that the manifest names.", code="unit-place"
        )
    return header
