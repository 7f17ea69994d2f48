"""The names of Python's own collections mean the same here: each call beside the plain object it is named after."""

from __future__ import annotations

import pathlib

import numpy as np
import pyarrow as pa
import pytest

import kedge
from kedge.errors import ClosedError, CorruptError, UsageError
from kedge.state import open_store


@pytest.fixture(params=["memory", "redis undo", "redis redo", "redis command", "redis full"])
def store(request):
    """Every way in which a structure can be kept."""
    if request.param == "memory":
        return open_store("memory:")
    return open_store(request.getfixturevalue("redis_url"), scheme=request.param.split()[1])


class Foreign:
    """A column of another library, such as a pandas Series."""

    def __init__(self, *values):
        self._values = np.array(values)

    def __array__(self, dtype=None, copy=None):
        return self._values

    def tolist(self):
        return self._values.tolist()


@pytest.mark.parametrize(
    "members",
    [
        Foreign(1, 2),
        Foreign("a", "z"),
        [1, 2, 5],
        ["a", "b"],
        np.array([1, 5]),
        np.array(["a", "x"]),
        pa.array([2, 7]),
        (1, 2),
        {1, 9},
        range(3),
    ],
    ids=["foreign", "foreign texts", "list", "texts", "numpy", "numpy texts", "arrow", "tuple", "set", "range"],
)
def test_add_and_discard_take_one_array_as_readily_as_members(store, members):
    ours = store.set("s")
    ours.add(members)
    plain = set(members.tolist() if hasattr(members, "tolist") else members)
    assert ours == plain
    ours.add("more", 77)
    ours.discard(members)
    assert ours.members() == {"more", 77}


def test_a_set_is_a_set(store):
    ours, plain = store.set("s"), {1, 2, "x"}
    ours |= {1, 2}
    ours.update(["x"], (1,))
    assert ours == plain
    assert plain == ours
    assert ours != {1}
    for other in ({1, 2}, {1, 2, "x", 4}, set(), {"x", 9}):
        found = ours & other, ours | other, ours - other, ours ^ other, other - ours
        assert found == (plain & other, plain | other, plain - other, plain ^ other, other - plain)
        assert (ours <= other, ours >= other, ours < other) == (plain <= other, plain >= other, plain < other)
        assert ours.union(other) == plain | other
        assert ours.intersection(other) == plain & other
        assert ours.difference(other) == plain - other
        assert ours.symmetric_difference(other) == plain ^ other
        assert ours.issubset(other) == plain.issubset(other)
        assert ours.issuperset(other) == plain.issuperset(other)
        assert ours.isdisjoint(other) == plain.isdisjoint(other)
    same = store.set("s")
    ours &= [1, "x", 8]
    ours ^= {1, 9}
    ours -= ["nothing"]
    assert same == {"x", 9}
    assert {ours.pop(), ours.pop()} == {"x", 9}
    with pytest.raises(KeyError):
        ours.pop()
    assert None not in ours
    assert [1] not in ours
    with pytest.raises(TypeError, match="unhashable"):
        hash(ours)


def test_a_map_is_a_dict(store):
    ours, plain = store.map("m"), {"a": 1, "b": 2.5, "c": "x"}
    ours.update({"a": 1}, b=2.5)
    ours |= [("c", "x")]
    assert ours == plain
    assert plain == ours
    assert dict(ours) == plain
    assert ours.keys() == plain.keys()
    assert set(ours.items()) == set(plain.items())
    assert sorted(ours.values(), key=str) == sorted(plain.values(), key=str)
    assert len(ours.items()) == 3
    assert ("a", 1) in ours.items()
    assert ours.setdefault("a", 7) == 1
    assert ours.setdefault("d", 7) == 7
    ours["a"] += 4
    assert ours.get_many(["a", "d", "e"]) == [5, 7, None]
    assert None not in ours
    other = store.map("other")
    other.update(ours)
    assert other == ours
    while other:
        field, value = other.popitem()
        assert ours[field] == value
    with pytest.raises(KeyError):
        other.popitem()
    for wrong in ("ab", [1, 2], np.arange(3), 5, {"a": None}, [("a", [1])]):
        with pytest.raises(UsageError):
            ours.update(wrong)
    with pytest.raises(UsageError, match="not a number"):
        ours.incr("a", "1")


