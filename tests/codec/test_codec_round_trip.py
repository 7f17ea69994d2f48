"""Every codec gives back every bit of every dtype, and what it wrote is what its file says it writes."""

from __future__ import annotations

import struct
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import codec_model as model
import numpy as np
import pytest
from codec_columns import DTYPES, PATTERNS, ROWS, column
from hypothesis import example, given
from hypothesis import strategies as st

from kedge import codec
from kedge.errors import UsageError

NAMES = [
    *codec.BY_NAME,
    "runs>delta2",
    "dictionary>runs",
    "decimal>delta",
    "decimal>runs>xor",
    "decimal>dictionary",
]


def takes(name: str, dtype: str) -> bool:
    return np.dtype(dtype).kind in codec.BY_NAME[name.partition(">")[0]].kinds


@pytest.mark.parametrize("name", [*NAMES, None])
@pytest.mark.parametrize("dtype", DTYPES)
def test_round_trip(name: str | None, dtype: str, lane: Any) -> None:
    if name and not takes(name, dtype):
        with pytest.raises(UsageError):
            codec.encode(np.zeros(3, dtype), name)
        return
    for rows in (0, 1, 17, 1041) if lane.name == "fast" else ROWS:
        for pattern in PATTERNS:
            values = column(rows, pattern, dtype, rows)
            encoded = codec.encode(values, name)
            decoded = codec.decode(encoded, values.dtype, rows)
            assert decoded.dtype == values.dtype
            assert decoded.tobytes() == values.tobytes(), (pattern, rows)
            out = np.empty_like(values)
            assert codec.decode(encoded, values.dtype, rows, out) is out
            assert out.tobytes() == values.tobytes(), (pattern, rows)


@given(
    name=st.sampled_from(NAMES),
    dtype=st.sampled_from(DTYPES),
    pattern=st.sampled_from(sorted(PATTERNS)),
    rows=st.integers(0, 2500),
    seed=st.integers(0, 1 << 30),
)
@example(name="simple8b", dtype="i8", pattern="outliers", rows=2500, seed=1)
def test_model_reads_it(name: str, dtype: str, pattern: str, rows: int, seed: int) -> None:
    values = column(seed, pattern, dtype, rows)
    item = values.itemsize
    if not takes(name, dtype) or name in ("lz4", "zstd", "snappy"):
        return
    encoded = codec.encode(values, name)
    assert codec.decode(encoded, values.dtype, rows).tobytes() == values.tobytes()
    body = encoded.body.tobytes()
    if name.startswith("decimal"):
        read = model.decode_decimal(encoded.params, body, rows, item)
        letter = "f" if item == 4 else "d"
        got = b"".join(
            value.to_bytes(item, "little", signed=True)
            if isinstance(value, int)
            else struct.pack(f"<{letter}", value)
            for value in read
        )
        assert got == values.tobytes()
    else:
        want = [model.signed(int(value), 8 * item) for value in values.view(f"u{item}")]
        assert model.decode(encoded.codec, encoded.params, body, rows, item) == want


@given(values=st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=40), name=st.sampled_from(NAMES))
def test_any_integers(values: list[int], name: str) -> None:
    array = np.array(values, np.int64)
    if takes(name, "i8"):
        assert codec.decode(codec.encode(array, name), array.dtype, array.size).tolist() == values


@given(values=st.lists(st.floats(width=64), max_size=40), error=st.sampled_from([0.5, 0.005, 1e-9]))
def test_lossy_stays_within_its_bound(values: list[float], error: float) -> None:
    array = np.array(values, np.float64)
    encoded = codec.encode_within(array, error)
    decoded = codec.decode(encoded, array.dtype, array.size)
    for before, after in zip(values, decoded.tolist(), strict=True):
        assert before == after or (before != before and after != after) or abs(before - after) <= error


def test_lossy_is_smaller_than_exact() -> None:
    values = np.random.default_rng(1).random(5000).astype(np.float32)
    encoded = codec.encode_within(values, 0.005)
    assert encoded.body.size * 3 < values.nbytes
    assert float(np.abs(codec.decode(encoded, values.dtype, 5000) - values).max()) <= 0.005
    for bad in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(UsageError):
            codec.encode_within(values, bad)
    with pytest.raises(UsageError):
        codec.encode_within(np.arange(3), 0.5)


def test_strided_unaligned_and_foreign_input() -> None:
    values = np.arange(3000, dtype=np.int64)
    shifted = np.frombuffer(b"x" + values.tobytes(), np.uint8)[1:].view(np.int64)
    for name in NAMES:
        if takes(name, "i8"):
            for given_, want in ((values[::3], values[::3]), (values.astype(">i8"), values), (shifted, values)):
                encoded = codec.encode(given_, name)
                body = np.frombuffer(b"x" + encoded.body.tobytes(), np.uint8)[1:]
                moved = codec.Encoded(encoded.codec, encoded.params, body)
                assert (codec.decode(moved, np.dtype(np.int64), want.size) == want).all(), name


def test_what_is_no_column_is_refused() -> None:
    for values in (np.zeros((2, 2)), np.array(["a"]), np.array([1j]), np.array(["2020-01-01"], "M8[us]")):
        for name in ("plain", "frame", "runs", None):
            with pytest.raises(UsageError):
                codec.encode(values, name)
    with pytest.raises(UsageError, match="no codec 'gzip'"):
        codec.encode(np.arange(3), "gzip")
    encoded = codec.encode(np.arange(3), "frame")
    for out in (np.empty(4, np.int64), np.empty(3, np.int32), np.empty(6, np.int64)[::2]):
        with pytest.raises(UsageError):
            codec.decode(encoded, np.dtype(np.int64), 3, out)


def test_threads_and_later_calls_do_not_disturb_a_result() -> None:
    columns = [column(seed, pattern, "i8", 3000) for seed in range(4) for pattern in PATTERNS]
    names = [name for name in NAMES if takes(name, "i8")]
    work = [(values, name) for values in columns for name in names]
    with ThreadPoolExecutor(4) as pool:
        encoded = list(pool.map(lambda task: codec.encode(*task), work))
        decoded = list(pool.map(lambda one: codec.decode(one, np.dtype(np.int64), 3000), encoded))
    for (values, name), back in zip(work, decoded, strict=True):
        assert (back == values).all(), name
