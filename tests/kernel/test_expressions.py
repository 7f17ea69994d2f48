"""Generated code against Python functions: the source is run as it is, without Numba, so thousands can be tried."""

from __future__ import annotations

import math
import re
import threading
import warnings
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows_and_sql import AnsiError, Pair, conditions, numbers, rows

from kedge import graph
from kedge.errors import UsageError
from kedge.kernel import compile_graph
from kedge.kernel.program import Program, _Kernel
from kedge.kernel.source import fragment_source

SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", "UTC")),
        ("h", pa.int16()),
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("d", pa.float64()),
        ("t", pa.bool_()),
        ("s", pa.string()),
    ]
)


class Interpreted:
    """Stands in for a compiled kernel of a program."""

    def __init__(self, program: Program, nulls: bool) -> None:
        self.kernel = _Kernel.__new__(_Kernel)
        self.kernel.source = fragment_source(program.graph, program.layout, nulls=nulls)
        text = re.sub(r"from kedge.jit import jit\n", "", self.kernel.source.text).replace("@jit\n", "")
        space: dict[str, Any] = {}
        exec(compile(text, "<kernel>", "exec"), space)
        self.kernel.function = space["fragment"]
        self.kernel.local = threading.local()


def run(query: str, table: list[dict[str, Any]]) -> pa.RecordBatch:
    program = compile_graph(graph.parse(query, {"r": SCHEMA}, {"r": "ts"}), tasks=4)
    program._kernels = {nulls: Interpreted(program, nulls).kernel for nulls in (False, True)}
    batch = pa.RecordBatch.from_pylist([{"ts": 5, **row} for row in table], schema=SCHEMA)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return program.fragment("r", batch, -(1 << 63)).partials


@given(rows(nulls=True) | rows(nulls=False), conditions(2))
def test_a_filter_keeps_what_the_function_says(table: list[dict[str, Any]], where: Pair) -> None:
    query = f"SELECT count(*) FROM r WHERE {where.sql} GROUP BY window(ts, '1 second')"
    try:
        expected = sum(where.value(row) is True for row in table)
    except AnsiError:
        with pytest.raises(UsageError, match=r"division by zero|overflow"):
            run(query, table)
        return
    got = run(query, table)
    assert (got.column("cell0")[0].as_py() if got.num_rows else 0) == expected


@given(rows(nulls=True) | rows(nulls=False), numbers(2))
def test_min_and_count_see_the_value_that_the_function_gives(table: list[dict[str, Any]], what: Pair) -> None:
    query = f"SELECT count({what.sql}) AS n, min({what.sql}) AS m FROM r GROUP BY window(ts, '1 second')"
    try:
        values = [what.value(row) for row in table]
    except AnsiError:
        with pytest.raises(UsageError, match=r"division by zero|overflow"):
            run(query, table)
        return
    seen = [value for value in values if value is not None]
    got = run(query, table).to_pylist()[0]
    assert got["cell0"] == len(seen)
    numbers_only = [value for value in seen if value == value]
    expected = min(numbers_only) if numbers_only else (math.nan if seen else None)
    assert got["cell1"] == expected or (expected != expected and got["cell1"] != got["cell1"])


@given(rows(nulls=True), st.lists(numbers(1), min_size=1, max_size=3))
def test_keys_separate_rows_with_different_values(table: list[dict[str, Any]], given_keys: list[Pair]) -> None:
    # A bare number in GROUP BY is a position.
    keys = [key for key in given_keys if key.type != "d" and re.search("[a-z]", key.sql)]
    keys.append(Pair("s", "s", lambda row: row["s"]))
    query = f"SELECT count(*) FROM r GROUP BY window(ts, '1 second'), {', '.join(key.sql for key in keys)}"
    try:
        counts = Counter(tuple(key.value(row) for key in keys) for row in table)
    except AnsiError:
        with pytest.raises(UsageError, match=r"division by zero|overflow"):
            run(query, table)
        return
    partials = run(query, table)
    last = max(name for name in partials.schema.names if name.startswith("key"))  # a key given twice is one
    got = partials.to_pylist()
    assert sorted(row["cell0"] for row in got) == sorted(counts.values())
    assert {row[last] for row in got} == {row["s"] for row in table}
