"""The paper's algorithms as printed (papers/dsic.txt), where they go wrong, and the store on the same history.

`Printed` is algorithms 1-7 with sets in place of Redis keys; it shares nothing with the store.
"""

from __future__ import annotations

import random

import pytest

from kedge.state import open_store


class Printed:
    """DSIC-redo (algorithms 4-7) and DSIC-undo (algorithms 1-3) over the same commands, as printed."""

    def __init__(self, members: set[int]) -> None:
        self.redo_base, self.undo_base = set(members), set(members)
        self.redo: list[tuple[set[int], set[int]]] = [(set(), set())]
        self.undo: list[tuple[set[int], set[int]]] = [(set(), set())]

    def add(self, member: int) -> None:
        added, removed = self.redo[-1]  # algorithm 4
        removed.discard(member)
        added.add(member)
        if member not in self.undo_base:  # algorithm 1
            self.undo_base.add(member)
            added, removed = self.undo[-1]
            if member in removed:
                removed.discard(member)
            else:
                added.add(member)

    def remove(self, member: int) -> None:
        added, removed = self.redo[-1]  # algorithm 5
        added.discard(member)
        removed.add(member)
        if member in self.undo_base:  # algorithm 2
            self.undo_base.discard(member)
            added, removed = self.undo[-1]
            if member in added:
                added.discard(member)
            else:
                removed.add(member)

    def checkpoint(self) -> None:
        self.redo.append((set(), set()))
        self.undo.append((set(), set()))

    def combined(self, states: slice) -> set[int]:
        """Algorithm 7: the union of all add sets, minus the union of all remove sets."""
        added = set[int]().union(*[a for a, _ in self.redo[states]])
        removed = set[int]().union(*[r for _, r in self.redo[states]])
        return (self.redo_base | added) - removed

    def undone_by_unions(self, states: slice) -> set[int]:
        """Algorithm 3 over several states at once, with the unions that algorithm 7 suggests."""
        added = set[int]().union(*[a for a, _ in self.undo[states]])
        removed = set[int]().union(*[r for _, r in self.undo[states]])
        return (self.undo_base - added) | removed


def members(store, version=None):
    return store.set("k").members() if version is None else store.at(version).set("k").members()


@pytest.mark.parametrize("scheme", ["undo", "redo", "command", "full"])
@pytest.mark.parametrize("where", ["memory", "redis"])
def test_algorithm_7_loses_a_member_that_was_removed_and_added_again(scheme, where, request):
    printed = Printed({0})
    printed.remove(0)
    printed.checkpoint()
    printed.add(0)
    assert printed.combined(slice(None)) == set()  # 0 is in the set; the union of removes takes it away

    store = open_store("memory:" if where == "memory" else request.getfixturevalue("redis_url"), scheme=scheme)
    ours = store.set("k")
    ours.add(0)
    base = store.checkpoint()
    ours.discard(0)
    removed = store.checkpoint()
    ours.add(0)
    last = store.checkpoint()
    assert [members(store, v) for v in (base, removed, last)] == [{0}, set(), {0}]
    store.compact([base, last])  # combining the two layers gives no change at all
    store.rollback(base)
    store.forward(last)
    assert members(store) == {0}
    assert list(store.changes(base, last)) == []


def test_algorithm_7_is_wrong_in_about_a_quarter_of_histories():
    wrong = 0
    for seed in range(400):
        rng = random.Random(seed)
        start = {n for n in range(4) if rng.random() < 0.5}
        printed, truth, store = Printed(start), set(start), open_store("memory:")
        ours = store.set("k")
        ours.update(sorted(start))
        for _ in range(3):
            for _ in range(rng.randint(1, 3)):
                member = rng.randrange(4)
                if rng.random() < 0.5:
                    printed.add(member)
                    truth.add(member)
                    ours.add(member)
                else:
                    printed.remove(member)
                    truth.discard(member)
                    ours.discard(member)
            printed.checkpoint()
            version = store.checkpoint()
        wrong += printed.combined(slice(None)) != truth
        assert members(store, version) == truth
    assert 60 < wrong < 300


def test_undoing_several_versions_by_unions_brings_a_new_member_back():
    printed = Printed(set())
    printed.add(1)
    printed.checkpoint()
    printed.remove(1)
    assert printed.undone_by_unions(slice(0, 2)) == {1}  # the state before both was empty

    store = open_store("memory:")
    ours = store.set("k")
    empty = store.checkpoint()
    ours.add(1)
    store.checkpoint()
    ours.discard(1)
    store.checkpoint()
    store.rollback(empty)
    assert members(store) == set()


def test_algorithm_7_leaves_out_the_current_version():
    printed = Printed({1})
    printed.checkpoint()
    printed.add(2)
    assert printed.combined(slice(0, len(printed.redo) - 1)) == {
        1
    }  # its loops end at T - 1; SCARD built on it says 1

    store = open_store("memory:", scheme="redo")
    ours = store.set("k")
    ours.add(1)
    store.checkpoint()
    ours.add(2)
    assert len(ours) == 2


@pytest.mark.parametrize("scheme", ["undo", "redo", "command", "full"])
def test_combining_deletes_nothing_that_a_later_rollback_needs(scheme, redis_url):
    """Algorithm 7 deletes the sets that it has combined: version 1 is gone once version 3 was read."""
    store = open_store(redis_url, scheme=scheme)
    ours = store.set("k")
    for member in (1, 2, 3):
        ours.add(member)
        store.checkpoint()
    for _ in range(2):
        assert members(store, 3) == {1, 2, 3}
        store.rollback(1)
        assert members(store) == {1}
        store.forward(3)
        assert members(store) == {1, 2, 3}


def test_a_long_call_is_whole_while_another_client_looks(redis_url, redis_socket):
    """The printed loops go member by member over three keys; here base and log change in one transaction."""
    import threading

    import redis

    store = open_store(redis_url)
    ours = store.set("k")
    client = redis.Redis(unix_socket_path=redis_socket)
    key = redis_url.rpartition("=")[2] + ":k"
    seen: set[int] = set()
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            seen.add(client.scard(key))

    looker = threading.Thread(target=look)
    looker.start()
    for start in range(0, 30_000, 10_000):
        ours.update(range(start, start + 10_000))
    stop.set()
    looker.join()
    assert seen <= {0, 10_000, 20_000, 30_000}
