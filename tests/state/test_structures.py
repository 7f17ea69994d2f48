"""The structures as a user meets them: names, arrays, types, mistakes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import kedge
from kedge.errors import ClosedError, UsageError
from kedge.state import open_store


@pytest.fixture(params=["undo", "redo"])
def store(request, redis_url):
    """In memory, and in log mode on Redis: the two that share least."""
    return open_store("memory:") if request.param == "undo" else open_store(redis_url, scheme="redo")


def test_the_readme_example(redis_url):
    store = kedge.store(redis_url)
    buses = store.set("buses")
    buses.add("b1", "b2")
    buses.discard("b2")
    assert "b1" in buses
    assert len(buses) == 1
    v = store.checkpoint()
    buses.scheme = "redo"
    buses.add("b3")
    v2 = store.checkpoint()
    store.rollback(v)
    assert set(buses) == {"b1"}
    store.forward(v2)
    assert set(buses) == {"b1", "b3"}
    assert set(store.at(v).set("buses")) == {"b1"}
    assert [(change.cell, change.old, change.new) for change in store.changes(v, v2)] == [("b3", None, "b3")]
    assert [(command.verb, command.arguments) for command in store.replay(v, v2)] == [("add", ("b3",))]


@pytest.mark.parametrize(
    "column",
    [
        np.arange(5, dtype=np.int16),
        np.arange(5, dtype=np.uint64),
        pa.array(range(5)),
        pa.chunked_array([[0, 1], [2, 3, 4]]),
        range(5),
        {0, 1, 2, 3, 4},
        iter,
    ],
    ids=["int16", "uint64", "arrow", "chunked", "range", "set", "generator"],
)
def test_arrays_are_members(store, column):
    members = store.set("k")
    members.update(column if column is not iter else (n for n in range(5)))
    assert members.members() == {0, 1, 2, 3, 4}
    assert members.contains([0, 4, 5]).tolist() == [True, True, False]
    members.difference_update(np.array([0, 9]))
    assert len(members) == 4


def test_strings_and_integers_are_different_members(store):
    members = store.set("k")
    members.add(1)
    members.update(pa.array(["1", "x"]))
    members.update(np.array(["y"]))
    assert members.members() == {1, "1", "x", "y"}
    members.discard("1")
    members.update(np.array([2, 3]))
    assert members.members() == {1, "x", "y", 2, 3}
    with pytest.raises(KeyError):
        members.remove("1")
    members.clear()
    assert not members.members()


def test_a_map_reads_like_a_dict(store):
    fares = store.map("fares")
    fares["a"] = 1
    fares.update(["b", "c"], np.array([2.5, 3.5]))
    assert fares["b"] == 2.5
    assert fares.get("x", 7) == 7
    assert fares.get_many(["c", "x"]) == [3.5, None]
    assert fares.pop("c") == 3.5
    assert fares.pop("c", None) is None
    assert fares.incr("a", 4) == 5
    assert sorted(fares.items()) == [("a", 5), ("b", 2.5)]
    del fares["b"]
    for wrong in (lambda: fares["b"], lambda: fares.pop("b"), lambda: fares.__delitem__("b")):
        with pytest.raises(KeyError):
            wrong()
    fares["s"] = "text"
    with pytest.raises(UsageError, match="not a number"):
        fares.incr("s")
    with pytest.raises(UsageError, match="2 fields and 1 values"):
        fares.update(["x", "y"], [1])


def test_a_list_has_two_ends(store):
    stops = store.list("stops")
    stops.extend(["b", "c"])
    stops.appendleft("a")
    stops.append(1)
    assert stops[0] == "a"
    assert stops[-1] == 1
    assert stops[1:3] == ["b", "c"]
    assert stops[::-1] == [1, "c", "b", "a"]
    stops.trim_left(99)
    assert list(stops) == []
    for wrong in (stops.pop, stops.popleft, lambda: stops[0]):
        with pytest.raises(IndexError):
            wrong()
    with pytest.raises(ValueError, match="not in list"):
        stops.remove("x")


def test_a_sorted_set_is_in_order(store):
    delays = store.sorted_set("delays")
    delays.update({"a": 3, "b": -0.0, "c": float("inf")})
    assert delays.range() == [("b", 0.0), ("a", 3.0), ("c", float("inf"))]
    assert delays.range(0, 1, reverse=True) == [("c", float("inf"))]
    assert delays.range_by_score(0, 3) == [("b", 0.0), ("a", 3.0)]
    assert (delays.rank("a"), delays.rank("x"), delays.score("x")) == (1, None, None)
    with pytest.raises(UsageError, match="NaN"):
        delays.add("d", float("nan"))


def test_declared_types_are_kept_and_checked(store):
    ids = store.set("ids", "str")
    ids.add("5", "\0")
    assert ids.members() == {"5", "\0"}
    with pytest.raises(UsageError, match="type 'str'"):
        ids.add(5)
    with pytest.raises(UsageError, match="was created with type"):
        store.set("ids", "int")
    with pytest.raises(UsageError, match="is a set"):
        store.map("ids")
    with pytest.raises(UsageError, match="no type"):
        store.set("other", "date")
    with pytest.raises(UsageError, match="can't name"):
        store.set(":x")
    with pytest.raises(UsageError, match="no scheme"):
        ids.scheme = "fast"
    with pytest.raises(UsageError, match="one value"):
        ids.update("ab")


def test_moves_that_do_not_exist_are_said(store):
    members = store.set("k")
    members.add(1)
    first = store.checkpoint()
    members.add(2)
    second = store.checkpoint()
    with pytest.raises(UsageError, match="no version 9"):
        store.rollback(9)
    store.rollback(first)
    with pytest.raises(UsageError, match=r"use forward\(2\)"):
        store.rollback(second)
    snapshot = store.at(second).set("k")
    assert snapshot.members() == {1, 2}
    members.add(3)
    with pytest.raises(UsageError, match="no version 2"):
        store.forward(second)
    with pytest.raises(UsageError, match="no version 2"):
        snapshot.members()
    store.close()
    with pytest.raises(ClosedError):
        store.checkpoint()


def test_a_change_that_changes_nothing_does_not_diverge(store):
    members = store.set("k")
    members.add(1)
    first = store.checkpoint()
    members.add("x")
    second = store.checkpoint()
    store.rollback(first)
    members.add(1)
    members.discard("never there")
    assert store.forward(second) == second
    assert members.members() == {1, "x"}


def test_versions_are_kept_by_count_age_and_bytes(store):
    members = store.set("k")
    for number in range(6):
        members.update(range(number * 100, number * 100 + 100))
        store.checkpoint()
    sizes = [version.bytes for version in store.versions()]
    assert store.compact(count=4) == [3, 4, 5, 6]
    assert store.compact([3, 6]) == [3, 6]
    assert len(list(store.changes(3, 6))) == 300
    store.rollback(3)
    assert len(members) == 300
    assert store.compact(age_seconds=0) == [3]
    store.retain(count=2)
    for number in range(3):
        members.add(f"m{number}")
        store.checkpoint()
    assert len(store.versions()) == 2
    assert min(sizes[1:]) > 0
    assert store.compact(bytes=0) == [store.version]


def test_raw_commands_come_in_order_and_can_be_made_elsewhere(redis_url):
    store, elsewhere = open_store(redis_url, scheme="command"), open_store("memory:")
    buses, stops, rides = store.set("buses"), store.list("stops"), store.counter("rides")
    buses.add("b1", "b1")
    buses.update(np.array([3, 3, 1]))
    stops.extend(["x", "y"])
    stops.popleft()
    rides.incr(2)
    buses.discard("b1")
    store.checkpoint()
    commands = list(store.replay(0, 1, raw=True))
    assert [(command.verb, command.arguments) for command in commands] == [
        ("add", ("b1", "b1")),
        ("add", (3, 3, 1)),
        ("extend", (["x", "y"],)),
        ("trim_left", (1,)),
        ("incr", (2,)),
        ("discard", ("b1",)),
    ]
    for command in commands:
        command.apply(elsewhere)
    assert elsewhere.set("buses").members() == buses.members() == {1, 3}
    assert elsewhere.list("stops").to_list() == ["y"]
    with pytest.raises(UsageError, match="forwards only"):
        store.replay(1, 0, raw=True)


def test_threads_share_a_store(store):
    import threading

    counter, members = store.counter("c"), store.set("k")

    def work(start):
        for at in range(50):
            counter.incr()
            members.add(start + at)

    threads = [threading.Thread(target=work, args=(start,)) for start in (0, 1_000, 2_000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.value == len(members) == 150
