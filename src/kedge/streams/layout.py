"""The bytes of a unit's header: packed here, and checked here before anything in it is believed.

A unit is one header, then bodies. All numbers are little-endian; docs/format.md has the table.

    fixed part (128) | column descriptors (64 each) | buffer descriptors (64 each) | lineage | producer | zeros |
    checksum body | body | ...                                              each at a multiple of 64 from the
    unit's start

Invariants:
- The header's checksum covers all of the header and is seeded with the unit's place, so that a unit in another
  place (an older life of a recycled file) does not check. It covers the checksums of the bodies, which need no
  seed.
- `parse` returns only a header whose every length and offset lies inside the unit, and the unit inside the buffer.
- Bodies have a checksum each, in their descriptor: a reader of one column reads the bytes of one column.

It knows nothing of Arrow or of codecs.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from kedge.errors import CorruptError, UsageError

MAGIC = b"KDG-UNIT"
FORMAT = 1
ALIGN = 64
ROWS_MAX = 1 << 20
COLUMNS_MAX = 1 << 14
MORE = 1  # flag: further units of the same append follow; they count together or not at all
ATOMIC = 2  # flag: the append counts only if the stream's ledger says so
LOST = 4  # flag: stands for rows that repair could not keep; it has no columns
FLAGS = MORE | ATOMIC | LOST

NO_TIME_MIN, NO_TIME_MAX = (1 << 63) - 1, -(1 << 63)

_FIXED = struct.Struct("<8sHHIQqqQIIIIHHIQq")
_U32 = struct.Struct("<I")
_ROWS_AT, _HEADER_BYTES_AT, _EPOCH_AT = 12, 48, 72
_FIXED_BYTES = 128
_RANGE = struct.Struct("<HHIQQ")
_LINEAGE = struct.Struct("<16sQQHHI")
_CHECKSUM = struct.Struct("<Q")
SMALLEST = _FIXED_BYTES + ALIGN

COLUMN = np.dtype(
    [
        ("type", "u1"),
        ("layout", "u1"),
        ("stats", "u1"),
        ("_pad", "u1"),
        ("nulls", "<u4"),
        ("first_buffer", "<u4"),
        ("buffers", "<u4"),
        ("min", "V16"),
        ("max", "V16"),
        ("_pad2", "V16"),
    ]
)
BUFFER = np.dtype(
    [
        ("role", "u1"),
        ("dtype", "u1"),
        ("codec", "<u2"),
        ("_pad", "<u4"),
        ("params", "<i8", 3),
        ("count", "<u8"),
        ("start", "<u8"),
        ("bytes", "<u8"),
        ("checksum", "<u8"),
    ]
)
assert COLUMN.itemsize == 64
assert BUFFER.itemsize == 64


@dataclass(frozen=True, slots=True)
class Lineage:
    """What made a unit: a run's batch, and the input offsets that it read."""

    run: str
    batch: int
    epoch: int
    ranges: tuple[tuple[int, int, int, int], ...] = ()  # (input, partition, start, end)


@dataclass(frozen=True, slots=True)
class Header:
    """What a unit says of itself. `columns` and `buffers` are rows of COLUMN and BUFFER."""

    rows: int
    first_offset: int
    min_us: int | None
    max_us: int | None
    bytes: int
    header_bytes: int
    epoch: int
    flags: int
    lineage: Lineage | None
    producer: str | None
    sequence: int | None
    seed: int
    columns: NDArray[Any] = field(repr=False)
    buffers: NDArray[Any] = field(repr=False)

    @property
    def end(self) -> int:
        """The offset after the last row."""
        return self.first_offset + self.rows

    @property
    def more(self) -> bool:
        """Whether further units of the same append follow."""
        return bool(self.flags & MORE)

    @property
    def atomic(self) -> bool:
        """Whether the append counts only if the stream's ledger says so."""
        return bool(self.flags & ATOMIC)

    @property
    def lost(self) -> bool:
        """Whether this stands for rows that repair could not keep."""
        return bool(self.flags & LOST)


def seed(stream: str, partition: int, segment: int, epoch: int, offset: int) -> int:
    """The seed of a unit's checksums: its place, and nothing else."""
    place = struct.pack("<16sIQQQ", bytes.fromhex(stream), partition, segment, epoch, offset)
    return xxhash.xxh3_64_intdigest(place)


