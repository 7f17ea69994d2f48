"""The state benchmark in one process: bulk adds with a history, beside Python sets, LMDB and SQLite."""

from __future__ import annotations

import pickle  # noqa: TID251  (the rival keeps its history as pickled copies; nothing is read from storage)
import sqlite3
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kedge.state import open_store

Ints = NDArray[np.int64]


def rates(size: int, versions: int, seed: int = 5) -> dict[str, float]:
    """Million members per second of one core: bulk adds of `size` random members, each followed by a version."""
    rng = np.random.default_rng(seed)
    work = [rng.integers(0, 1 << 40, size) for _ in range(versions)]
    contenders: dict[str, Callable[[Any], Any]] = {
        "kedge, undo": _kedge,
        "Python set, pickled copies": _pickled,
        "Python set, copies": _copies,
        "LMDB, a transaction a version": _lmdb,
        "SQLite, a transaction a version": _sqlite,
    }
    _kedge(work)  # compile first
    small = max(1, size // 20)  # the databases get a twentieth of the members
    found: dict[str, float] = {}
    for name, run in contenders.items():
        part = [ints[:small] for ints in work] if "transaction" in name else work
        lists: Any = part if name.startswith("kedge") else [ints.tolist() for ints in part]
        best = min(_core_ms(partial(run, lists)) for _ in range(5 if name.startswith("kedge") else 1))
        found[name] = sum(map(len, part)) / best / 1e3
    return found


def _core_ms(call: Callable[[], Any]) -> float:
    """Milliseconds of this process's own time: what a neighbour takes does not count."""
    start = time.process_time_ns()
    call()
    return (time.process_time_ns() - start) / 1e6


def _kedge(work: list[Ints]) -> None:
    with open_store("memory:") as store:
        members = store.set("k", "int")
        for ints in work:
            members.update(ints)
            store.checkpoint()


def _pickled(work: list[list[int]]) -> list[bytes]:
    members, history = set[int](), list[bytes]()
    for ints in work:
        members.update(ints)
        history.append(pickle.dumps(members, protocol=5))
    return history


def _copies(work: list[list[int]]) -> list[set[int]]:
    members, history = set[int](), list[set[int]]()
    for ints in work:
        members.update(ints)
        history.append(set(members))
    return history


def _lmdb(work: list[list[int]]) -> None:
    import lmdb

    with tempfile.TemporaryDirectory() as folder:
        environment: Any = lmdb.open(folder, map_size=1 << 32, max_dbs=1, sync=False)
        for version, ints in enumerate(work):
            with environment.begin(write=True) as transaction:
                for member in ints:
                    key = member.to_bytes(8, "big")
                    if transaction.put(key, b"", overwrite=False):
                        transaction.put(b"log" + version.to_bytes(4, "big") + key, b"")
        environment.close()


def _sqlite(work: list[list[int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        database = sqlite3.connect(f"{folder}/k.db", isolation_level=None)
        database.execute("pragma synchronous = off")
        database.execute("create table k (member integer primary key, added integer)")
        for version, ints in enumerate(work):
            database.execute("begin")
            database.executemany("insert or ignore into k values (?, ?)", [(member, version) for member in ints])
            database.execute("commit")
        database.close()
