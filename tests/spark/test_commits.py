"""The sink's commit, crashed at every I/O call on a simulated machine: every batch once, whatever Spark repeats."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from kedge.errors import UsageError
from kedge.host.sim import SimHost, explore, machine
from kedge.streams import stream

pytest.importorskip("pyspark")

from kedge.spark.writer import Commits, Staged

PATH = "/data/target"
SCHEMA = pa.schema([("batch", pa.int64()), ("row", pa.int64())])
PRODUCER = "query-1"


def staged(host: SimHost, batch: int, files: list[list[int]], attempt: str) -> list[Any]:
    """What tasks of a batch leave behind: one task per file, written as any Arrow program would."""
    messages: list[Any] = []
    for task, rows in enumerate(files):
        table = pa.table({"batch": [batch] * len(rows), "row": rows}, schema=SCHEMA)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, SCHEMA) as out:
            out.write_table(table)
        name = f"spark/rows/{PRODUCER}/{batch:019d}-{task:06d}-000000-{attempt}.arrow"
        host.store(PATH).put(name, sink.getvalue().to_pybytes())
        messages.append(Staged(task, [(name, len(rows))]))
    return messages


def commit(host: SimHost, batch: int, files: list[list[int]], attempt: str) -> None:
    messages = staged(host, batch, files, attempt)
    Commits(PATH, PRODUCER, host, threads=0).commit(batch, messages)


def seen(host: SimHost) -> list[tuple[int, int]]:
    rows = stream(PATH, host=host, threads=0).to_table().to_pylist()
    return sorted((row["batch"], row["row"]) for row in rows)


BATCHES = [[[1, 2], [3]], [[4]], [[5, 6], [7], [8, 9]]]
# Spark gives a batch the same rows again, but not in the same tasks.
AGAIN = [[[3], [1], [2]], [[4]], [[9], [8, 7, 6, 5]]]
WANT = [(0, 1), (0, 2), (0, 3), (1, 4), (2, 5), (2, 6), (2, 7), (2, 8), (2, 9)]


def work(host: SimHost, acked: list[Any]) -> None:
    stream(PATH, schema=SCHEMA, partitions=2, host=host, segment_bytes=1 << 16)
    acked.append("created")
    for batch, files in enumerate(BATCHES):
        commit(host, batch, files, "first")
        acked.append(batch)


def check(host: SimHost, acked: list[Any]) -> None:
    """After the restart Spark repeats the last batch that it has not noted, with new attempts."""
    if not acked:
        return
    done = [batch for batch in acked if batch != "created"]
    assert [row for row in seen(host) if row[0] in done] == [row for row in WANT if row[0] in done]
    for batch in range(max(0, len(done) - 1), len(AGAIN)):
        commit(host, batch, AGAIN[batch], "second")
    assert seen(host) == WANT
    left = [name for name in host.store(PATH).list("spark") if "/done/" not in name and "first" not in name]
    assert left == []


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["stop", "lose", "tear"])
def test_a_commit_survives_a_crash_at_every_call(fault: Any, lane: Any) -> None:
    failures = explore(work, check, fault, lane.seeds(1, 1, 50))
    assert failures == []


@pytest.mark.slow
def test_without_the_intent_rows_are_lost_or_doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant: every attempt applies its own files, as if the intent were not there."""

    def own_files(self: Commits, intent: dict[str, Any]) -> dict[str, Any]:
        return intent

    monkeypatch.setattr(Commits, "_intend", own_files)
    assert explore(work, check, "lose", range(1)) != []


def test_two_drivers_with_the_same_batch_append_it_once() -> None:
    host = machine(1)
    stream(PATH, schema=SCHEMA, partitions=2, host=host, segment_bytes=1 << 16)
    zombie = staged(host, 0, BATCHES[0], "zombie")
    commit(host, 0, AGAIN[0], "new")
    Commits(PATH, PRODUCER, host, threads=0).commit(0, zombie)
    assert seen(host) == WANT[:3]


def test_an_empty_batch_leaves_nothing() -> None:
    host = machine(1)
    stream(PATH, schema=SCHEMA, partitions=2, host=host, segment_bytes=1 << 16)
    Commits(PATH, PRODUCER, host, threads=0).commit(0, [Staged(0, [])])
    assert host.store(PATH).list("spark") == []


@pytest.mark.parametrize("name", ["", "a/b", "../x", "-x", "x" * 101])
def test_a_producer_has_a_plain_name(name: str) -> None:
    from kedge.spark.options import write_options

    with pytest.raises(UsageError, match="producer="):
        write_options({"path": "somewhere", "producer": name})
