"""Segments: the files that hold a partition's units one after the other, each at a multiple of 4,096 bytes.

A name says number, first offset, epoch, and the epoch of the segment before it, so that a listing is enough to find
the segment of an offset and to follow the chain:
`000000000003-00000000000000012345-0000000007-0000000005.seg` is number 3, first offset 12345, of epoch 7, after a
segment of epoch 5. The first page holds the segment's own header and, for each
producer, the last sequence number before this segment: so these marks survive when older segments are deleted.

Invariants:
- A segment belongs to the epoch in its name. Only units of that epoch, or of later ones that went on after a clean
  close, check in it.
- The rows of a segment end where the next segment of the chain begins; whatever lies after that is nobody's.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from kedge.errors import CorruptError
from kedge.streams import layout
from kedge.streams.layout import Header, aligned, checksum

PAGE = 4096
MAGIC = b"KDG-SEGM"
_NAME = re.compile(r"(\d{12})-(\d{20})-(\d{10})-(\d{10})\.seg")
_HEAD = struct.Struct("<8sHHI16sIIQQQ")
_MARK = struct.Struct("<HqQQ")
_SUM = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class Mark:
    """The last append of a producer that is durable, and where it is."""

    sequence: int
    first_offset: int
    end: int


@dataclass(frozen=True, slots=True, order=True)
class SegmentName:
    """What a segment's name says."""

    number: int
    first_offset: int
    epoch: int
    before: int  # the epoch of the segment with the number before; 0 for the first

    def __str__(self) -> str:
        return f"{self.number:012d}-{self.first_offset:020d}-{self.epoch:010d}-{self.before:010d}.seg"


def parse_name(text: str) -> SegmentName | None:
    """Read a name; None when it is not a segment's."""
    found = _NAME.fullmatch(text)
    return SegmentName(int(found[1]), int(found[2]), int(found[3]), int(found[4])) if found else None


def chain(names: Iterable[str], number: int, epoch: int) -> list[SegmentName]:
    """The segments that end with `number` of `epoch`, in order of their rows, as far back as they are there.

    Each names the one before it. What is not in the chain is a stray: somebody who had been taken over made it.
    """
    found = {(name.number, name.epoch): name for text in names if (name := parse_name(text)) is not None}
    kept: list[SegmentName] = []
    while (name := found.get((number, epoch))) is not None:
        kept.append(name)
        number, epoch = name.number - 1, name.before
    return kept[::-1]


def pack_header(stream: str, partition: int, name: SegmentName, marks: Mapping[str, Mark]) -> bytes:
    """A segment's first page or pages."""
    entries = b"".join(
        _MARK.pack(len(producer.encode()), mark.sequence, mark.first_offset, mark.end) + producer.encode()
        for producer, mark in sorted(marks.items())
    )
    size = aligned(_HEAD.size + len(entries) + _SUM.size, PAGE)
    head = _HEAD.pack(
        MAGIC, layout.FORMAT, 0, size, bytes.fromhex(stream), partition, len(marks), name.number, name.epoch,
        name.first_offset,
    )  # fmt: skip
    body = (head + entries).ljust(size - _SUM.size, b"\0")
    return body + _SUM.pack(checksum(body))


def parse_header(buffer: memoryview, stream: str, partition: int, name: SegmentName) -> tuple[int, dict[str, Mark]]:
    """(bytes of the header, marks of the producers); CorruptError names the byte."""
    if len(buffer) < PAGE or bytes(buffer[:8]) != MAGIC:
        raise CorruptError("byte 0: no segment begins here.", code="segment-magic")
    _, form, _, size, owner, part, count, number, epoch, first = _HEAD.unpack_from(buffer)
    if form != layout.FORMAT:
        raise CorruptError(
            f"byte 8: segment format {form}; this Kedge reads format {layout.FORMAT}.", code="unit-format"
        )
    if size % PAGE or not PAGE <= size <= len(buffer):
        raise CorruptError(f"byte 12: a header of {size} bytes can't be.", code="unit-bounds")
    if _SUM.unpack_from(buffer, size - 8)[0] != checksum(buffer[: size - 8]):
        raise CorruptError(
            f"byte 0: the checksum of the segment's first {size} bytes does not match.", code="unit-checksum"
        )
    if (owner.hex(), part, number, epoch, first) != (stream, partition, name.number, name.epoch, name.first_offset):
        raise CorruptError(
            f"byte 16: segment {number} of partition {part} of stream {owner.hex()} lies under another name.",
            code="segment-place",
        )
    return size, _parse_marks(buffer[_HEAD.size : size - 8], count)


def _parse_marks(raw: memoryview, count: int) -> dict[str, Mark]:
    marks: dict[str, Mark] = {}
    at = 0
    for _ in range(count):
        if len(raw) - at < _MARK.size:
            raise CorruptError(f"byte {_HEAD.size + at}: a producer's mark is cut.", code="unit-bounds")
        length, sequence, first, end = _MARK.unpack_from(raw, at)
        at += _MARK.size
        if len(raw) - at < length:
            raise CorruptError(f"byte {_HEAD.size + at}: a producer's name is cut.", code="unit-bounds")
        marks[str(raw[at : at + length], "utf-8", "replace")] = Mark(sequence, first, end)
        at += length
    return marks


@dataclass(frozen=True, slots=True)
class Place:
    """Where a segment is: what seeds the checksums of its units."""

    stream: str
    partition: int
    name: SegmentName


def header_at(buffer: memoryview, place: Place, position: int, offset: int) -> Header:
    """The checked header of the unit of `place` at `position`, whose first row must be `offset`."""
    epoch, first, _ = layout.peek(buffer, position)
    if epoch < place.name.epoch or first != offset:
        raise CorruptError(
            f"byte {position}: a unit of epoch {epoch} with first offset {first}, where offset {offset} "
            f"of epoch {place.name.epoch} belongs.",
            code="unit-place",
        )
    return layout.parse(
        buffer, position, layout.seed(place.stream, place.partition, place.name.number, epoch, offset)
    )


def walk(buffer: memoryview, place: Place, position: int, offset: int, limit: int) -> Iterator[tuple[int, Header]]:
    """(position, header) of the units from `position` up to byte `limit`; CorruptError where one does not check."""
    while position < limit:
        header = header_at(buffer, place, position, offset)
        yield position, header
        position += aligned(header.bytes, PAGE)
        offset += header.rows
