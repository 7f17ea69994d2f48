"""Writes the golden stores of `test_golden.py`: run it once for each released format, and never over an old one."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from kedge.state import open_store


def history(store: Any) -> None:
    """Every structure, every scheme, three versions, and one that was rolled back to."""
    for scheme in ("undo", "redo", "command", "full"):
        ints, texts = store.set(f"{scheme} ints", scheme=scheme), store.set(f"{scheme} texts", "str", scheme=scheme)
        fares, rides = store.map(f"{scheme} map", scheme=scheme), store.counter(f"{scheme} counter", scheme=scheme)
        stops = store.list(f"{scheme} list", scheme=scheme)
        delays = store.sorted_set(f"{scheme} sorted", scheme=scheme)
        ints.update(np.arange(-5, 300, 7))
        texts.add("a", "5")
        fares.update({"a": 1, "b": 2.5, "c": b"\xff", 7: "5"})
        rides.incr(5)
        stops.extend(["x", 1, 2.5])
        delays.update({"a": 1.5, "b": -1})
    store.checkpoint("first")
    for scheme in ("undo", "redo", "command", "full"):
        store.set(f"{scheme} ints").discard(2, -5)
        store.set(f"{scheme} ints").add(2**62)
        store.map(f"{scheme} map").pop("a")
        store.list(f"{scheme} list").popleft()
        store.list(f"{scheme} list").appendleft("left")
        store.counter(f"{scheme} counter").decr(7)
        store.sorted_set(f"{scheme} sorted")["a"] = 9
    store.checkpoint()
    store.set("undo texts").add("later")
    store.checkpoint("third")
    store.rollback(2)


def contents(place: Any, names: list[str]) -> dict[str, Any]:
    """What a store or a snapshot holds, as JSON."""
    kinds = {
        "ints": "set",
        "texts": "set",
        "map": "map",
        "counter": "counter",
        "list": "list",
        "sorted": "sorted_set",
    }
    found: dict[str, Any] = {}
    for name in names:
        kind = kinds[name.split()[1]]
        one = getattr(place, kind)(name)
        if kind == "counter":
            found[name] = one.value
        elif kind == "set":
            found[name] = sorted(map(repr, one))
        else:
            found[name] = repr(sorted(one.items(), key=repr) if kind != "list" else one.to_list())
    return found


def answers(store: Any) -> dict[str, Any]:
    """Everything at every version, and the versions."""
    names = sorted(store.structures())
    return {
        "now": contents(store, names),
        "at": {str(version.number): contents(store.at(version.number), names) for version in store.versions()},
        "versions": [[version.number, version.key] for version in store.versions()],
        "current": store.version,
    }


def keys(client: Any, root: str) -> dict[str, Any]:
    """A store's keys on Redis in plain form."""
    read = {
        b"set": lambda key: sorted(client.smembers(key)),
        b"hash": lambda key: [part for pair in sorted(client.hgetall(key).items()) for part in pair],
        b"string": lambda key: [client.get(key)],
        b"list": lambda key: client.lrange(key, 0, -1),
        b"zset": lambda key: [
            part for m, s in client.zrange(key, 0, -1, withscores=True) for part in (repr(s).encode(), m)
        ],
    }
    found: dict[str, Any] = {}
    for key in sorted(client.keys(f"{root}:*")):
        kind = client.type(key)
        found[key.decode()] = [kind.decode(), [base64.b64encode(part).decode() for part in read[kind](key)]]
    return found


if __name__ == "__main__":
    import redis

    folder, socket = Path(sys.argv[1]), sys.argv[2]
    store = open_store(folder / "directory-1")
    history(store)
    (folder / "answers-1.json").write_text(json.dumps(answers(store), indent=1, sort_keys=True) + "\n")
    on_redis = open_store(f"unix://{socket}?name=golden")
    history(on_redis)
    document = keys(redis.Redis(unix_socket_path=socket), "golden")
    (folder / "redis-1.json").write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")
