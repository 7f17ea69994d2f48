"""Units: any batch comes back, whole or by column; any changed byte is noticed; hostile headers never crash."""

from __future__ import annotations

import decimal
import struct
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from kedge import codec
from kedge.errors import CorruptError, UsageError
from kedge.streams import unit
from kedge.streams.layout import Lineage, place

STREAM = "5a" * 16
SEED = unit.seed(STREAM, 3, 7, 2, 1000)

VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int8(): st.integers(-(2**7), 2**7 - 1),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1) | st.integers(0, 100),
    pa.uint8(): st.integers(0, 2**8 - 1),
    pa.uint16(): st.integers(0, 2**16 - 1),
    pa.uint32(): st.integers(0, 2**32 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(max_size=8) | st.sampled_from(["", "a", "é", "\0", "\U0001f600"]),
    pa.binary(): st.binary(max_size=8),
    pa.decimal128(38, 4): st.integers(-(10**38) + 1, 10**38 - 1).map(lambda i: decimal_of(i, 4)),
    pa.decimal128(9, 2): st.integers(-(10**9) + 1, 10**9 - 1).map(lambda i: decimal_of(i, 2)),
}
STORED = {pa.date32(): pa.int32(), pa.timestamp("us"): pa.int64(), pa.timestamp("us", "UTC"): pa.int64()}


def decimal_of(number: int, scale: int) -> decimal.Decimal:
    return decimal.Decimal((number < 0, tuple(map(int, str(abs(number)))), -scale))


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    rows = draw(st.integers(0, 12))
    kinds = draw(st.lists(st.sampled_from([*VALUES, *STORED]), min_size=1, max_size=3))
    arrays: list[pa.Array] = []
    for kind in kinds:
        value = VALUES[STORED.get(kind, kind)]
        if draw(st.booleans()):
            value = st.none() | value
        base = pa.array(draw(st.lists(value, min_size=rows, max_size=rows)), STORED.get(kind, kind))
        arrays.append(base.view(kind) if kind in STORED else base)
    whole = pa.RecordBatch.from_arrays(arrays, names=[f"c{i}" for i in range(len(kinds))])
    low = draw(st.integers(0, rows))
    return whole.slice(low, draw(st.integers(0, rows - low)))


def names_the_byte(error: CorruptError) -> None:
    assert "byte" in str(error)


def same(left: pa.Array, right: pa.Array) -> bool:
    """Equal to the bit: NaN payloads and the sign of zero too."""
    if left.type != right.type or left.is_null().to_pylist() != right.is_null().to_pylist():
        return False
    if left.type in STORED:
        left, right = left.view(STORED[left.type]), right.view(STORED[left.type])
    if pa.types.is_floating(left.type):
        form = "<f" if left.type == pa.float32() else "<d"
        pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
        return all(a is None or struct.pack(form, a) == struct.pack(form, b) for a, b in pairs)
    return left.to_pylist() == right.to_pylist()


@given(batches(), st.integers(0, 2**40), st.booleans())
def test_any_batch_comes_back(batch: pa.RecordBatch, offset: int, more: bool) -> None:
    lineage = Lineage("ab" * 16, 4, 2, ((0, 1, 10, 20), (1, 0, 5, 5)))
    raw = unit.encode(
        batch, first_offset=offset, seed=SEED, lineage=lineage, epoch=2, more=more, producer="né", sequence=9
    )
    assert raw.ctypes.data % 4096 == 0
    header = unit.header(raw, seed=SEED)
    assert (header.first_offset, header.rows, header.more, header.epoch) == (offset, batch.num_rows, more, 2)
    assert (header.lineage, header.producer, header.sequence) == (lineage, "né", 9)
    back = unit.decode(raw, header, batch.schema)
    back.validate(full=True)
    assert all(same(a, b) for a, b in zip(batch.columns, back.columns, strict=True))


@given(batches(), st.data())
def test_columns_are_pruned_in_any_order(batch: pa.RecordBatch, data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(batch.schema.names), unique=True))
    raw = unit.encode(batch, first_offset=0, seed=SEED)
    back = unit.decode(raw, unit.header(raw, seed=SEED), batch.schema, names)
    assert back.schema.names == names
    assert back.num_rows == batch.num_rows
    assert all(same(batch.column(name), back.column(name)) for name in names)


@given(batches())
def test_equal_rows_are_equal_bytes(batch: pa.RecordBatch) -> None:
    again = pa.RecordBatch.from_arrays(
        [pa.concat_arrays([column, column.slice(0, 0)]) for column in batch.columns], schema=batch.schema
    )
    first = unit.encode(batch, first_offset=1, seed=SEED)
    assert first.tobytes() == unit.encode(again, first_offset=1, seed=SEED).tobytes()