def test_a_counter_is_a_number(store):
    ours = store.counter("c")
    ours += 5
    ours -= 2
    assert ours == 3
    assert 2 < ours <= 3
    assert [10, 11, 12, 13][ours] == 13
    assert ours.incr(np.int32(4)) == 7
    assert ours.decr() == 6
    ours.clear()
    assert not ours
    assert int(store.counter("c")) == 0
    for wrong in (1.5, "1", True, None):
        with pytest.raises(UsageError):
            ours.incr(wrong)
    with pytest.raises(TypeError, match="len"):
        len(ours)


def test_a_list_is_a_list(store):
    ours, plain = store.list("l"), list(range(10))
    ours += range(10)
    assert ours == plain

    def both(change):
        change(ours)
        change(plain)
        assert ours == plain
        assert list(reversed(ours)) == plain[::-1]

    both(lambda one: one.pop(3))
    both(lambda one: one.pop(0))
    both(lambda one: one.pop())
    both(lambda one: one.__delitem__(1))
    both(lambda one: one.__delitem__(-1))
    both(lambda one: one.insert(2, "x"))
    both(lambda one: one.insert(-1, "y"))
    both(lambda one: one.__setitem__(slice(1, 3), ["p", "q", "r"]))
    both(lambda one: one.__setitem__(slice(4, 4), []))
    both(lambda one: one.__setitem__(slice(0, 4, 2), ["e", "f"]))
    both(lambda one: one.__delitem__(slice(1, 3)))
    both(lambda one: one.__delitem__(slice(None, None, 2)))
    both(lambda one: one.reverse())
    both(lambda one: one.extend(one[:2]))
    both(lambda one: one.remove(one[1]))
    both(lambda one: one.__delitem__(slice(-1, None)))
    assert [ours.index(one) for one in plain] == [plain.index(one) for one in plain]
    assert [ours.count(one) for one in plain] == [plain.count(one) for one in plain]
    assert plain[0] in ours
    assert None not in ours
    for wrong in (99, -99):
        with pytest.raises(IndexError):
            ours.pop(wrong)
    with pytest.raises(UsageError, match="position"):
        ours["a"]
    version = store.checkpoint()
    both(lambda one: one.__delitem__(slice(None)))
    store.rollback(version)
    assert ours == store.at(version).list("l")


def test_a_sorted_set_is_a_map_in_order(store):
    ours = store.sorted_set("z")
    ours.add("a", 3)
    ours.add({"b": 1, "c": 2.5})
    ours["d"] = 0
    ours.update([("e", 9)])
    assert list(ours) == ["d", "b", "c", "a", "e"]
    assert ours == {"a": 3.0, "b": 1.0, "c": 2.5, "d": 0.0, "e": 9.0}
    assert next(iter(ours.items())) == ("d", 0.0)
    assert ours["c"] == 2.5
    assert ours.pop_min() == ("d", 0.0)
    assert ours.pop_max() == ("e", 9.0)
    assert ours.pop("a") == 3.0
    ours.remove("b")
    assert ours.incr("c", 1) == 3.5
    del ours["c"]
    assert not ours
    for wrong in (lambda: ours.remove("b"), ours.pop_min, lambda: ours["b"]):
        with pytest.raises(KeyError):
            wrong()
    for wrong in ("high", None, float("nan")):
        with pytest.raises(UsageError):
            ours.update({"a": wrong})


def test_raw_calls_of_a_list_can_be_made_again(redis_url):
    store, elsewhere = open_store(redis_url, scheme="command"), open_store("memory:")
    stops = store.list("stops")
    stops.extend(["a", "b", "c", "d", "e", "f"])
    stops.remove("c")
    stops.insert(1, "x")
    stops[2:4] = ["p", "q", "r"]
    stops.reverse()
    stops.clear()
    stops.append("z")
    version = store.checkpoint()
    for command in store.replay(0, version, raw=True):
        command.apply(elsewhere)
    assert elsewhere.list("stops") == stops
    assert str(store.replay(0, version, raw=True)[1]) == "stops.remove('c')"


