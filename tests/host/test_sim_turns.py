from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from kedge.errors import UnavailableError
from kedge.host.sim import Crashed, SimHost, SimStore, Turns, attempts, explore, machine


def counts(seed: int, **faults: float) -> list[str]:
    """Two actors write their names into a list, one I/O call between two writes."""
    turns, order = Turns(seed, **faults), list[str]()
    store = SimStore(seed, turns=turns)

    def actor(name: str) -> None:
        for number in range(10):
            store.put(f"{name}/{number}", b"")
            order.append(name)

    turns.run(lambda: actor("a"), lambda: actor("b"))
    return order


def test_a_seed_decides_the_order() -> None:
    assert counts(3) == counts(3)
    assert len({tuple(counts(seed)) for seed in range(20)}) > 15
    for seed in range(20):
        assert sorted(counts(seed)) == ["a"] * 10 + ["b"] * 10


def test_a_stalled_actor_falls_far_behind() -> None:
    def lag(order: list[str]) -> int:
        return max(abs(order[:end].count("a") - order[:end].count("b")) for end in range(20))

    assert max(lag(counts(seed, stalls=0.2)) for seed in range(20)) == 10


def test_a_killed_actor_does_nothing_more() -> None:
    for seed in range(30):
        turns = Turns(seed, kills=0.1)
        store = SimStore(seed, turns=turns)

        def stubborn(number: int) -> None:
            try:
                for step in range(50):
                    store.put(f"{number}/{step}", b"")  # noqa: B023
            finally:
                store.put(f"{number}/last words", b"")  # noqa: B023

        ends = attempts(turns, stubborn, 2)
        for number, end in enumerate(ends):
            if end.error is not None:
                assert isinstance(end.error, Crashed)
                assert f"{number}/last words" not in store.objects


def test_an_error_of_an_actor_is_its_outcome() -> None:
    def fails() -> None:
        raise ValueError("mine")

    ends = Turns(1).run(fails, lambda: 7)
    assert isinstance(ends[0].error, ValueError)
    assert (ends[1].value, ends[1].error) == (7, None)


def test_duplicate_attempts_find_a_task_that_is_not_idempotent() -> None:
    def total(put_result: Any, seed: int) -> int:
        turns = Turns(seed)
        store = SimStore(seed, turns=turns)
        attempts(turns, lambda number: put_result(store, number), 2)
        return len(store.objects)

    def sound(store: SimStore, number: int) -> None:
        with suppress(FileExistsError):
            store.put("result", b"x", if_absent=True)

    def unsound(store: SimStore, number: int) -> None:
        if "result 0" not in store.list(""):
            store.put(f"result {number}", b"x")

    assert {total(sound, seed) for seed in range(30)} == {1}
    assert {total(unsound, seed) for seed in range(30)} == {1, 2}


def test_calls_to_a_store_are_crash_points_of_their_process() -> None:
    """Marks a step as done on the disk before the store has it: lost when the process dies in between."""

    def run(store: SimStore, host: SimHost, sound: bool) -> None:
        client = store.client(host)
        host.disk.mkdir("/d")
        for step in ("store", "disk") if sound else ("disk", "store"):
            if step == "store":
                client.put("step", b"")
            else:
                host.disk.open("/d/done", "create")
                host.disk.sync_dir("/d")

    for sound in (True, False):
        stores: list[SimStore] = []

        def work(host: SimHost, acked: list[Any], sound: bool = sound, stores: list[SimStore] = stores) -> None:
            stores.append(SimStore(1))
            run(stores[-1], host, sound)

        def check(host: SimHost, acked: list[Any], stores: list[SimStore] = stores) -> None:
            assert "step" in stores[-1].objects or not host.disk.exists("/d/done")

        assert (explore(work, check, "lose", range(5)) == []) == sound


def test_a_process_that_dies_in_a_store_call_may_leave_it_under_way() -> None:
    fates: set[str] = set()
    for seed in range(40):
        store, host = SimStore(seed), machine(seed)
        host.crash_at = 1
        with pytest.raises(Crashed):
            store.client(host).delete("x") if seed % 2 else store.client(host).put("x", b"")
        fates.add("late" if store.late else "done" if store.objects else "not")
        with pytest.raises(Crashed):
            store.client(host).get("x")
    assert fates == {"late", "done", "not"}


def test_reads_may_fail_and_change_nothing() -> None:
    store = SimStore(1)
    store.put("a/x", b"body")
    store.faults = 0.5
    answers: set[Any] = set()
    for _ in range(40):
        try:
            answers.add(store.get("a/x"))
            answers.update(store.list("a"))
        except UnavailableError:
            answers.add(None)
    assert answers == {b"body", "a/x", None}


def test_a_long_listing_is_not_one_moment() -> None:
    odd = 0
    for seed in range(50):
        turns = Turns(seed)
        store = SimStore(seed, turns=turns)
        for number in range(10, 22):
            store.objects[f"a/{number}"] = b""

        def move(store: SimStore = store) -> None:
            store.put("a/10", b"")
            store.delete("a/21")
            store.put("a/05", b"")

        listed = turns.run(move, lambda store=store: store.list("a"))[1].value
        assert listed == sorted(listed)
        assert set(listed) >= {f"a/{number}" for number in range(10, 21)}
        odd += "a/05" not in listed and "a/21" not in listed
    assert odd > 0