@given(batches(), st.data())
def test_a_changed_byte_is_noticed_or_harmless(batch: pa.RecordBatch, data: st.DataObject) -> None:
    raw = unit.encode(batch, first_offset=5, seed=SEED, event_time=None)
    at = data.draw(st.integers(0, raw.nbytes - 1))
    spoiled = raw.copy()
    spoiled[at] ^= data.draw(st.integers(1, 255))
    try:
        back = unit.decode(spoiled, unit.header(spoiled, seed=SEED), batch.schema)
    except CorruptError as error:
        names_the_byte(error)
    else:  # only the zeros between bodies may change unseen
        assert all(same(a, b) for a, b in zip(batch.columns, back.columns, strict=True))


@given(batches(), st.data())
def test_a_header_that_lies_never_crashes(batch: pa.RecordBatch, data: st.DataObject) -> None:
    """The checksum is made to match: then bounds alone protect the reader."""
    raw = unit.encode(batch, first_offset=5, seed=SEED).copy()
    header_bytes = struct.unpack_from("<I", raw, 48)[0]
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(8, header_bytes - 9))
        size = data.draw(st.sampled_from([1, 4, 8]))
        value = data.draw(
            st.sampled_from([0, 1, 63, 64, 2**7, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63, 2**64 - 1])
        )
        piece = (value & (256**size - 1)).to_bytes(size, "little")[: header_bytes - 8 - at]
        raw[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
    stamp = xxhash.xxh3_64_intdigest(raw[: header_bytes - 8], SEED)
    raw[header_bytes - 8 : header_bytes] = np.frombuffer(stamp.to_bytes(8, "little"), np.uint8)
    try:
        back = unit.decode(raw, unit.header(raw, seed=SEED), batch.schema)
    except CorruptError:
        return
    back.validate(full=True)


@given(batches(), st.data())
def test_hostile_bodies_never_crash(batch: pa.RecordBatch, data: st.DataObject) -> None:
    """Bodies are replaced, and every checksum made to match."""
    raw = unit.encode(batch, first_offset=5, seed=SEED).copy()
    header = unit.header(raw, seed=SEED)
    if not len(header.buffers):
        return
    index = data.draw(st.integers(0, len(header.buffers) - 1))
    entry = header.buffers[index]
    start, size = int(entry["start"]), int(entry["bytes"])
    raw[start : start + size] = np.frombuffer(data.draw(st.binary(min_size=size, max_size=size)), np.uint8)
    restamp(raw, header, 128 + 64 * (batch.num_columns + index) + 56, start, size)
    try:
        unit.decode(raw, unit.header(raw, seed=SEED), batch.schema).validate(full=True)
    except CorruptError as error:
        names_the_byte(error)
    except pa.ArrowInvalid as error:  # a decimal out of its precision: a wrong value, not a wrong read
        if "ecimal" not in str(error):
            raise


def test_a_bitmap_ends_with_the_last_row() -> None:
    """Nulls are counted over whole bytes, so a bit behind the rows would hide one that is missing."""
    batch = pa.record_batch({"v": pa.array([None, None, 0, 0, 0], pa.int8())})
    raw = unit.encode(batch, first_offset=5, seed=SEED).copy()
    header = unit.header(raw, seed=SEED)
    start = int(header.buffers[0]["start"])
    assert raw[start] == 0b11100
    raw[start] = 0b10001100
    restamp(raw, header, 128 + 64 + 56, start, int(header.buffers[0]["bytes"]))
    with pytest.raises(CorruptError, match="after the last row"):
        unit.decode(raw, unit.header(raw, seed=SEED), batch.schema)


def restamp(raw: NDArray[np.uint8], header: unit.Header, at: int, start: int, size: int) -> None:
    """Make the checksum at byte `at` of the table that of a body, and the header's match."""
    stamp = xxhash.xxh3_64_intdigest(raw[start : start + size])
    raw[at : at + 8] = np.frombuffer(stamp.to_bytes(8, "little"), np.uint8)
    end = header.header_bytes - 8
    raw[end : end + 8] = np.frombuffer(xxhash.xxh3_64_intdigest(raw[:end], SEED).to_bytes(8, "little"), np.uint8)


def test_a_unit_checks_only_in_its_place() -> None:
    batch = pa.record_batch({"v": pa.array([1, 2, 3])})
    raw = unit.encode(batch, first_offset=5, seed=SEED)
    for other in (
        unit.seed("5b" * 16, 3, 7, 2, 1000),
        unit.seed(STREAM, 4, 7, 2, 1000),
        unit.seed(STREAM, 3, 8, 2, 1000),
        unit.seed(STREAM, 3, 7, 3, 1000),
        unit.seed(STREAM, 3, 7, 2, 1001),
    ):
        with pytest.raises(CorruptError, match="checksum"):
            unit.header(raw, seed=other)
    moved = raw.copy()
    place(moved.data, 9, unit.seed(STREAM, 3, 8, 9, 1000))
    assert unit.header(moved, seed=unit.seed(STREAM, 3, 8, 9, 1000)).epoch == 9


def test_a_plain_fixed_column_is_a_view() -> None:
    noise = np.random.default_rng(1).integers(-(2**63), 2**63 - 1, 1000)
    raw = unit.encode(pa.record_batch({"v": pa.array(noise)}), first_offset=0, seed=SEED)
    back = unit.decode(raw, unit.header(raw, seed=SEED), pa.schema([("v", pa.int64())]))
    address = back.column(0).buffers()[1].address
    assert raw.ctypes.data <= address < raw.ctypes.data + raw.nbytes
    assert address % 64 == 0


def test_bounds_prune() -> None:
    schema = pa.schema([("i", pa.int32()), ("s", pa.string()), ("f", pa.float64()), ("n", pa.int8())])
    batch = pa.record_batch(
        [[3, None, -4], ["b" * 40, "a", None], [1.0, float("nan"), 2.0], [None] * 3], schema=schema
    )
    raw = unit.encode(batch, first_offset=0, seed=SEED)
    header = unit.header(raw, seed=SEED)
    assert unit.bounds(header, schema, "i") == (-4, 3, 1)
    assert unit.bounds(header, schema, "s") == (b"a", None, 1)
    assert unit.bounds(header, schema, "f") == (None, None, 0)
    assert unit.bounds(header, schema, "n") == (None, None, 3)


SHAPES = {
    "even": lambda rng, n: np.arange(n) * 1000,
    "runs": lambda rng, n: np.repeat(rng.integers(0, 1 << 12, n // 20 + 1), 20)[:n],
    "noise": lambda rng, n: rng.integers(0, 1 << 62, n),
    "few": lambda rng, n: rng.integers(0, 1 << 60, 100)[rng.integers(0, 100, n)],
    "signed": lambda rng, n: rng.integers(-5000, 5000, n),
    "cents": lambda rng, n: rng.integers(0, 100_000, n) / 100,
    "debts": lambda rng, n: rng.integers(-100_000, 100_000, n) / 100,
    "zeros": lambda rng, n: np.where(rng.random(n) < 0.5, -0.0, 0.0),
    "gaps": lambda rng, n: np.where(rng.random(n) < 0.01, np.nan, rng.random(n)),
    "ends": lambda rng, n: np.where(rng.random(n) < 0.01, np.inf, np.repeat(rng.random(n // 9 + 1), 9)[:n]),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["i2", "i4", "i8", "u4", "u8", "f4", "f8"])
@pytest.mark.parametrize("rows", [1, 1025, 20_000])
def test_bounds_are_those_of_the_values_whatever_the_codec(shape: str, kind: str, rows: int) -> None:
    with np.errstate(all="ignore"):
        values = SHAPES[shape](np.random.default_rng(rows), rows).astype(kind)
    if kind == "u8":
        values[rows // 2] = 1 << 63  # what kernels see is negative
    batch = pa.record_batch({"v": pa.array(values)})
    choosers = codec.Choosers()
    for _ in range(2):
        raw = unit.encode(batch, first_offset=0, seed=SEED, choosers=choosers)
        header = unit.header(raw, seed=SEED)
        want = (None, None) if np.isnan(values.astype(float)).any() else (values.min(), values.max())
        assert unit.bounds(header, batch.schema, "v") == (*want, 0)
        assert unit.decode(raw, header, batch.schema).column(0).to_numpy().tobytes() == values.tobytes()


def test_the_memory_of_a_unit_is_its_own_until_nobody_holds_it() -> None:
    with ThreadPoolExecutor(1) as pool:  # a thread that keeps no memory yet
        pool.submit(_hold_and_let_go).result()


def _hold_and_let_go() -> None:
    batch = pa.record_batch({"v": pa.array(np.arange(5000)), "w": pa.array(np.arange(5000) % 7)})
    first = unit.encode(batch, first_offset=0, seed=SEED)
    place, bytes_ = first.ctypes.data, first.tobytes()
    part = memoryview(first[64:128])  # as somebody who is writing it out
    del first
    others = [unit.encode(batch, first_offset=k, seed=SEED) for k in (1, 2)]
    assert place not in [one.ctypes.data for one in others]
    assert bytes(part) == bytes_[64:128]
    del part
    assert unit.encode(batch, first_offset=0, seed=SEED).ctypes.data == place


def test_event_times_are_in_the_header() -> None:
    times = pa.array([5, None, -7], pa.timestamp("us"))
    raw = unit.encode(pa.record_batch({"ts": times}), first_offset=0, seed=SEED, event_time="ts")
    header = unit.header(raw, seed=SEED)
    assert (header.min_us, header.max_us) == (-7, 5)


def test_too_many_rows_are_refused() -> None:
    batch = pa.record_batch({"v": pa.array(np.zeros(unit.ROWS_MAX + 1, np.int8))})
    with pytest.raises(UsageError, match="1,048,576"):
        unit.encode(batch, first_offset=0, seed=SEED)


def test_a_full_unit_with_a_dictionary_and_long_strings() -> None:
    rows = 70_000
    batch = pa.record_batch(
        {
            "key": pa.array([f"key-{i % 300}" for i in range(rows)]),
            "text": pa.array([f"{i:030d}" for i in range(rows)]),
        }
    )
    raw = unit.encode(batch, first_offset=0, seed=SEED)
    assert unit.decode(raw, unit.header(raw, seed=SEED), batch.schema).equals(batch)
    assert raw.nbytes < batch.nbytes
