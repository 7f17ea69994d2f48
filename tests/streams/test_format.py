"""Golden files: what format 1 wrote is read for ever, and is still what is written."""

from __future__ import annotations

import datetime
import decimal
import pathlib
import shutil

import pyarrow as pa

from kedge.streams import stream, verify

GOLDEN = pathlib.Path(__file__).parent / "golden" / "format-1"
SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", "UTC")),
        ("i8", pa.int8()),
        ("u64", pa.uint64()),
        ("f32", pa.float32()),
        ("flag", pa.bool_()),
        ("day", pa.date32()),
        ("price", pa.decimal128(20, 2)),
        ("name", pa.string()),
        ("raw", pa.binary()),
        ("none", pa.int16()),
    ]
)
ROWS = 30


def table() -> pa.Table:
    """The rows of the golden stream, spelled out."""
    start = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    columns = [
        [start + datetime.timedelta(seconds=n) for n in range(ROWS)],
        [n - 15 if n % 4 else None for n in range(ROWS)],
        [2**64 - 1 - n for n in range(ROWS)],
        [n / 4 for n in range(ROWS)],
        [None if n % 5 == 0 else n % 2 == 0 for n in range(ROWS)],
        [datetime.date(2024, 2, 1 + n % 28) for n in range(ROWS)],
        [decimal.Decimal(n * n - 100).scaleb(-2) for n in range(ROWS)],
        [f"é{n % 3}" for n in range(ROWS)],
        [bytes([n, 0, 255]) for n in range(ROWS)],
        [None] * ROWS,
    ]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def write(path: pathlib.Path) -> None:
    """Make the golden stream (only for a new format: `python tests/streams/test_format.py`)."""
    with stream(path, SCHEMA, 2, event_time="ts", threads=0) as there:
        rows = table()
        there.append(rows.slice(0, 10), 0, producer="p", sequence=4).wait()
        there.append_atomic({0: rows.slice(10, 10), 1: rows.slice(20)})
        there.subscribe("reader", [5, 0])
        there.trim(3)


def test_format_1_is_read(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "s"
    shutil.copytree(GOLDEN, path)
    assert not verify(path).problems
    there = stream(path)
    assert pa.concat_tables([there.to_table(0), there.to_table(1)]).equals(table())
    assert there.begins() == [3, 3]
    assert there.subscriptions() == {"reader": [5, 3]} or there.subscriptions() == {"reader": [5, 0]}
    with there:
        assert there.append(table(), 0, producer="p", sequence=4).wait().duplicate
        assert there.append(table(), 0).wait().first_offset == 20


if __name__ == "__main__":
    shutil.rmtree(GOLDEN, ignore_errors=True)
    write(GOLDEN)