def checksum(data: Any, seed_: int = 0) -> int:
    """xxh3_64 of `data`. Bodies need no seed: the header that holds their checksums has one."""
    return xxhash.xxh3_64_intdigest(data, seed_)


def aligned(size: int, to: int = ALIGN) -> int:
    """`size` rounded up."""
    return -(-size // to) * to


def header_size(columns: int, buffers: int, lineage: Lineage | None, producer: str | None) -> int:
    """The bytes that the header will take."""
    extra = 0 if lineage is None else _LINEAGE.size + _RANGE.size * len(lineage.ranges)
    extra += 0 if producer is None else len(producer.encode())
    return aligned(_FIXED_BYTES + 64 * (columns + buffers) + extra + _CHECKSUM.size)


def pack(header: Header) -> bytes:
    """The header's bytes, its checksum included."""
    lineage = b"" if header.lineage is None else _pack_lineage(header.lineage)
    producer = b"" if header.producer is None else header.producer.encode()
    if len(producer) > 1000:
        raise UsageError(f"A producer's name has {len(producer)} bytes; 1,000 is the most. Shorten it.")
    fixed = _FIXED.pack(
        MAGIC,
        FORMAT,
        header.flags,
        header.rows,
        header.first_offset,
        NO_TIME_MIN if header.min_us is None else header.min_us,
        NO_TIME_MAX if header.max_us is None else header.max_us,
        header.bytes,
        header.header_bytes,
        len(header.columns),
        len(header.buffers),
        len(lineage),
        len(producer),
        0,
        0,
        header.epoch,
        -1 if header.sequence is None else header.sequence,
    )
    parts = (
        fixed.ljust(_FIXED_BYTES, b"\0"),
        header.columns.tobytes(),
        header.buffers.tobytes(),
        lineage,
        producer,
    )
    body = b"".join(parts).ljust(header.header_bytes - _CHECKSUM.size, b"\0")
    return body + _CHECKSUM.pack(checksum(body, header.seed))


def _pack_lineage(lineage: Lineage) -> bytes:
    head = _LINEAGE.pack(bytes.fromhex(lineage.run), lineage.batch, lineage.epoch, len(lineage.ranges), 0, 0)
    return head + b"".join(
        _RANGE.pack(index, 0, partition, start, end) for index, partition, start, end in lineage.ranges
    )


def peek(buffer: memoryview, start: int) -> tuple[int, int, int]:
    """(epoch, first offset, rows) of what may be a unit, unchecked; CorruptError if it is none."""
    if len(buffer) - start < SMALLEST:
        raise CorruptError(f"byte {start}: no room for a unit's header.", code="unit-cut")
    if bytes(buffer[start : start + 8]) != MAGIC:
        raise CorruptError(f"byte {start}: no unit begins here.", code="unit-magic")
    fixed = _FIXED.unpack_from(buffer, start)
    if fixed[1] != FORMAT:
        raise CorruptError(
            f"byte {start + 8}: unit format {fixed[1]}; this Kedge reads format {FORMAT}. Use a newer Kedge.",
            code="unit-format",
        )
    return fixed[15], fixed[4], fixed[3]


def header_bytes(buffer: memoryview, start: int) -> int:
    """How long the header of what may be a unit says that it is, unchecked."""
    peek(buffer, start)
    return int(_U32.unpack_from(buffer, start + _HEADER_BYTES_AT)[0])


def parse(buffer: memoryview, start: int, seed_: int) -> Header:
    """The header of the unit at `start`, checked; CorruptError names the byte."""
    peek(buffer, start)
    (_, _, flags, rows, first, min_us, max_us, size, header_bytes, columns, buffers, lineage_bytes, producer_bytes,
     reserved, reserved2, epoch, sequence) = _FIXED.unpack_from(buffer, start)  # fmt: skip
    tables = 64 * (columns + buffers)
    used = _FIXED_BYTES + tables + lineage_bytes + producer_bytes + _CHECKSUM.size
    if header_bytes % ALIGN or header_bytes < used or header_bytes > len(buffer) - start:
        raise _bad(start + 48, f"a header of {header_bytes} bytes can't be")
    end = start + header_bytes - _CHECKSUM.size
    if _CHECKSUM.unpack_from(buffer, end)[0] != checksum(buffer[start:end], seed_):
        raise CorruptError(
            f"byte {start}: the header's checksum does not match its {header_bytes} bytes.", code="unit-checksum"
        )
    # From here on the bytes are what somebody wrote; they may still be wrong or hostile.
    if size < header_bytes or size % ALIGN or size > len(buffer) - start:
        raise _bad(start + 40, f"a unit of {size} bytes can't be here")
    if rows > ROWS_MAX or columns > COLUMNS_MAX or first >= 1 << 62 or flags & ~FLAGS or reserved or reserved2:
        raise _bad(start + 10, "a number is out of its range")
    at = start + _FIXED_BYTES
    column_table = np.frombuffer(buffer, COLUMN, columns, at)
    buffer_table = np.frombuffer(buffer, BUFFER, buffers, at + 64 * columns)
    _check_tables(column_table, buffer_table, header_bytes, size, at)
    at += tables
    lineage = _parse_lineage(buffer, at, lineage_bytes)
    producer = _parse_producer(buffer, at + lineage_bytes, producer_bytes)
    timed = min_us <= max_us
    return Header(
        rows, first, min_us if timed else None, max_us if timed else None, size, header_bytes, epoch,
        flags, lineage, producer, sequence if producer is not None else None, seed_,
        column_table, buffer_table,
    )  # fmt: skip


def _bad(byte: int, what: str) -> CorruptError:
    return CorruptError(f"byte {byte}: {what}.", code="unit-bounds")


def _check_tables(columns: NDArray[Any], buffers: NDArray[Any], header_bytes: int, size: int, at: int) -> None:
    starts, lengths = buffers["start"], buffers["bytes"]
    # Unsigned: compare without adding first, so that nothing can wrap around.
    inside = (starts >= header_bytes) & (starts <= size) & (starts % ALIGN == 0)
    inside &= lengths <= size - np.minimum(starts, size)
    if not inside.all():
        first = int(np.argmin(inside))
        raise _bad(at + 64 * (len(columns) + first), f"body {first} lies outside its unit")
    firsts, counts = columns["first_buffer"].astype(np.int64), columns["buffers"].astype(np.int64)
    wrong = firsts + counts > len(buffers)
    if wrong.any():
        raise _bad(
            at + 64 * int(np.argmax(wrong)), f"column {int(np.argmax(wrong))} names bodies that are not there"
        )


def _parse_lineage(buffer: memoryview, at: int, size: int) -> Lineage | None:
    if not size:
        return None
    if size < _LINEAGE.size:
        raise _bad(at, f"a lineage of {size} bytes can't be")
    run, batch, epoch, ranges, _, _ = _LINEAGE.unpack_from(buffer, at)
    if size != _LINEAGE.size + ranges * _RANGE.size:
        raise _bad(at, f"a lineage of {ranges} ranges does not have {size} bytes")
    at += _LINEAGE.size
    rows = [_RANGE.unpack_from(buffer, at + i * _RANGE.size) for i in range(ranges)]
    return Lineage(run.hex(), batch, epoch, tuple((i, p, s, e) for i, _, p, s, e in rows))


def _parse_producer(buffer: memoryview, at: int, size: int) -> str | None:
    if not size:
        return None
    try:
        return str(buffer[at : at + size], "utf-8")
    except UnicodeDecodeError as error:
        raise _bad(at, "a producer's name is not UTF-8") from error


def place(unit: memoryview, epoch: int, seed_: int) -> int:
    """Give a unit in writable memory its place: its epoch, and its header's checksum under the place's seed.

    Returns its rows.
    """
    (header_bytes,) = _U32.unpack_from(unit, _HEADER_BYTES_AT)
    _CHECKSUM.pack_into(unit, _EPOCH_AT, epoch)
    end = header_bytes - _CHECKSUM.size
    _CHECKSUM.pack_into(unit, end, checksum(unit[:end], seed_))
    (rows,) = _U32.unpack_from(unit, _ROWS_AT)
    return rows
