"""Tables as files: attach, undo, miss, locks, growth, and a real SIGKILL at any moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kedge import graph, host
from kedge.kernel import Program, compile_graph
from kedge.kernel.table_kernels import STATE
from kedge.run import tables as module
from kedge.run.tables import Attempt, Tables

TASKS = 4
RUN = "00000000000000000000000000000abc"


def compiled() -> Program:
    schema = pa.schema([("ts", pa.timestamp("us")), ("k", pa.string()), ("v", pa.int64())])
    text = "SELECT window(ts, '10 seconds') AS w, k, count(*) AS n, sum(v) AS v FROM s GROUP BY w, k"
    return compile_graph(graph.parse(text, {"s": schema}, {"s": "ts"}), TASKS)


PROGRAM = compiled()


def nonce(number: int) -> str:
    return f"{number:032x}"


def partials(number: int, keys: int = 200) -> pa.RecordBatch:
    """Batch `number`: adds `number` to every key, 5 of them new."""
    schema = pa.schema([("ts", pa.timestamp("us")), ("k", pa.string()), ("v", pa.int64())])
    names = [f"key {at}" for at in range(keys + 5 * number)]
    data = [pa.array(np.zeros(len(names), "M8[us]")), names, np.full(len(names), number, np.int64)]
    return PROGRAM.fragment("s", pa.record_batch(data, schema=schema), -(1 << 63)).partials


def sums(dump: pa.RecordBatch) -> set[tuple[str, int, int]]:
    return set(zip(*(dump.column(name).to_pylist() for name in ("key0", "cell0", "cell1")), strict=True))


def expected(last: int, keys: int = 200) -> set[tuple[str, int, int]]:
    out = set()
    for at in range(keys + 5 * last):
        first = max(1, -(-(at + 1 - keys) // 5))
        numbers = range(first, last + 1)
        out.add((f"key {at}", len(numbers), sum(numbers)))
    return out


def empty() -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=PROGRAM.state_schema)


def dump(attempt: Attempt) -> pa.RecordBatch:
    parts = [attempt.tables[task].dump() for task in range(TASKS)]
    return pa.Table.from_batches(parts).combine_chunks().to_batches()[0]


def begin(folder: Path) -> Tables:
    return Tables(str(folder), RUN, PROGRAM, host.local())


def started(folder: Path) -> Tables:
    """Tables after batch 1, whose parent is nonce(0)."""
    tables = begin(folder)
    with tables.attempt(epoch=1) as attempt:
        assert attempt.attach_all(range(TASKS), nonce(0)) == list(range(TASKS))
        attempt.restore(range(TASKS), [], nonce(0))
        attempt.apply(nonce(1), [partials(1)], -1)
    return tables


def state(tables: Tables, parent: str) -> set[tuple[str, int, int]]:
    found: set[tuple[str, int, int]] = set()
    with tables.attempt(epoch=1) as attempt:
        assert attempt.attach_all(range(TASKS), parent) == []
        for table in attempt.tables.values():
            found |= sums(table.dump())
    return found


def test_another_process_attaches_what_the_first_one_left(tmp_path: Path) -> None:
    started(tmp_path).close()
    assert state(begin(tmp_path), nonce(1)) == expected(1)
    mode = os.stat(tmp_path / RUN).st_mode & 0o777
    assert mode == 0o700


def test_a_batch_that_never_committed_is_undone_at_the_next_attach(tmp_path: Path) -> None:
    tables = started(tmp_path)
    with tables.attempt(epoch=1) as attempt:
        attempt.attach_all(range(TASKS), nonce(1))
        attempt.apply(nonce(2), [partials(2)], -1)
    assert state(tables, nonce(1)) == expected(1)
    with tables.attempt(epoch=2) as attempt:
        assert attempt.attach_all(range(TASKS), nonce(2)) == list(range(TASKS))


def test_a_table_without_way_back_is_a_miss_and_restored(tmp_path: Path) -> None:
    tables = started(tmp_path)
    with tables.attempt(epoch=1) as attempt:
        attempt.attach_all(range(TASKS), nonce(1))
        saved = dump(attempt)
        attempt.apply(nonce(2), [partials(2)], -1)
        attempt.apply(nonce(3), [partials(3)], -1)
    with tables.attempt(epoch=1) as attempt:
        missed = attempt.attach_all(range(TASKS), nonce(1))
        assert missed == list(range(TASKS))
        attempt.restore(missed, [saved], nonce(1))
    assert state(tables, nonce(1)) == expected(1)


def test_who_loses_the_lock_works_on_private_memory(tmp_path: Path) -> None:
    tables, other = started(tmp_path), begin(tmp_path)
    with tables.attempt(epoch=1) as holder:
        holder.attach_all(range(TASKS), nonce(1))
        saved = dump(holder)
        with other.attempt(epoch=1) as loser:
            assert loser.attach_all(range(TASKS), nonce(1)) == list(range(TASKS))
            loser.restore(range(TASKS), [saved], nonce(1))
            assert all(loser.is_private(task) for task in range(TASKS))
            loser.apply(nonce(2), [partials(2)], -1)
            for number in range(3, 9):
                loser.apply(nonce(number), [partials(number, 3000)], -1)  # grows in memory
        holder.apply(nonce(5), [partials(2)], -1)
    assert state(begin(tmp_path), nonce(5)) == expected(2)


def test_growth_is_seen_by_a_process_that_still_maps_the_old_file(tmp_path: Path) -> None:
    tables, other = started(tmp_path), begin(tmp_path)
    assert state(other, nonce(1)) == expected(1)
    with tables.attempt(epoch=1) as attempt:
        attempt.attach_all(range(TASKS), nonce(1))
        before = os.stat(tables.path(0)).st_size
        attempt.apply(nonce(2), [partials(2, 20_000)], -1)
        assert os.stat(tables.path(0)).st_size > before
    with other.attempt(epoch=1) as attempt:
        assert attempt.attach_all(range(TASKS), nonce(2)) == []
        assert sum(table.rows for table in attempt.tables.values()) == 20_010
    assert sorted(os.listdir(tmp_path / RUN)) == [f"{task:05d}.table" for task in range(TASKS)]


@pytest.mark.parametrize("damage", ["boot", "run", "bytes", "short", "loading"])
def test_a_foreign_or_torn_file_is_a_miss(tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = started(tmp_path)
    path = tables.path(2)
    if damage == "boot":
        monkeypatch.setattr(module, "boot_id", lambda: "another boot")
    elif damage == "run":
        tables.run_id = "another run"
    elif damage == "short":
        os.truncate(path, 4096)
    else:
        with open(path, "r+b") as file:
            file.seek(8 * (STATE if damage == "loading" else 44))
            file.write(b"\4" if damage == "loading" else b"\xff")
    tables.close()
    with tables.attempt(epoch=1) as attempt:
        missed = attempt.attach_all(range(TASKS), nonce(1))
        assert missed == ([2] if damage in ("bytes", "short", "loading") else list(range(TASKS)))
        attempt.restore(missed, [], nonce(1))
        assert all(attempt.tables[task].rows == 0 for task in missed)


def test_remove_leaves_nothing(tmp_path: Path) -> None:
    started(tmp_path).remove()
    assert os.listdir(tmp_path) == []


WORKER = """
import sys
from test_tables import PROGRAM, TASKS, begin, nonce, partials
tables = begin(sys.argv[1])
number = int(sys.argv[2])
ready = {at: partials(at) for at in range(number + 1, number + 40)}
print("ready", flush=True)
for at in sorted(ready):
    with tables.attempt(epoch=1) as attempt:
        assert attempt.attach_all(range(TASKS), nonce(at - 1)) == []
        attempt.apply(nonce(at), [ready[at]], -1)
