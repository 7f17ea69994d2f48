"""The chooser takes what fits the data, keeps it, gives it up in time, and never writes more than plain."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from codec_columns import DTYPES, PATTERNS, column
from hypothesis import given
from hypothesis import strategies as st

from kedge import codec
from kedge.codec.choose import Option

ROWS = 20_000


def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def chosen(values: Any, bandwidth: float = 0.25e9) -> str:
    chooser = codec.Chooser(bandwidth)
    encoded = chooser.encode(values)
    assert codec.decode(encoded, values.dtype, values.size).tobytes() == values.tobytes()
    return chooser.option.name


def test_what_fits() -> None:
    draw = rng()
    assert chosen(np.repeat(draw.integers(0, 1 << 40, ROWS // 50), 50)) == "runs"
    assert chosen(draw.integers(0, 100, ROWS)) == "frame"
    assert chosen(np.cumsum(draw.integers(0, 4, ROWS)) + (1 << 50)) == "delta"
    assert chosen(np.cumsum(np.arange(ROWS)) + draw.integers(0, 3, ROWS)) == "delta2"
    assert chosen(draw.integers(0, 1 << 60, 50)[draw.integers(0, 50, ROWS)]) == "dictionary"
    assert chosen((draw.integers(0, 10_000, ROWS) / 100).astype(np.float32)) == "decimal>frame"
    assert chosen(draw.integers(0, 1 << 62, ROWS)) in ("frame", "plain")
    assert chosen(np.repeat(np.array([255, 0, 255], np.uint8), [3000, 50, 9000])) in ("runs", "frame")  # validity
    assert chosen(draw.integers(0, 10, ROWS).astype(np.int8), 1e9) == "frame"
    assert chosen(np.frombuffer(b"the quick brown fox " * 4000, np.uint8)) in ("lz4", "zstd")


def test_a_slow_disk_is_worth_more_work() -> None:
    """The same column: smaller and slower as bytes cost more."""
    values = column(3, "outliers", "i8", ROWS)
    sizes = [codec.Chooser(bandwidth).encode(values).body.size for bandwidth in (1e12, 1e9, 1e6)]
    assert sizes[0] >= sizes[1] >= sizes[2]
    assert sizes[0] > sizes[2]
    assert Option("x", 1.0, 2.0).cost_ns(1e9) == pytest.approx(2.1)
    assert Option("x", 4.0, 2.0).cost_ns(1e9) == pytest.approx(4.2)


@given(
    dtype=st.sampled_from(DTYPES),
    patterns=st.lists(st.sampled_from(sorted(PATTERNS)), min_size=1, max_size=6),
    rows=st.integers(0, 6000),
    seed=st.integers(0, 1 << 30),
)
def test_drifting_columns_come_back_and_never_grow(dtype: str, patterns: list[str], rows: int, seed: int) -> None:
    chooser = codec.Chooser()
    for k, pattern in enumerate(patterns):
        values = column(seed + k, pattern, dtype, rows)
        encoded = chooser.encode(values)
        assert encoded.body.size <= values.nbytes
        assert codec.decode(encoded, values.dtype, rows).tobytes() == values.tobytes()


def test_more_distinct_values_than_the_dictionary_holds() -> None:
    draw = rng()
    few = draw.integers(0, 1 << 60, 50)[draw.integers(0, 50, ROWS)]
    many = draw.integers(0, 1 << 60, ROWS)
    chooser = codec.Chooser()
    chooser.encode(few)
    assert chooser.option.name == "dictionary"
    encoded = chooser.encode(many)
    assert (codec.decode(encoded, many.dtype, ROWS) == many).all()
    assert chooser.option.name != "dictionary"
    for _ in range(8):
        chooser.encode(few)
    assert chooser.option.name == "dictionary"


def test_more_digits_than_before() -> None:
    draw = rng()
    cents = draw.integers(0, 10_000, ROWS) / 100
    exact = draw.random(ROWS)
    chooser = codec.Chooser()
    chooser.encode(cents)
    assert chooser.option.name == "decimal>frame"
    encoded = chooser.encode(exact)
    assert codec.decode(encoded, exact.dtype, ROWS).tobytes() == exact.tobytes()
    assert not chooser.option.name.startswith("decimal")


def test_hysteresis() -> None:
    """A column on the edge between two codecs does not change with every unit; one that really changes does."""
    draw = rng()
    chooser = codec.Chooser()
    for k in range(40):  # lengths of runs around where runs and frame cost the same
        chooser.encode(np.repeat(draw.integers(0, 256, ROWS), 3 + k % 2)[:ROWS])
        chooser._rows_left = 0  # a review each time
    assert chooser.changes <= 2
    before = chooser.changes
    for _ in range(2):
        chooser.encode(np.cumsum(draw.integers(0, 4, ROWS)) + (1 << 50))
    assert chooser.option.name == "delta"
    assert chooser.changes == before + 1


def test_choosers_know_their_columns_and_share_the_bandwidth() -> None:
    draw = rng()
    even, few = np.arange(ROWS) * 5, draw.integers(0, 1 << 60, 50)[draw.integers(0, 50, ROWS)]
    choosers = codec.Choosers(1e9)
    sizes: list[int] = []
    for bandwidth in (1e9, 1e5):
        choosers.measured(bandwidth)
        a, b = choosers.encode("even", even), choosers.encode("few", few)
        assert (codec.decode(a, even.dtype, ROWS) == even).all()
        assert (codec.decode(b, few.dtype, ROWS) == few).all()
        sizes.append(a.body.size + b.body.size)
    assert sizes[1] <= sizes[0] < (even.nbytes + few.nbytes) / 8


def test_sizes_are_estimated_closely() -> None:
    """What statistics expect is what the codec writes, within a quarter."""
    from kedge.codec.choose import options

    draw = rng()
    for values in (
        draw.integers(0, 1000, ROWS),
        np.cumsum(draw.integers(0, 100, ROWS)),
        np.repeat(draw.integers(0, 1000, ROWS // 10), 10).astype(np.int32),
        (draw.integers(0, 10_000, ROWS) / 100),
        draw.integers(0, 1 << 60, 300)[draw.integers(0, 300, ROWS)],
    ):
        for option in options(values, 1e9):
            if option.name not in ("lz4", "zstd", "simple8b", "plain"):
                size = codec.encode(values, option.name).body.size / ROWS
                assert 0.75 * size - 0.02 <= option.size <= 1.25 * size + 0.02, (option, size)
