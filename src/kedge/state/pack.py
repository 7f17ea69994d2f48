"""Deltas, commands and layers as bytes: what a journal and Redis keep.

Invariants:
- A blob is `KS`, a format number, a flag, the body (zstd when that is smaller) and an xxh3_64 of all before it: a
  blob that does not check is a CorruptError, never a wrong layer.
- Integer members are sorted and kept as variable-byte gaps, grouped by (old, new), so that a flag costs nothing.
- `unpack` gives back what `pack` got, up to the order of members.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import xxhash

from kedge.errors import CorruptError
from kedge.state.commands import Raw
from kedge.state.delta import UNKNOWN, CellDelta, Delta, IntDelta, Ints, Old
from kedge.state.table_text import pack_gaps, unpack_gaps

_MAGIC, _FORMAT = b"KS", 1
_PLAIN, _ZSTD = 0, 1
_INTS, _CELLS = 1, 2  # forms of a delta
_NEXT = "Restore it from a copy, or roll back below it."
_BLIND = 0x80  # a cell delta without old values at all


@dataclass
class Packed:
    """What one blob says: net changes by structure, and calls in order."""

    deltas: dict[str, Delta] = field(default_factory=dict[str, Delta])
    raws: list[Raw] = field(default_factory=list[Raw])


class Out:
    """Bytes being written."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def number(self, value: int) -> None:
        """An unsigned LEB128."""
        out = bytearray()
        while value >= 128:
            out.append(value & 127 | 128)
            value >>= 7
        out.append(value)
        self.parts.append(bytes(out))

    def data(self, value: bytes) -> None:
        """Bytes with their length before them."""
        self.number(len(value))
        self.parts.append(value)


