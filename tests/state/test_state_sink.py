"""Batches that come again, die half-way or go back: each is one version, once."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kedge.errors import ConflictError, UsageError
from kedge.state import open_store
from kedge.state.sink import into_counter, into_map, into_set


def table(*ids):
    return pa.table({"id": pa.array(ids, pa.int64()), "fare": pa.array([float(i) for i in ids])})


@pytest.fixture(params=["memory", "directory", "redis"])
def store(request, tmp_path):
    if request.param == "memory":
        return open_store("memory:")
    if request.param == "directory":
        return open_store(str(tmp_path / "store"))
    return open_store(request.getfixturevalue("redis_url"))


def test_a_batch_is_applied_once(store):
    sink = store.sink(into_counter("rides"), query="q")
    assert [sink(table(1, 2), 0), sink(table(3), 1), sink(table(3), 1)] == [1, 2, 2]
    assert store.counter("rides").value == 3
    assert sink.applied() == {0: 1, 1: 2}


def test_a_batch_that_died_half_way_is_undone_and_made_again(store):
    broken = [True]

    def apply(at, rows):
        at.set("ids").update(rows.column("id"))
        if broken[0]:
            raise RuntimeError("the executor is gone")
        at.counter("rides").incr(rows.num_rows)

    sink = store.sink(apply, query="q")
    with pytest.raises(RuntimeError):
        sink(table(1, 2), 0)
    broken[0] = False
    sink(table(2, 3), 0)  # the source gave other rows the second time
    assert set(store.set("ids")) == {2, 3}
    assert store.counter("rides").value == 2


def test_a_rewound_query_rolls_the_store_back(store):
    sink = store.sink(into_map("fares", "id", "fare"), query="q")
    for batch in range(4):
        sink(table(batch), batch)
    sink(table(20), 2)
    assert set(store.map("fares").keys()) == {0, 1, 20}
    sink(table(30), 3)
    assert set(store.map("fares").keys()) == {0, 1, 20, 30}
    assert list(sink.applied()) == [0, 1, 2, 3]


def test_two_queries_share_a_store(store):
    ids, rides = store.sink(into_set("ids", "id"), query="ids"), store.sink(into_counter("rides"), query="rides")
    for batch in range(3):
        ids(table(batch, batch + 10), batch)
        rides(table(batch, batch + 10), batch)
    assert set(store.set("ids")) == {0, 1, 2, 10, 11, 12}
    assert store.counter("rides").value == 6
    rides(table(5), 2)  # only a repeat
    assert store.counter("rides").value == 6
    with pytest.raises(ConflictError, match="rides#0"):
        ids(table(9), 0)  # would take the other query's work back
    assert store.counter("rides").value == 6


def test_reopening_keeps_what_was_applied(tmp_path):
    url = str(tmp_path / "store")
    open_store(url).sink(into_counter("rides"), query="q")(table(1, 2), 7)
    again = open_store(url)
    again.sink(into_counter("rides"), query="q")(table(1, 2), 7)
    assert again.counter("rides").value == 2
    with pytest.raises(UsageError):
        again.sink(into_counter("rides"), query="a#b")


def test_going_back_further_than_versions_are_kept_is_refused(store):
    sink = store.sink(into_counter("rides"), query="q")
    for batch in range(3):
        sink(table(1), batch)
    store.compact(count=1)
    with pytest.raises(ConflictError, match="further"):
        sink(table(1), 1)
