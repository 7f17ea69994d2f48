"""`read(where=...)` gives what a plain filter over all rows gives, and reads only units that may have such rows."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.errors import UsageError
from kedge.streams import Stream, stream

SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", "UTC")),
        ("i", pa.int16()),
        ("u", pa.uint64()),
        ("f", pa.float32()),
        ("s", pa.string()),
        ("d", pa.decimal128(12, 2)),
        ("day", pa.date32()),
        ("flag", pa.bool_()),
        ("w", pa.struct([("start", pa.int64())])),
    ]
)
UTC = datetime.UTC
VALUES: dict[str, Any] = {
    "ts": st.datetimes(datetime.datetime(2020, 1, 1), datetime.datetime(2020, 1, 9), timezones=st.just(UTC)),
    "i": st.integers(-5, 5),
    "u": st.sampled_from([0, 1, 7, (1 << 64) - 1]),
    "f": st.sampled_from([-0.0, 0.0, 0.1, 1.5, float("nan"), float("inf")]),
    "s": st.sampled_from(["", "a", "é", "a" * 15, "a" * 16 + "b", "a" * 20, "a\0"]),
    "d": st.decimals(-3, 3, places=2),
    "day": st.dates(datetime.date(1969, 12, 30), datetime.date(1970, 1, 3)),
    "flag": st.booleans(),
}


def rows() -> st.SearchStrategy[list[dict[str, Any]]]:
    row = st.fixed_dictionaries(
        {name: st.none() | values for name, values in VALUES.items()}
        | {"w": st.fixed_dictionaries({"start": st.none() | st.integers(-3, 3)})}
    )
    return st.lists(row, min_size=1, max_size=12)


def bounds() -> st.SearchStrategy[dict[str, tuple[Any, Any]]]:
    values = VALUES | {"w.start": st.integers(-3, 3)}
    one = st.sampled_from(sorted(values)).flatmap(
        lambda name: st.tuples(st.just(name), st.tuples(st.none() | values[name], st.none() | values[name]))
    )
    return st.lists(one, min_size=1, max_size=3).map(dict)


def matches(row: dict[str, Any], where: dict[str, tuple[Any, Any]]) -> bool:
    for name, (low, high) in where.items():
        value = row["w"]["start"] if name == "w.start" else row[name]
        if low is None and high is None:
            continue
        if value is None or (low is not None and not value >= low) or (high is not None and not value <= high):
            return False
    return True


@given(units=st.lists(rows(), min_size=1, max_size=4), where=bounds())
def test_as_a_plain_filter(tmp_path_factory: pytest.TempPathFactory, units: Any, where: Any) -> None:
    with stream(tmp_path_factory.mktemp("where") / "s", SCHEMA, threads=0) as there:
        for unit in units:
            there.append(pa.RecordBatch.from_pylist(unit, SCHEMA)).wait()
        everything = there.to_table().to_pylist()
        want = [row for row in everything if matches(row, where)]
        assert repr(there.to_table(where=where).to_pylist()) == repr(want)
        assert there.to_table(columns=["i"], where=where)["i"].to_pylist() == [row["i"] for row in want]


@pytest.fixture
def three(tmp_path: Path) -> Stream:
    """Three units of ten rows: 0-9, 10-19, 20-29."""
    there = stream(tmp_path / "s", pa.schema([("n", pa.int64()), ("s", pa.string())]), threads=0)
    for first in (0, 10, 20):
        values = list(range(first, first + 10))
        there.append(pa.record_batch({"n": values, "s": [f"{n:02d}" for n in values]})).wait()
    return there


@pytest.mark.parametrize("where", [{"n": (15, 19)}, {"s": ("12", "18")}, {"n": (10, None), "s": (None, "19")}])
def test_units_without_a_match_are_not_read(three: Stream, where: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    real = three.read_unit
    monkeypatch.setattr(
        three, "read_unit", lambda info, columns: read.append(info.first_offset) or real(info, columns)
    )
    got = three.to_table(where=where)["n"].to_pylist()
    assert got
    assert set(got) <= set(range(10, 20))
    assert read == [10]


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("n > 5", "where={"),
        ({"nothing": (1, 2)}, "no column 'nothing'"),
        ({"n": 5}, "written"),
        ({"n": ("five", None)}, "can't be compared"),
        ({"n": (1.5, None)}, "can't be compared"),
    ],
)
def test_wrong_bounds_are_named(three: Stream, where: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        three.to_table(where=where)


def test_a_bound_between_two_floats(tmp_path: Path) -> None:
    there = stream(tmp_path / "s", pa.schema([("f", pa.float32())]), threads=0)
    there.append(
        pa.record_batch({"f": pa.array([0.1], pa.float32())})
    ).wait()  # 0.1 is a little less than its float32
    assert there.to_table(where={"f": (None, 0.1)}).num_rows == 0
    assert there.to_table(where={"f": (0.1, None)}).num_rows == 1
    assert there.to_table(where={"f": (decimal.Decimal("0.1"), None)}).num_rows == 1
