"""Random histories on a store and on the model, and the check that they agree."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import state_model as m

SCHEMES = ("undo", "redo", "command", "full")


def run(
    seed: int,
    store: Any,
    scheme: str | None,
    steps: int,
    reopen: Callable[[Any], Any] | None = None,
    *,
    survives_open: bool = True,
) -> None:
    """`scheme` None switches at random; `reopen` closes and opens the store, and what is open may survive that."""
    try:
        _run(seed, store, scheme, steps, reopen, survives_open)
    except BaseException as error:
        error.add_note(f"histories.run(seed={seed}, scheme={scheme!r}, steps={steps})")
        raise


def _run(
    seed: int,
    store: Any,
    scheme: str | None,
    steps: int,
    reopen: Callable[[Any], Any] | None,
    survives_open: bool,
) -> None:
    rng = random.Random(seed)
    model = m.Model()
    of = m.structures(store, scheme)
    for _ in range(steps):
        act = rng.random()
        if act < 0.6:
            before = m.plain(model.now)
            m.change(rng, of, model.now)
            if m.plain(model.now) != before:
                model.diverge()
        elif act < 0.75:
            assert store.checkpoint() == model.checkpoint()
        elif act < 0.83:
            target = rng.choice([n for n in model.versions if n <= model.at])
            assert store.rollback(target) == target
            model.goto(target)
        elif act < 0.88:
            later = [n for n in model.versions if n >= model.at]
            target = rng.choice(later)
            if target > model.at:
                assert store.forward(target) == target
                model.goto(target)
        elif act < 0.91:
            keep = [n for n in model.versions if rng.random() < 0.6]
            store.compact(keep)
            model.keep(keep)
        elif act < 0.94 and reopen is not None:
            store = reopen(store)
            of = m.structures(store)
            if not survives_open:
                model.lose_open()
        elif scheme is None:
            of[rng.choice(list(of))].scheme = rng.choice(SCHEMES)
        if rng.random() < 0.3:
            agree(rng, store, of, model)
    agree(rng, store, of, model)
    store.close()


def agree(rng: random.Random, store: Any, of: dict[str, Any], model: m.Model) -> None:
    """Now, another version, and the changes between two."""
    now = m.plain(model.now)
    assert m.read(of) == now
    for name in "snmlz":
        assert len(of[name]) == len(now[name])
    assert [version.number for version in store.versions()] == sorted(model.versions)
    assert store.version == model.at
    one, other = rng.choice(list(model.versions)), rng.choice(list(model.versions))
    assert m.read(m.view(store.at(one))) == m.plain(model.versions[one])
    snapshot = m.view(store.at(other))
    for name in "snmlz":
        assert len(snapshot[name]) == len(model.versions[other][name])
    changes_agree(store, model, one, other)
    replay_agrees(store, model, one, other)


def changes_agree(store: Any, model: m.Model, one: int, other: int) -> None:
    old, new = m.plain(model.versions[one]), m.plain(model.versions[other])
    found: dict[str, dict[Any, tuple[Any, Any]]] = {}
    for change in store.changes(one, other):
        cell = m.tagged(change.cell) if change.cell is not None else None
        found.setdefault(change.structure, {})[cell] = (change.old, change.new)
    for name in "sn":
        assert set(found.get(name, {})) == old[name] ^ new[name]
    for name in "mz":
        want = {cell for cell in old[name].keys() | new[name].keys() if old[name].get(cell) != new[name].get(cell)}
        assert set(found.get(name, {})) == want
    here = dict(enumerate(old["l"]))
    for cell, (was, _) in _list_changes(store, one, other):
        assert (None if was is None else m.tagged(was)) == here.get(cell)
    assert found.get("c", {}) == ({None: (old["c"], new["c"])} if old["c"] != new["c"] else {})


def _list_changes(store: Any, one: int, other: int) -> list[tuple[int, tuple[Any, Any]]]:
    """The cells of the list that differ, by their index in the first version."""
    return [(change.cell, (change.old, change.new)) for change in store.changes(one, other, structure="l")]


def replay_agrees(store: Any, model: m.Model, one: int, other: int) -> None:
    """The net commands from one version to another, applied elsewhere to the first, give the second."""
    from kedge.state import open_store

    elsewhere = open_store("memory:")
    of = m.structures(elsewhere)
    state = model.versions[one]
    of["s"].update(state["s"])
    of["n"].update(state["n"])
    of["m"].update(state["m"])
    of["c"].incr(state["c"])
    of["l"].extend(state["l"])
    of["z"].update(state["z"])
    for command in store.replay(one, other):
        command.apply(elsewhere)
    assert m.read(of) == m.plain(model.versions[other])


def steps(store: Any, scheme: str) -> Any:
    """A small history, a call at a time; yields after each what the model says."""
    model = m.Model()
    of = m.structures(store, scheme)
    now = model.now

    def done() -> tuple[dict[str, Any], int, list[int]]:
        return m.plain(now), model.at, sorted(model.versions)

    yield done()
    of["s"].add("a", "b", 7)
    now["s"] |= {"a", "b", 7}
    yield done()
    of["n"].update(range(100))
    now["n"] |= set(range(100))
    yield done()
    of["l"].extend([1, 2, 3])
    now["l"] += [1, 2, 3]
    yield done()
    store.checkpoint()
    model.checkpoint()
    yield done()
    of["m"].update({"x": 1, "y": "2"})
    now["m"].update({"x": 1, "y": "2"})
    yield done()
    of["l"].popleft()
    now["l"].pop(0)
    yield done()
    of["c"].incr(3)
    now["c"] += 3
    yield done()
    of["n"].difference_update(range(50, 150))
    now["n"] -= set(range(50, 150))
    yield done()
    store.checkpoint()
    model.checkpoint()
    yield done()
    of["z"].add("k", 1.5)
    now["z"]["k"] = 1.5
    yield done()
    store.rollback(1)
    model.goto(1)
    now = model.now
    yield done()
    store.forward(2)
    model.goto(2)
    now = model.now
    yield done()
    store.rollback(1)
    model.goto(1)
    now = model.now
    yield done()
    of["s"].discard("a")
    now["s"].discard("a")
    model.diverge()
    yield done()
    of["s"].scheme = "undo"
    yield done()
    store.checkpoint()
    model.checkpoint()
    yield done()
    store.compact([3])
    model.keep([3])
    yield done()