class In:
    """Bytes being read; running out of them is a ValueError."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def number(self) -> int:
        """An unsigned LEB128."""
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    def data(self) -> bytes:
        """Bytes with their length before them."""
        return self.take(self.number())

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        part = self._data[self._at : self._at + size]
        if len(part) != size:
            raise ValueError("it ends too early")
        self._at += size
        return part

    def done(self) -> bool:
        """Whether everything was read."""
        return self._at == len(self._data)


def pack(packed: Packed) -> bytes:
    """One blob."""
    out = Out()
    out.number(len(packed.deltas))
    for name, delta in packed.deltas.items():
        out.data(name.encode())
        _write_delta(out, delta)
    out.number(len(packed.raws))
    for raw in packed.raws:
        _write_raw(out, raw)
    body, flag = b"".join(out.parts), _PLAIN
    if len(body) > 200:
        smaller = pa.compress(body, codec="zstd", asbytes=True)
        if len(smaller) + 9 < len(body):
            body, flag = len(body).to_bytes(8, "little") + smaller, _ZSTD
    blob = _MAGIC + bytes([_FORMAT, flag]) + body
    return blob + xxhash.xxh3_64_digest(blob)


def unpack(blob: bytes, where: str) -> Packed:
    """What a blob says; `where` names it in errors."""
    blob = bytes(blob)
    if blob[:2] != _MAGIC or len(blob) < 12 or xxhash.xxh3_64_digest(blob[:-8]) != blob[-8:]:
        raise CorruptError(
            f"{where}: checksum mismatch. Restore it from a copy, or roll back below it.", code="layer"
        )
    if blob[2] != _FORMAT:
        raise CorruptError(f"{where}: format {blob[2]} is newer than this Kedge ({_FORMAT}). Upgrade Kedge.")
    body = blob[4:-8]
    if blob[3] == _ZSTD:
        size = int.from_bytes(body[:8], "little")
        body = pa.decompress(body[8:], decompressed_size=size, codec="zstd", asbytes=True)
    read, packed = In(body), Packed()
    try:
        for _ in range(read.number()):
            name = read.data().decode()
            packed.deltas[name] = _read_delta(read)
        packed.raws = [_read_raw(read) for _ in range(read.number())]
    except ValueError as error:
        raise CorruptError(
            f"{where}: {error}. Restore it from a copy, or roll back below it.", code="layer"
        ) from None
    return packed


def blind(delta: Delta) -> Delta:
    """The same change without its old values."""
    if isinstance(delta, IntDelta):
        return IntDelta(delta.keys, np.full(len(delta.keys), 2, np.uint8), delta.new)
    return CellDelta({cell: (UNKNOWN, new) for cell, (_, new) in delta.changes.items()})


def _write_delta(out: Out, delta: Delta) -> None:
    if isinstance(delta, IntDelta):
        codes = delta.old * 2 + delta.new
        used = np.flatnonzero(np.bincount(codes, minlength=6))
        out.parts.append(bytes([_INTS, len(used)]))
        for code in used.tolist():
            out.parts.append(bytes([code]))
            _write_ints(out, np.sort(delta.keys[codes == code]))
        return
    without = all(old is UNKNOWN for old, _ in delta.changes.values())
    out.parts.append(bytes([_CELLS | (_BLIND if without else 0)]))
    out.number(len(delta.changes))
    for cell, (old, new) in sorted(delta.changes.items()):
        out.data(cell)
        if not without:
            _write_value(out, old)
        _write_value(out, new)


def _write_value(out: Out, value: Old) -> None:
    """0 absent, 1 unknown, else the length and 2."""
    if isinstance(value, bytes):
        out.number(len(value) + 2)
        out.parts.append(value)
    else:
        out.number(int(value is UNKNOWN))


def _read_value(read: In) -> Old:
    size = read.number()
    if size < 2:
        return UNKNOWN if size else None
    return read.take(size - 2)


def _write_ints(out: Out, keys: Ints) -> None:
    """Sorted, distinct integers."""
    room = np.empty(10 * len(keys), np.uint8)
    used = pack_gaps(keys, room)
    out.number(len(keys))
    if len(keys):
        out.parts.append(int(keys[0]).to_bytes(8, "little", signed=True))
    out.data(room[:used].tobytes())


def _read_ints(read: In) -> Ints:
    count = read.number()
    first = int.from_bytes(read.take(8), "little", signed=True) if count else 0
    gaps = np.frombuffer(read.data(), np.uint8)
    if count > len(gaps) + 1:
        raise ValueError("it promises more members than it holds")
    keys = np.empty(count, np.int64)
    if unpack_gaps(gaps, first, keys) != len(gaps):
        raise ValueError("its members do not add up")
    return keys


def _read_delta(read: In) -> Delta:
    form = read.take(1)[0]
    if form == _INTS:
        keys, codes = [np.empty(0, np.int64)], [np.empty(0, np.uint8)]
        for _ in range(read.take(1)[0]):
            code = read.take(1)[0]
            keys.append(_read_ints(read))
            codes.append(np.full(len(keys[-1]), code, np.uint8))
        code_of = np.concatenate(codes)
        return IntDelta(np.concatenate(keys), code_of >> np.uint8(1), code_of & np.uint8(1))
    if form & ~_BLIND != _CELLS:
        raise ValueError(f"there is no form {form}")
    changes: dict[bytes, tuple[Old, bytes | None]] = {}
    for _ in range(read.number()):
        cell = read.data()
        old = UNKNOWN if form & _BLIND else _read_value(read)
        new = _read_value(read)
        changes[cell] = (old, new if isinstance(new, bytes) else None)
    return CellDelta(changes)


def _write_raw(out: Out, raw: Raw) -> None:
    out.data(raw.structure.encode())
    out.data(raw.verb.encode())
    ints = isinstance(raw.args, np.ndarray)
    out.parts.append(bytes([int(ints) | 2 * int(raw.wrote is not None)]))
    if isinstance(raw.args, np.ndarray):
        out.data(_narrow(raw.args))
    else:
        out.number(len(raw.args))
        for arg in raw.args:
            out.data(arg)
    if raw.wrote is not None:
        _write_delta(out, raw.wrote)


def _narrow(args: Ints) -> bytes:
    """Integers in their order, in the smallest width that holds them all."""
    low, high = (int(args.min()), int(args.max())) if len(args) else (0, 0)
    for dtype in (np.int8, np.int16, np.int32):
        info = np.iinfo(dtype)
        if info.min <= low and high <= info.max:
            return bytes([info.bits // 8]) + args.astype(dtype).tobytes()
    return b"\x08" + args.tobytes()


def _read_raw(read: In) -> Raw:
    structure, verb, flags = read.data().decode(), read.data().decode(), read.take(1)[0]
    args: list[bytes] | Ints
    if flags & 1:
        data = read.data()
        args = np.frombuffer(data[1:], f"<i{data[0]}").astype(np.int64)
    else:
        args = [read.data() for _ in range(read.number())]
    delta = _read_delta(read) if flags & 2 else None
    return Raw(structure, verb, args, delta if isinstance(delta, CellDelta) else None)
