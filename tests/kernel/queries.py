"""The compiled queries of this folder's tests and their model: plain Python over lists of dicts."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from kedge import graph
from kedge.kernel import Program, compile_graph

SCHEMA = pa.schema(
    [
        ("pad", pa.int64()),
        ("ts", pa.timestamp("us", "UTC")),
        ("k", pa.int32()),
        ("name", pa.string()),
        ("flag", pa.bool_()),
        ("day", pa.date32()),
        ("v", pa.int64()),
        ("f", pa.float64()),
        ("g", pa.float32()),
    ]
)
WIDTH_US = 10
# One query with everything, so that there are few kernels to compile.
QUERY = """
SELECT window(ts, '10 microseconds') AS w, k % 5, name, flag, day, count(*) AS n, count(v) AS vs, sum(v) AS total,
       sum(f) AS fs, avg(k) AS mean, min(v) AS least, max(g) AS most
FROM r WHERE v > -900 OR v IS NULL
GROUP BY window(ts, '10 microseconds'), k % 5, name, flag, day
"""
RESULT = ["w", "(k % 5)", "name", "flag", "day", "n", "vs", "total", "fs", "mean", "least", "most"]


@functools.cache
def program(tasks: int) -> Program:
    return compile_graph(graph.parse(QUERY, {"r": SCHEMA}, {"r": "ts"}), tasks)


def tables(nulls: bool = True, rows_max: int = 40) -> st.SearchStrategy[list[dict[str, Any]]]:
    maybe = (lambda values: values | st.none()) if nulls else (lambda values: values)
    return st.lists(
        st.fixed_dictionaries(
            {
                "pad": st.just(7),
                "ts": maybe(st.integers(-25, 25)),
                "k": maybe(st.integers(-7, 7)),
                "name": maybe(st.sampled_from(["", "a", "b", "ein langer Name", "ein langer Namf", "é"])),
                "flag": maybe(st.booleans()),
                "day": maybe(st.integers(-1, 1)),
                "v": maybe(st.integers(-1000, 1000)),
                "f": maybe(st.integers(-1000, 1000).map(float)),
                "g": maybe(st.sampled_from([0.5, -0.25, math.nan, math.inf])),
            }
        ),
        max_size=rows_max,
    )


def batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    columns = [[row[name] for row in rows] for name in SCHEMA.names]
    arrays = [
        pa.array(values, pa.int32()).view(pa.date32()) if field.name == "day" else pa.array(values, field.type)
        for values, field in zip(columns, SCHEMA, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def pick(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if value is not None]


def model(rows: list[dict[str, Any]]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """(window start, keys ...) -> (n, vs, total, fs, mean, least, most), over rows none of which is late."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        if row["ts"] is None or (row["v"] is not None and row["v"] <= -900):
            continue
        key = None if row["k"] is None else int(math.fmod(row["k"], 5))
        start = row["ts"] - row["ts"] % WIDTH_US
        groups.setdefault((start, key, row["name"], row["flag"], row["day"]), []).append(row)
    out: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for group, members in groups.items():
        v, f, k, g = (pick(row[name] for row in members) for name in "vfkg")
        most = None if not g else "nan" if any(x != x for x in g) else max(g)
        mean = sum(k) / len(k) if k else None
        sums = (sum(v) if v else None, sum(f) if f else None)
        out[group] = (len(members), len(v), *sums, mean, min(v, default=None), most)
    return out


def as_model(result: pa.RecordBatch) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Result rows in the form of `model`; no group may come twice."""
    assert result.schema.names == RESULT
    columns = [result.column(0).field("start").cast(pa.int64()).to_pylist()]
    for name in RESULT[1:]:
        column = result.column(name)
        columns.append((column.view(pa.int32()) if name == "day" else column).to_pylist())
    out: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for row in zip(*columns, strict=True):
        assert row[:5] not in out
        out[row[:5]] = tuple("nan" if value != value else value for value in row[5:])
    return out