def test_raw_calls_that_were_not_kept_are_said(store):
    buses, stops = store.set("buses"), store.list("stops")
    buses.scheme = stops.scheme = "command"
    first = store.checkpoint()
    buses.add("a", "b")
    stops.append("x")
    second = store.checkpoint()
    stops.scheme = "undo"
    third = store.checkpoint()
    stops.append("y")
    fourth = store.checkpoint()
    assert len(store.replay(first, third, raw=True)) == 2
    with pytest.raises(UsageError, match="'stops' in version 4 were not all kept"):
        store.replay(second, fourth, raw=True)
    assert store.replay(second, fourth, raw=True, structure="buses") == []
    assert [change.new for change in store.changes(first, fourth, structure="stops")] == ["x", "y"]
    with pytest.raises(UsageError, match="no structure 'nope'"):
        store.changes(first, fourth, structure="nope")


def test_switch_is_for_all_structures(store):
    store.set("s").add(1)
    store.map("m")["a"] = 1
    store.switch("redo")
    assert [spec.scheme for spec in store.structures().values()] == ["redo", "redo"]
    assert store.list("later").scheme == "redo"
    with pytest.raises(UsageError, match="no scheme"):
        store.switch("fast")
    with pytest.raises(UsageError, match="no scheme"):
        store.set("s", scheme="fast")


def test_a_closed_store_answers_nothing(store):
    s, c, lst = store.set("s"), store.counter("c"), store.list("l")
    s.add(1)
    version = store.checkpoint()
    snapshot = store.at(version)
    view = snapshot.set("s")
    store.close()
    store.close()
    for call in (
        lambda: s.add(2),
        lambda: 1 in s,
        lambda: len(s),
        lambda: c.value,
        lambda: lst.append(1),
        lambda: list(view),
        lambda: snapshot.set("s"),
        lambda: store.set("s"),
        store.versions,
        store.rollback,
        store.structures,
        lambda: setattr(s, "scheme", "redo"),
    ):
        with pytest.raises(ClosedError, match="closed"):
            call()
    assert "closed" in repr(store)
    assert "closed" in store._repr_html_()


def test_a_notebook_shows_structures_and_versions(store):
    store.set("<b>").add("<i>", 2)
    store.counter("rides").incr(7)
    store.checkpoint(key="q#1")
    shown = store._repr_html_()
    assert "&lt;b&gt;" in shown
    assert "q#1" in shown
    assert ">7<" in shown
    assert "&lt;i&gt;" in store.set("<b>")._repr_html_()
    assert ">7<" in store.counter("rides")._repr_html_()
    store.map("m").update({"f": 2})
    assert "<td>f</td><td>2</td>" in store.at(store.checkpoint()).map("m")._repr_html_()


def test_places_that_cannot_be_a_store_are_said(tmp_path):
    for wrong in ("", None, 7, "http://x", "redis://localhost:port/0"):
        with pytest.raises(UsageError):
            kedge.store(wrong)
    with pytest.raises(kedge.UnavailableError, match="server running"):
        kedge.store("redis://127.0.0.1:1/0")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is a file"):
        kedge.store(tmp_path / "file")
    with kedge.store(pathlib.Path(tmp_path / "dir")) as store:
        store.set("s").add(1)
        store.checkpoint()
    assert (tmp_path / "dir").is_dir()
    with pytest.raises(UsageError, match="less than 0"):
        kedge.store(tmp_path / "dir").compact(count=-1)
    for wrong in ("x", [1], None):
        with pytest.raises(UsageError):
            kedge.store("memory:").at(wrong)


def test_a_password_is_not_shown(redis_socket):
    from kedge.state.opening import _without_password

    assert _without_password("redis://:secret@host:1/0") == "redis://:***@host:1/0"
    assert _without_password("redis://me:secret@host/0?name=x") == "redis://me:***@host/0?name=x"
    assert _without_password("redis://host:6379/0") == "redis://host:6379/0"


def test_a_key_that_somebody_else_overwrote_is_said(redis_url, redis_socket):
    import redis

    store = open_store(redis_url)
    store.map("m")["a"] = 1
    redis.Redis(unix_socket_path=redis_socket).set(f"{redis_url.rpartition('=')[2]}:m", "theirs")
    again = open_store(redis_url)
    with pytest.raises(CorruptError, match="another kind of value"):
        again.map("m").get("b")
