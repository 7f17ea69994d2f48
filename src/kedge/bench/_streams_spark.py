"""How fast Spark reads a stream, beside the same number of rows from a Python data source that has them in memory.

Both cross to the JVM in batches of 65,536 rows by as many tasks, and end in Spark's `noop` sink. They take turns.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from kedge.bench import _samples
from kedge.streams import stream

_STREAM = "road"  # rows of 32 bytes
_TASK_ROWS = 1 << 20
_BATCH_ROWS = 1 << 16


@dataclass(frozen=True)
class Reads:
    """Rows per second."""

    rows: int
    stream_rows_s: float
    memory_rows_s: float


def reads(folder: Path, tasks: int, rounds: int) -> Reads:
    """The best of a few rounds of each, after one that nobody counts."""
    from kedge.spark.memory import MemorySource
    from kedge.spark.session import session
    from kedge.spark.source import register

    folder.mkdir(parents=True, exist_ok=True)
    table = _samples.table(_STREAM, tasks * _TASK_ROWS, seed=2).combine_chunks()
    with stream(folder / "road", table.schema, event_time="ts") as there:
        for task in range(tasks):
            there.append(table.slice(task * _TASK_ROWS, _TASK_ROWS)).wait()
    batch = table.to_batches(max_chunksize=_BATCH_ROWS)[0]
    with pa.OSFile(str(folder / "batch.arrow"), "wb") as file, pa.ipc.new_file(file, batch.schema) as out:
        out.write_batch(batch)
    spark = session("kedge-bench-streams", cores="local[2]")
    try:
        register(spark)
        spark.dataSource.register(MemorySource)
        memory = spark.read.format("kedge-memory").option("tasks", tasks)
        memory = memory.option("batches", _TASK_ROWS // _BATCH_ROWS).load(str(folder / "batch.arrow"))
        ways = {"stream": spark.read.format("kedge").load(str(folder / "road")), "memory": memory}
        best = dict.fromkeys(ways, float("inf"))
        for turn in range(rounds + 1):
            for name, frame in ways.items():
                seconds = _drain_s(frame)
                if turn:
                    best[name] = min(best[name], seconds)
    finally:
        spark.stop()
    rows = tasks * _TASK_ROWS
    return Reads(rows, rows / best["stream"], rows / best["memory"])


def _drain_s(frame: Any) -> float:
    begun = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - begun
