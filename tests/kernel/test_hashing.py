"""The task of a key is a format: an independent implementation from its description, and golden values."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kedge import graph
from kedge.kernel import Program, compile_graph

ALL = (1 << 64) - 1
SEED = 0x9E3779B97F4A7C15
NULL = 0x2545F4914F6CDD1D
SCHEMA = pa.schema([("ts", pa.timestamp("us")), ("k", pa.int64()), ("name", pa.string())])


def mix(h: int) -> int:
    h = (h ^ (h >> 30)) * 0xBF58476D1CE4E5B9 & ALL
    h = (h ^ (h >> 27)) * 0x94D049BB133111EB & ALL
    return h ^ (h >> 31)


def text_hash(text: str) -> int:
    data, h = text.encode(), SEED
    for at in range(0, len(data), 8):
        h = mix(h ^ struct.unpack("<Q", data[at : at + 8].ljust(8, b"\0"))[0])
    return mix(h ^ len(data))


def task_of(keys: list[Any], tasks: int) -> int:
    h = SEED
    for key in keys:
        word = NULL if key is None else text_hash(key) if isinstance(key, str) else key & ALL
        h = mix(h ^ word)
    return (h >> 1) % tasks


def compiled(keys: str, tasks: int) -> Program:
    text = f"SELECT count(*) FROM s GROUP BY window(ts, '1 second'), {keys}"
    return compile_graph(graph.parse(text, {"s": SCHEMA}, {"s": "ts"}), tasks)


PROGRAMS = {tasks: compiled("k, name", tasks) for tasks in (1, 10, 256)}
NUMBERS = compiled("k", 256)
keys = st.tuples(st.integers(-(2**63), 2**63 - 1) | st.none(), st.text(max_size=20) | st.none())


def tasks_by(program: Program, rows: list[tuple[Any, ...]]) -> list[tuple[int, list[Any]]]:
    batch = pa.RecordBatch.from_pylist([{"ts": 0, "k": k, "name": name} for k, name in rows], schema=SCHEMA)
    partials = program.fragment("s", batch, -(1 << 63)).partials
    names = [name for name in partials.schema.names if name.startswith("key")]
    return [(row["task"], [row[name] for name in names]) for row in partials.to_pylist()]


@given(st.lists(keys, min_size=1, max_size=10), st.sampled_from([1, 10, 256]))
def test_tasks_follow_the_description(rows: list[tuple[Any, ...]], tasks: int) -> None:
    for task, found in tasks_by(PROGRAMS[tasks], rows):
        assert task == task_of(found, tasks)
    for task, found in tasks_by(NUMBERS, rows):
        assert task == task_of(found, 256)


def test_golden_tasks_never_change() -> None:
    rows = [(0, ""), (1, "a"), (-1, "Kedge"), (None, None), (1 << 40, "longer than one word")]
    assert [task_of(list(row), 256) for row in rows] == GOLDEN
    assert sorted(task for task, _ in tasks_by(PROGRAMS[256], rows)) == sorted(GOLDEN)


GOLDEN = [0, 19, 148, 244, 111]
