"""The model: every version is a plain Python copy. It shares no code with the store."""

from __future__ import annotations

import copy
import random
from typing import Any

POOL: list[Any] = [
    0,
    1,
    2,
    7,
    -5,
    2**40,
    "a",
    "b",
    "5",
    "1.5",
    "nan",
    "\0x",
    "é",
    b"a",
    b"\xff\0",
    1.5,
    -0.5,
    1e300,
]
INTS = list(range(-20, 60))


class Model:
    """Six structures, and a copy of all of them for every version."""

    def __init__(self) -> None:
        self.now: dict[str, Any] = {"s": set(), "n": set(), "m": {}, "c": 0, "l": [], "z": {}}
        self.versions: dict[int, dict[str, Any]] = {0: copy.deepcopy(self.now)}
        self.saved = copy.deepcopy(self.versions)  # what is durable where calls alone are not
        self.at = 0
        self.last = 0

    def diverge(self) -> None:
        self.versions = {number: state for number, state in self.versions.items() if number <= self.at}

    def checkpoint(self) -> int:
        self.diverge()
        self.last += 1
        self.at = self.last
        self.versions[self.at] = copy.deepcopy(self.now)
        self.saved = copy.deepcopy(self.versions)
        return self.at

    def goto(self, version: int) -> None:
        self.now = copy.deepcopy(self.versions[version])
        self.at = version
        self.saved = copy.deepcopy(self.versions)

    def lose_open(self) -> None:
        self.versions = copy.deepcopy(self.saved)
        self.now = copy.deepcopy(self.versions[self.at])

    def keep(self, numbers: list[int]) -> None:
        self.versions = {n: state for n, state in self.versions.items() if n in numbers or n == self.at}
        self.saved = copy.deepcopy(self.versions)


def structures(store: Any, scheme: str | None = None) -> dict[str, Any]:
    return {
        "s": store.set("s", scheme=scheme),
        "n": store.set("n", scheme=scheme),
        "m": store.map("m", scheme=scheme),
        "c": store.counter("c", scheme=scheme),
        "l": store.list("l", scheme=scheme),
        "z": store.sorted_set("z", scheme=scheme),
    }


def tagged(value: Any) -> Any:
    """1 and 1.0 are different values to a store, and equal to Python."""
    return (type(value).__name__, repr(value))


def read(of: dict[str, Any]) -> dict[str, Any]:
    """What a store holds, comparable with `plain`."""
    return {
        "s": {tagged(member) for member in of["s"]},
        "n": {tagged(member) for member in of["n"]},
        "m": {tagged(field): tagged(value) for field, value in of["m"].items()},
        "c": of["c"].value,
        "l": [tagged(value) for value in of["l"]],
        "z": {tagged(member): score for member, score in of["z"].to_dict().items()},
    }


def plain(state: dict[str, Any]) -> dict[str, Any]:
    return {
        "s": {tagged(member) for member in state["s"]},
        "n": {tagged(member) for member in state["n"]},
        "m": {tagged(field): tagged(value) for field, value in state["m"].items()},
        "c": state["c"],
        "l": [tagged(value) for value in state["l"]],
        "z": {tagged(member): score for member, score in state["z"].items()},
    }


def view(snapshot: Any) -> dict[str, Any]:
    return {
        "s": snapshot.set("s"),
        "n": snapshot.set("n"),
        "m": snapshot.map("m"),
        "c": snapshot.counter("c"),
        "l": snapshot.list("l"),
        "z": snapshot.sorted_set("z"),
    }


def change(rng: random.Random, of: dict[str, Any], now: dict[str, Any]) -> None:
    """One random call on the store and on the model."""
    kind = rng.choice("ssnnmmcllzz")
    {"s": _set, "n": _ints, "m": _map, "c": _counter, "l": _list, "z": _sorted}[kind](rng, of[kind], now, kind)


def _set(rng: random.Random, s: Any, now: dict[str, Any], name: str) -> None:
    members = rng.sample(POOL, rng.randint(1, 4))
    if rng.random() < 0.05:
        s.clear()
        now[name] = set()
    elif rng.random() < 0.6:
        s.add(*members)
        now[name] |= set(members)
    else:
        s.discard(*members)
        now[name] -= set(members)


def _ints(rng: random.Random, s: Any, now: dict[str, Any], name: str) -> None:
    import numpy as np

    members = rng.sample(INTS, rng.randint(1, 12))
    column = np.array([*members, *members[:2]], np.int32)
    if rng.random() < 0.6:
        s.update(column)
        now[name] |= set(members)
    else:
        s.difference_update(column)
        now[name] -= set(members)
    if rng.random() < 0.02:
        s.add("not an integer")
        now[name].add("not an integer")


def _map(rng: random.Random, m: Any, now: dict[str, Any], name: str) -> None:
    field = rng.choice(POOL)
    if rng.random() < 0.6:
        value = rng.choice(POOL)
        m[field] = value
        now[name].pop(field, None)
        now[name][field] = value
    elif rng.random() < 0.3:
        m.incr("number", 3)
        now[name]["number"] = now[name].get("number", 0) + 3
    elif rng.random() < 0.1:
        m.clear()
        now[name].clear()
    else:
        m.discard(field)
        now[name].pop(field, None)


def _counter(rng: random.Random, c: Any, now: dict[str, Any], name: str) -> None:
    amount = rng.choice([1, -1, 5, 2**70])
    now[name] += amount
    assert c.incr(amount) == now[name]


def _list(rng: random.Random, lst: Any, now: dict[str, Any], name: str) -> None:
    want, values = now[name], rng.sample(POOL, rng.randint(1, 3))
    call = rng.choice(
        ["extend", "extend", "extendleft", "pop", "popleft", "set", "insert", "remove", "trim", "clear"]
    )
    if call == "extend":
        lst.extend(values)
        want.extend(values)
    elif call == "extendleft":
        lst.extendleft(values)
        want[:0] = values[::-1]
    elif call == "insert":
        at = rng.randint(-3, 6)
        lst.insert(at, values[0])
        want.insert(at, values[0])
    elif call == "clear" and rng.random() < 0.3:
        lst.clear()
        want.clear()
    elif want and call == "pop":
        assert tagged(lst.pop()) == tagged(want.pop())
    elif want and call == "popleft":
        assert tagged(lst.popleft()) == tagged(want.pop(0))
    elif want and call == "set":
        at = rng.randrange(len(want))
        lst[at] = values[0]
        want[at] = values[0]
    elif want and call == "remove":
        value = rng.choice(want)
        lst.remove(value)
        at = [tagged(one) for one in want].index(tagged(value))
        del want[at]
    elif call == "trim":
        count = rng.randint(0, 3)
        lst.trim_left(count)
        lst.trim_right(count)
        del want[:count]
        del want[max(0, len(want) - count) :]


def _sorted(rng: random.Random, z: Any, now: dict[str, Any], name: str) -> None:
    member = rng.choice(POOL)
    if rng.random() < 0.6:
        score = rng.choice([0.0, 1.5, -3.0, float("inf")])
        z.add(member, score)
        now[name].pop(member, None)
        now[name][member] = score
    elif rng.random() < 0.4:
        now[name]["n"] = now[name].get("n", 0.0) + 2.0
        assert z.incr("n", 2.0) == now[name]["n"]
    else:
        z.discard(member)
        now[name].pop(member, None)
