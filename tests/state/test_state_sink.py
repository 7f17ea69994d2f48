"""Batches that come again, die half-way or go back: each is one version, once."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kedge.errors import ConflictError, UsageError
from kedge.state import into_counter, into_list, into_map, into_set, into_sorted_set, open_store


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
    assert store.map("sink-batches").to_dict() == {"ids": 2, "rides": 2}


@pytest.mark.parametrize("scheme", ["undo", "redo", "command", "full"])
def test_one_of_two_queries_is_rewound_and_the_other_keeps_its_work(store, scheme):
    store.switch(scheme)
    ids, fares = (
        store.sink(into_set("ids", "id"), query="ids"),
        store.sink(into_map("fares", "id", "fare"), query="f"),
    )
    count = store.sink(into_counter("rides"), query="count")
    more = store.sink(lambda at, rows: at.counter("rides").incr(10 * rows.num_rows), query="more")
    for batch in range(4):
        for sink in (ids, fares, count, more):
            sink(table(batch, batch + 10), batch)
    ids(table(99), 1)  # batches 1, 2 and 3 are taken back
    assert store.set("ids") == {0, 10, 99}
    assert store.map("fares").keys() == {0, 10, 1, 11, 2, 12, 3, 13}
    assert list(ids.applied()) == [0, 1]
    count(table(5), 2)
    assert store.counter("rides").value == 2 * 2 + 1 + 80
    ids(table(98), 2)
    ids(table(97), 2)  # a repeat
    ids(table(96), 3)
    ids(table(95), 2)
    assert store.set("ids") == {0, 10, 99, 95}
    fares(table(50), 0)
    assert store.map("fares") == {50: 50.0}
    assert store.set("ids") == {0, 10, 99, 95}


def test_a_rewind_that_would_take_another_querys_work_is_refused(store):
    one, other = store.sink(into_set("ids", "id"), query="one"), store.sink(into_set("ids", "id"), query="other")
    one(table(1), 0)
    one(table(2), 1)
    other(table(3), 0)
    with pytest.raises(ConflictError, match="others have changed ids"):
        one(table(9), 0)
    assert store.set("ids") == {1, 2, 3}
    assert one.applied() == {0: 1, 1: 2}


def test_a_repeat_is_known_after_its_version_was_dropped(store):
    rare, often = store.sink(into_counter("rare"), query="rare"), store.sink(into_counter("often"), query="often")
    store.retain(count=3)
    rare(table(1), 0)
    for batch in range(6):
        often(table(1), batch)
    rare(table(1), 0)
    assert store.counter("rare").value == 1
    with pytest.raises(ConflictError, match="further"):
        often(table(1), 1)
    assert store.counter("often").value == 6


def test_every_structure_can_be_written(store):
    store.sink(into_list("stops", "id"), query="l")(table(1, 2, 1), 0)
    store.sink(into_sorted_set("delays", "id", "fare"), query="z")(table(4, 3), 0)
    assert store.list("stops") == [1, 2, 1]
    assert list(store.sorted_set("delays").items()) == [(3, 3.0), (4, 4.0)]


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