"""


@pytest.mark.slow
def test_sigkill_leaves_the_parent_the_new_version_or_a_miss(tmp_path: Path, lane: Any) -> None:
    """A process applies batch after batch and is killed; then every table is at one of two versions, whole."""
    found = {"parent": 0, "new": 0, "miss": 0}
    for seed in lane.seeds(3, 12, 100):
        folder = tmp_path / str(seed)
        started(folder).close()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([p for p in sys.path if p])}
        worker = subprocess.Popen([sys.executable, "-c", WORKER, str(folder), "1"], stdout=subprocess.PIPE,
                                  env=environment)  # fmt: skip
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"ready\n"
        time.sleep(0.0007 * (seed % 97))
        os.kill(worker.pid, signal.SIGKILL)
        worker.wait()
        worker.stdout.close()
        check(begin(folder), found)
    assert found["parent"] + found["new"] > 0


def check(tables: Tables, found: dict[str, int]) -> None:
    """Each table is exactly what its version says."""
    whole = {number: expected(number) for number in range(1, 41)}
    for task in range(TASKS):
        with tables.attempt(epoch=2) as attempt:
            mapping = attempt._lock(task)
            assert mapping is not None
            names = {mapping.table.version, mapping.table.previous}
            torn = mapping.table.in_progress
            numbers = [int(name, 16) for name in names if name is not None]
            outcomes = 0
            for number in sorted(numbers):  # the parent first: once undone there is no way forward
                table = attempt.attach(task, nonce(number))
                if table is None:
                    continue
                outcomes += 1
                found["parent" if number < max(numbers) else "new"] += 1
                mine = {row for row in whole[number] if row[0] in keys_of(table.dump())}
                assert sums(table.dump()) == mine
                assert table.rows == len(task_rows(number, task))
                break
            assert outcomes or torn
            found["miss"] += not outcomes


def keys_of(dump: pa.RecordBatch) -> set[str]:
    return set(dump.column("key0").to_pylist())


def task_rows(number: int, task: int) -> pa.RecordBatch:
    given = partials(number)
    return given.filter(pa.array(given.column("task").to_numpy() == task))
