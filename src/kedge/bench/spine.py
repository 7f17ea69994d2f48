"""`kedge bench spine`: a count by 1,000 keys, and recovery with 10^6 keys, beside plain Structured Streaming.

Throughput at a latency: batches of a size that the backlog always fills are run back to back. A row waits at most
for the batch under way and for its own, so the latency of a size is the worst sum of two batches in a row; of the
sizes tried, the one with the most rows/s whose latency is within the bound counts. Both systems read the same rows
from local files (the slower one their first part), in one session on two cores: Kedge from a stream, plain Spark from
Parquet, with its RocksDB state store and a sink that drops everything; Kedge's results and state are durable.

Recovery: SIGKILL to the driver in the middle of a batch, then a new process. What counts is the time from when the
session is up to the first new batch. It is split into session, plan (until the first batch is planned), load (tables
attached or restored), replay (the rest of that batch) and first commit; plain Spark does not tell load from replay.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kedge.bench import Figure, note

SCHEMA = pa.schema(
    [
        pa.field("ts", pa.timestamp("us", "UTC")),
        pa.field("key", pa.int64()),
        pa.field("v", pa.int64()),
        pa.field("pad", pa.int64()),
    ]
)
SPARK_SCHEMA = "ts TIMESTAMP, key BIGINT, v BIGINT, pad BIGINT"
SQL = "SELECT window(ts, '{width}') AS w, key, count(*) AS n, sum(v) AS v FROM rows GROUP BY key, window(ts, '{width}')"
UNIT_ROWS = 1 << 18
MILLION = 1 << 20
COUNTS = "session to first commit"
SIZES: dict[str, tuple[float, ...]] = {
    "Kedge": (1, 4, 8, 16, 32, 48),
    "plain Spark": (0.25, 0.5, 1, 2, 4, 8, 16, 24),
}  # of batches, in Mi rows
QUICK_SIZES: dict[str, tuple[float, ...]] = {"Kedge": (24,), "plain Spark": (8,)}
ROCKSDB = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.shuffle.partitions": "2",
}
SNAPSHOTS = {**ROCKSDB, "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "false"}


def run(*, quick: bool, out: Path) -> list[Figure]:
    """All figures; `quick` scales rows, keys and bounds."""
    folder = Path(tempfile.mkdtemp(prefix="bench-spine-", dir=out))
    try:
        figures = _throughput(folder, *((QUICK_SIZES, (5.0,)) if quick else (SIZES, (5.0, 1.0))))
        return figures + _recovery(folder, 100_000 if quick else 1_000_000, quick=quick)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# ---- rows -----------------------------------------------------------------------------------------------------


def make_rows(folder: Path, name: str, rows: int, keys: int, rows_per_s: int, parquet_rows: int) -> None:
    """The same rows as a kedge stream and, the first of them, as Parquet files of one unit each."""
    import kedge

    stream = kedge.stream(str(folder / name), SCHEMA, event_time="ts")
    (folder / f"{name}.parquet").mkdir()
    tickets: list[Any] = []
    for number, start in enumerate(range(0, rows, UNIT_ROWS)):
        index = np.arange(start, min(rows, start + UNIT_ROWS), dtype=np.int64)
        mixed = index * np.int64(2654435761) & np.int64((1 << 40) - 1)
        columns = [
            pa.array(index * 1_000_000 // rows_per_s, pa.int64()).cast(SCHEMA.field("ts").type),
            pa.array(mixed % keys),
            pa.array(mixed & 1023),
            pa.array(mixed),
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
        tickets.append(stream.append(batch))
        if start < parquet_rows:
            file = folder / f"{name}.parquet" / f"{number:06d}.parquet"
            pq.write_table(pa.Table.from_batches([batch]), file, compression="lz4")
    for ticket in tickets:
        ticket.wait()
    stream.close()


def _units(folder: Path, name: str) -> int:
    """Units of a stream: on a slow disk several appends share one."""
    import kedge

    with kedge.stream(str(folder / name)) as stream:
        return len(stream.units(0))


# ---- throughput -----------------------------------------------------------------------------------------------


def _throughput(folder: Path, sizes: dict[str, tuple[float, ...]], bounds_s: tuple[float, ...]) -> list[Figure]:
    rows = {name: int(4 * MILLION * max(tried)) for name, tried in sizes.items()}
    note(f"making {rows['Kedge']:,} rows with 1,000 keys ...")
    make_rows(folder, "rows", rows["Kedge"], 1000, 1_000_000, rows["plain Spark"])
    sql = SQL.format(width="10 seconds")
    orders = {"Kedge": _kedge_order, "plain Spark": _plain_order}
    figures: list[Figure] = []
    with Child({"kind": "capacity"}) as child:
        child.until("session")
        trials = {
            name: _Trials(
                child, name, [orders[name](folder, "rows", sql, int(size * MILLION), rows[name]) for size in tried]
            )
            for name, tried in sizes.items()
        }
        for bound_s in bounds_s:
            title = f"count by 1,000 keys on Spark local[2] at p99 latency {bound_s:g} s"
            best = {name: tried.best(bound_s) for name, tried in trials.items()}
            figures += [
                Figure(f"{title}: {name}, batches of {size:,} rows", rate, "rows/s")
                for name, (rate, size) in best.items()
            ]
            ours, theirs = best["Kedge"][0], best["plain Spark"][0]
            aim = bound_s == 5.0
            figures.append(_over(f"{title}, {rows['Kedge']:,} rows: Kedge over plain Spark", ours, theirs, aim=aim))
    embedded = _embedded_rate(folder, sql, rows["Kedge"])
    return [*figures, Figure(f"count by 1,000 keys, embedded, {rows['Kedge']:,} rows", embedded, "rows/s")]


def _over(title: str, ours: float, theirs: float, *, aim: bool) -> Figure:
    if not aim:
        return Figure(title, ours / theirs if theirs else None, "times")
    if not theirs:
        why = "plain Spark did not reach this latency at any batch size"
        return Figure(title, None, "times", ">= 5", None, why)
    return Figure(title, ours / theirs, "times", ">= 5", ours >= 5 * theirs)


class _Trials:
    """Batch sizes tried on one system, each measured once, while the bound allows."""

    def __init__(self, child: Child, name: str, orders: list[dict[str, Any]]) -> None:
        self._child, self._name, self._orders = child, name, orders
        self._tried: dict[int, tuple[float, float]] = {}  # batch rows -> (rows/s, latency)

    def best(self, bound_s: float) -> tuple[float, int]:
        """The most rows/s of any size whose latency is within the bound, and the size."""
        for order in self._orders:
            size = order["size"]
            if size not in self._tried:
                self._tried[size] = self._measure(order)
                rate, latency_s = self._tried[size]
                note(f"  {self._name}: batches of {size:,}: {rate:,.0f} rows/s, latency {latency_s:.2f} s")
            if self._tried[size][1] > bound_s:
                break
        within = [(rate, size) for size, (rate, latency_s) in self._tried.items() if latency_s <= bound_s]
        return max(within, default=(0.0, 0))

    def _measure(self, order: dict[str, Any]) -> tuple[float, float]:
        self._child.order(order)
        ends = [event for event in self._child.events_until("done") if event["event"] == "batch"]
        ends = ends[1:]  # the first one starts the machinery
        gaps = [b["at_s"] - a["at_s"] for a, b in itertools.pairwise(ends)]
        if len(gaps) < 2:
            return 0.0, float("inf")
        pairs = [a + b for a, b in itertools.pairwise(gaps)]
        return sum(event["rows"] for event in ends[1:]) / sum(gaps), max(pairs)


def _kedge_order(folder: Path, name: str, sql: str, size: int, rows: int) -> dict[str, Any]:
    return {
        "kind": "kedge",
        "size": size,
        "driver_rows": 0,  # all batches are Spark's
        "sql": sql,
        "input": str(folder / name),
        "run": str(folder / f"run-{name}-{size}"),
        "into": str(folder / f"into-{name}-{size}"),
        "rows_max": size,
        "batches": min(10, rows // size),
    }


def _plain_order(folder: Path, name: str, sql: str, size: int, rows: int) -> dict[str, Any]:
    return {
        "kind": "plain",
        "size": size,
        "sql": sql,
        "schema": SPARK_SCHEMA,
        "input": str(folder / f"{name}.parquet"),
        "checkpoint": str(folder / f"checkpoint-{name}-{size}"),
        "files": size // UNIT_ROWS,
        "batches": min(10, rows // size),
        "conf": ROCKSDB,
    }


def _embedded_rate(folder: Path, sql: str, rows: int) -> float:
    """Rows/s of the embedded runner over all rows, from the first plan to the last commit."""
    size = rows // 8
    order = {**_kedge_order(folder, "rows", sql, size, rows), "kind": "embedded", "batches": 8}
    with Child({**order, "run": str(folder / "run-e"), "into": str(folder / "into-e")}) as child:
        batches = [event for event in child.events() if event["event"] == "batch"]
    began_us = batches[1]["figures"]["planned_us"]
    spent_us = batches[-1]["figures"]["committed_us"] - began_us
    return sum(event["rows"] for event in batches[1:]) / spent_us * 1e6


# ---- recovery -------------------------------------------------------------------------------------------------


def _recovery(folder: Path, keys: int, *, quick: bool) -> list[Figure]:
    rows = max(8 * UNIT_ROWS, 6 * keys // UNIT_ROWS * UNIT_ROWS)
    note(f"making {rows:,} rows with {keys:,} keys ...")
    make_rows(folder, "many", rows, keys, 100_000, 0 if quick else rows)
    sql = SQL.format(width="1 hour")  # nothing closes: all keys are open
    batches = rows // UNIT_ROWS
    ours = {**_kedge_order(folder, "many", sql, UNIT_ROWS, rows), "batches": _units(folder, "many") - 3}
    title = f"recovery with {keys:,} keys"
    figures = _embedded_recovery(folder, ours, title)
    against = f"{title}, after the session is up: plain Spark over Kedge"
    if quick:
        why = "five Spark sessions take longer than --quick may: run kedge bench spine"
        rivals = ("changelogs", "snapshots")
        return [*figures, *(Figure(f"{against}, with {r}", None, "times", ">= 5", None, why) for r in rivals)]
    kedge = _killed_and_back(ours)
    figures += _split(f"{title}, Kedge on Spark", kedge)
    elsewhere = {**ours, "run": f"{ours['run']}m", "into": f"{ours['into']}m"}
    moved = _killed_and_back(elsewhere, forget_tables=True)
    figures += _split(f"{title}, Kedge on Spark on a host without its tables", moved)
    theirs = {**_plain_order(folder, "many", sql, UNIT_ROWS, rows), "batches": batches - 3}
    for rival, conf in (("changelogs", ROCKSDB), ("snapshots", SNAPSHOTS)):
        plain = _killed_and_back({**theirs, "checkpoint": f"{theirs['checkpoint']}{rival}", "conf": conf})
        figures += _split(f"{title}, plain Spark with {rival}", plain)
        ratio = plain[COUNTS] / kedge[COUNTS]
        figures.append(Figure(f"{against}, with {rival}", ratio, "times", ">= 5", ratio >= 5))
    return figures


def _split(title: str, split: dict[str, float]) -> list[Figure]:
    return [Figure(f"{title}: {part}", value, "s") for part, value in split.items()]


def _killed_and_back(order: dict[str, Any], *, forget_tables: bool = False) -> dict[str, float]:
    """Run most batches, kill in the middle of the next, start again; the split of the way back."""
    with Child({**order, "batches": 1 << 30}) as child:
        for _ in range(order["batches"]):
            child.until("batch")
        child.kill()
    if forget_tables:
        shutil.rmtree(Path(tempfile.gettempdir()) / f"kedge-tables-{os.getuid()}", ignore_errors=True)
    back = {name: value for name, value in order.items() if name != "driver_rows"}  # as a user starts it again
    with Child({**back, "batches": 1}) as child:
        process, session, first = child.until("process"), child.until("session"), child.until("batch")
    split = {"session": session["at_s"] - process["at_s"]}
    figures = first["figures"]
    if "attach_us" in figures:
        batch_s, load_s = (first["at_us"] - figures["planned_us"]) / 1e6, figures["attach_us"] / 1e6
        split |= {"plan": first["at_s"] - session["at_s"] - batch_s, "load": load_s, "replay": batch_s - load_s}
    else:
        batch_s = figures["triggerExecution"] / 1000
        split |= {"plan": first["at_s"] - session["at_s"] - batch_s, "load and replay": batch_s}
    return {**split, COUNTS: first["at_s"] - session["at_s"]}


def _embedded_recovery(folder: Path, order: dict[str, Any], title: str) -> list[Figure]:
    """The same with the embedded runner: the median of three."""
    order = {**order, "kind": "embedded", "run": str(folder / "run-r"), "into": str(folder / "into-r")}
    totals: list[dict[str, float]] = []
    with Child({**order, "batches": 1 << 30}) as child:
        for _ in range(order["batches"] - 1):
            child.until("batch")
        child.kill()
    for _ in range(3):
        with Child({**order, "batches": 1}) as child:
            process, started, first = child.until("process"), child.until("started"), child.until("batch")
            child.kill()
        totals.append(
            {
                "plan": started["at_s"] - process["at_s"],
                "load": first["figures"]["attach_us"] / 1e6,
                "replay": first["at_s"] - started["at_s"] - first["figures"]["attach_us"] / 1e6,
                "process to first commit": first["at_s"] - child.began_s,
            }
        )
    middle = {part: statistics.median(one[part] for one in totals) for part in totals[0]}
    total_s = middle.pop("process to first commit")
    return [
        *_split(f"{title}, embedded", middle),
        Figure(f"{title}, embedded: process start to first commit", total_s, "s", "< 1.5", total_s < 1.5),
    ]


class Child:
    """A process of `_spine_child`, in a group of its own, and the events it prints."""

    def __init__(self, order: dict[str, Any]) -> None:
        import time

        self.began_s = time.monotonic()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  (closed in __exit__)
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "kedge.bench._spine_child", json.dumps(order)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, start_new_session=True,
        )  # fmt: skip

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._log.close()

    def order(self, what: dict[str, Any]) -> None:
        """Send one more order."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()

    def events(self) -> Iterator[dict[str, Any]]:
        """Events until the process ends."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                yield json.loads(line)

    def until(self, event: str) -> dict[str, Any]:
        """The next event of a kind; the child's own words when it ended first."""
        for found in self.events():
            if found["event"] == event:
                return found
        self._log.seek(0)
        tail = self._log.read().decode(errors="replace")[-2000:]
        raise RuntimeError(f"The measured process ended before {event!r}:\n{tail}")

    def events_until(self, event: str) -> list[dict[str, Any]]:
        """All events up to one of a kind."""
        found: list[dict[str, Any]] = []
        for one in self.events():
            if one["event"] == event:
                return found
            found.append(one)
        raise RuntimeError(f"The measured process ended before {event!r}.")

    def kill(self) -> None:
        """SIGKILL to the process and all that it started."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
