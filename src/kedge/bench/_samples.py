"""The streams of the application queries as Arrow tables: four samples of real data, three generated streams.

A sample has a true length. To have more rows, blocks of 256 neighbouring rows are drawn with a seed: keys, values
and their local order stay those of the file. Time and the equipment's message counter go on from block to block at
the pace of the file. A file is only 64 blocks, so a compressor with a window of 64 KiB, like LZ4, still finds most
blocks of a drawn column again: ratios are to be taken from the true length.
"""

from __future__ import annotations

import lzma
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kedge.errors import UsageError

SAMPLES = ("cluster", "grid", "road", "equipment")
GENERATED = ("events", "bids")
DRAW_ROWS = 256
SECOND_US = 1_000_000

_TIME = pa.timestamp("us", "UTC")
_LONG, _INT, _FLOAT = pa.int64(), pa.int32(), pa.float32()
_FILES = {"cluster": "cluster", "grid": "smart-grid", "road": "linear-road", "equipment": "manufacturing"}
_COUNTERS = {"ts", "message_index"}  # grow along the stream


def _schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema([("ts", _TIME), *columns.items()])


def _all(kind: pa.DataType, names: str) -> dict[str, pa.DataType]:
    return dict.fromkeys(names.split(), kind)


SCHEMAS = {
    "cluster": _schema(
        **_all(_LONG, "job_id task_id machine_id"),
        **_all(_INT, "event_type user_id category priority"),
        **_all(_FLOAT, "cpu ram disk"),
        constraints=_INT,
    ),
    "grid": _schema(value=_FLOAT, **_all(_INT, "property plug household house pad")),
    "road": _schema(vehicle=_INT, speed=_FLOAT, **_all(_INT, "highway lane direction position")),
    "equipment": _schema(
        message_index=_LONG, **_all(_INT, "mf01 mf02 mf03 pc13 pc14 pc15 pc25 pc26 pc27 res bm05 bm06")
    ),
    "events": _schema(
        **_all(_LONG, "pad0 user_id page_id ad_id ad_type event_type ip_address"),
        **_all(_LONG, " ".join(f"pad{k}" for k in range(1, 9))),
    ),
    "bids": _schema(
        **_all(_LONG, "auction item description price reserve expires seller category"),
        **_all(_LONG, " ".join(f"pad{k}" for k in range(7))),
    ),
}


def row_bytes(name: str) -> int:
    """Bytes of a row: 32, 64 or 128."""
    return sum(kind.bit_width // 8 for kind in SCHEMAS[name].types)


@cache
def sample(name: str) -> pa.Table:
    """A sample at its true length."""
    if name not in SAMPLES:
        raise UsageError(f"There is no sample {name!r}. There are: {', '.join(SAMPLES)}.")
    packed = resources.files("kedge.bench").joinpath("data", f"{_FILES[name]}.txt.xz").read_bytes()
    lines = lzma.decompress(packed).decode("ascii").splitlines()
    columns = np.array([line.split() for line in lines]).T
    schema = SCHEMAS[name]
    arrays = [_parse(column, kind) for column, kind in zip(columns, schema.types, strict=False)]
    arrays += [np.zeros(len(lines), np.int32)] * (len(schema) - len(columns))  # the grid's pad
    return pa.table(
        [pa.array(array, kind) for array, kind in zip(arrays, schema.types, strict=True)], schema=schema
    )


def _parse(texts: NDArray[Any], kind: pa.DataType) -> NDArray[Any]:
    if kind != _TIME:
        return texts.astype(kind.to_pandas_dtype())
    if "T" in texts[0]:
        return texts.astype("U26").astype("M8[us]")
    return (texts.astype(np.int64) * SECOND_US).view("M8[us]")


def table(name: str, rows: int, seed: int = 0) -> pa.Table:
    """A stream of so many rows: a sample extended by drawing blocks, or a generated one."""
    if name == "events":
        return events(rows, seed)
    if name == "bids":
        return bids(rows, seed)
    return _draw(sample(name), rows, np.random.default_rng(seed))


def _draw(source: pa.Table, rows: int, rng: np.random.Generator) -> pa.Table:
    whole = source.num_rows // DRAW_ROWS
    starts = rng.integers(0, whole - 1, -(-rows // DRAW_ROWS)) * DRAW_ROWS  # the last block has no successor
    index = (starts[:, None] + np.arange(DRAW_ROWS)).ravel()[:rows]
    arrays: list[pa.Array] = []
    for column, kind in zip(source.columns, source.schema, strict=True):
        values = column.to_numpy()
        taken = values[index]
        if kind.name in _COUNTERS:
            numbers = values.view(np.int64)
            spans = numbers[starts + DRAW_ROWS] - numbers[starts]
            shift = numbers[0] + np.cumsum(spans) - spans - numbers[starts]
            taken = (taken.view(np.int64) + np.repeat(shift, DRAW_ROWS)[:rows]).view(values.dtype)
        arrays.append(pa.array(taken, kind.type))
    return pa.table(arrays, schema=source.schema)


def events(rows: int, seed: int = 0, start: int = 0) -> pa.Table:
    """Advertisement events: 1,000 a second, 1,000 advertisements in turn; unused columns are zero."""
    rng = np.random.default_rng((seed, start))
    at = np.arange(start, start + rows)
    zero = np.zeros(rows, np.int64)
    columns = {
        "ts": (at // 1000 * SECOND_US).view("M8[us]"),
        "user_id": rng.integers(0, 100_000, rows),
        "page_id": rng.integers(0, 1000, rows),
        "ad_id": at % 1000,
        "ad_type": at % 5,
        "event_type": at % 3,
        "ip_address": rng.integers(0, 1 << 32, rows),
    }
    return _fill("events", columns, zero)


def campaigns() -> pa.Table:
    """1,000 advertisements in 100 campaigns."""
    ads = np.arange(1000)
    return pa.table({"ad_id": ads, "campaign_id": ads // 10})


def bids(rows: int, seed: int = 0, start: int = 0) -> pa.Table:
    """Auction bids: 1,000 a second, half of them on a hot auction that moves on; unused columns are zero."""
    rng = np.random.default_rng((seed, start))
    at = np.arange(start, start + rows)
    last = 1002 + 3 * (at // 50)
    zero = np.zeros(rows, np.int64)
    columns = {
        "ts": ((1 + at // 1000) * SECOND_US).view("M8[us]"),
        "auction": np.where(at % 2 == 0, last // 100 * 100, last - at * 7919 % 100),
        "item": rng.integers(0, 10_000, rows),
        "description": rng.integers(0, 10_000, rows),
        "price": rng.integers(1, 10_000_000, rows),
        "reserve": rng.integers(1, 10_000_000, rows),
        "expires": rng.integers(1, 1_000_000, rows),
        "seller": rng.integers(0, 100_000, rows),
        "category": rng.integers(0, 10, rows),
    }
    return _fill("bids", columns, zero)


def _fill(name: str, columns: dict[str, NDArray[Any]], zero: NDArray[np.int64]) -> pa.Table:
    schema = SCHEMAS[name]
    return pa.table([pa.array(columns.get(field.name, zero), field.type) for field in schema], schema=schema)
