"""Compiled fragments against the model: any split, any number of tasks, nulls, late rows, odd batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from queries import SCHEMA, WIDTH_US, as_model, batch, model, program, tables

from kedge import graph
from kedge.errors import UsageError
from kedge.kernel import compile_graph

NEVER_US = -(1 << 63)


def fragments(rows: list[dict[str, Any]], cuts: list[int], tasks: int) -> list[pa.RecordBatch]:
    ends = sorted({min(cut, len(rows)) for cut in cuts} | {len(rows)})
    starts = [0, *ends[:-1]]
    parts = [rows[start:end] for start, end in zip(starts, ends, strict=True)]
    return [program(tasks).fragment("r", batch(part), NEVER_US).partials for part in parts]


@given(tables() | tables(nulls=False), st.lists(st.integers(0, 40), max_size=4), st.sampled_from([1, 7, 256]))
def test_any_split_and_any_number_of_tasks_give_the_models_result(
    rows: list[dict[str, Any]], cuts: list[int], tasks: int
) -> None:
    merged = program(tasks).combine(fragments(rows, cuts, tasks))
    assert as_model(program(tasks).results(merged)) == model(rows)


@given(tables(), st.integers(-30, 30))
def test_late_rows_are_dropped_and_counted(rows: list[dict[str, Any]], late_us: int) -> None:
    got = program(7).fragment("r", batch(rows), late_us)
    kept = [row for row in rows if row["ts"] is None or row["ts"] - row["ts"] % WIDTH_US + WIDTH_US > late_us]
    late = [row for row in rows if row not in kept and (row["v"] is None or row["v"] > -900)]
    assert as_model(program(7).results(got.partials)) == model(kept)
    assert (got.rows, got.rows_late) == (len(rows), len(late))
    assert got.rows_kept == sum(groups[0] for groups in model(kept).values())


@given(tables())
def test_partials_are_sorted_by_task_pane_and_first_row(rows: list[dict[str, Any]]) -> None:
    partials = program(7).fragment("r", batch(rows), NEVER_US).partials
    places = list(zip(partials.column("task").to_pylist(), partials.column("pane").to_pylist(), strict=True))
    assert places == sorted(places)
    seen = list(model(rows))  # a dict keeps the order of first rows
    order = [seen.index(group) for group in as_model_groups(partials)]
    for place in set(places):
        among = [at for at, one in zip(order, places, strict=True) if one == place]
        assert among == sorted(among)


def as_model_groups(partials: pa.RecordBatch) -> list[tuple[Any, ...]]:
    columns = [partials.column("pane").to_pylist()]
    columns += [partials.column(f"key{at}").to_pylist() for at in range(3)]
    columns.append(partials.column("key3").view(pa.int32()).to_pylist())
    return list(zip(*columns, strict=True))


def test_a_slice_a_wider_batch_and_another_column_order_change_nothing() -> None:
    rng = np.random.default_rng(5)
    rows = [
        {"pad": 0, "ts": int(t), "k": int(t) % 9, "name": "ab"[t % 2], "flag": bool(t % 3), "day": 0, "v": int(t),
         "f": float(t), "g": 1.0}
        for t in rng.integers(-20, 20, 200)
    ]  # fmt: skip
    whole = batch(rows)
    columns = list(reversed(SCHEMA.names))
    turned = whole.slice(13, 150).select(columns)
    got = program(7).fragment("r", turned, NEVER_US).partials
    assert as_model(program(7).results(got)) == model(rows[13:163])
    coded = whole.set_column(3, "name", whole.column("name").dictionary_encode())
    assert (
        program(7)
        .fragment("r", coded, NEVER_US)
        .partials.equals(program(7).fragment("r", whole, NEVER_US).partials)
    )


def test_many_groups_make_the_index_grow() -> None:
    schema = pa.schema([("ts", pa.timestamp("us")), ("k", pa.int64()), ("v", pa.int64())])
    text = "SELECT window(ts, '10 seconds') AS w, k, count(*) AS n, sum(v) AS v FROM s GROUP BY w, k"
    grown = compile_graph(graph.parse(text, {"s": schema}, {"s": "ts"}))
    keys = np.random.default_rng(1).integers(0, 1 << 62, 30_000)
    keys = np.concatenate([keys, keys[::-1]])
    data = pa.record_batch([pa.array(np.zeros(60_000, "M8[us]")), keys, np.ones(60_000, np.int64)], schema=schema)
    got = grown.fragment("s", data, NEVER_US).partials
    assert sorted(got.column("key0").to_pylist()) == sorted(set(keys.tolist()))
    assert set(got.column("cell0").to_pylist()) == {2}


def test_an_overflowing_sum_is_an_error_with_its_place() -> None:
    rows = [{"pad": 0, "ts": 0, "k": 0, "name": "", "flag": True, "day": 0, "v": 2**62, "f": 0.0, "g": 0.0}] * 2
    with pytest.raises(UsageError, match=r"Row 1 of the batch: overflow of sum\(v\)"):
        program(7).fragment("r", batch(rows), NEVER_US)


def test_batches_of_other_types_are_refused() -> None:
    with pytest.raises(UsageError, match="no column 'ts'"):
        program(7).fragment("r", batch([]).drop_columns(["ts"]), NEVER_US)
    wide = batch([]).set_column(2, "k", pa.array([], pa.int64()))
    with pytest.raises(UsageError, match="'k' of the batch is int64"):
        program(7).fragment("r", wide, NEVER_US)
