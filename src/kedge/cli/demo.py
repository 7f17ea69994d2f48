"""`kedge demo`: a pipeline on Spark is killed half-way, goes on in a new process, and loses nothing.

Rows come at a steady pace all the while. Every step is one that a user would take: start the query, kill the driver
with SIGKILL, start the run again from its directory, read the results; then plain Spark SQL over all rows says whether
they are right.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kedge.run.directory import RunDirectory

HELP = "a pipeline dies half-way and goes on: about a minute"

QUERY = """SELECT window(ts, '10 seconds') AS w, direction, position DIV 5280 AS segment,
       count(*) AS reports, sum(speed) AS speed
FROM road
WHERE lane < 3
GROUP BY direction, position DIV 5280, window(ts, '10 seconds')"""

_CHUNK = 1 << 16
_APPEND_SECONDS = 40  # that all rows take to come


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `kedge demo`."""
    parser.add_argument("--rows", type=int, default=24_000_000, help="rows to append")
    parser.add_argument("--out", default="demo-out", help="where the demo's streams, run and picture go")
    parser.add_argument("--master", default="local[2]", help="the Spark master")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the demo found."""

    rows: int
    results: int
    killed_at_version: int
    recovered_s: float
    equal: bool
    picture: str


def run(args: argparse.Namespace) -> int:
    """Append, start, kill, start again, compare, and draw."""
    from rich.console import Console

    console = Console(stderr=args.json, highlight=False)
    out = Path(args.out)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    console.print(f"[bold]kedge demo[/]: {args.rows:,} rows in the manner of Linear Road\n")
    appender = _Appender(out, args.rows)
    killed_at = _run_and_kill(console, out, args, appender)
    recovered_s = _go_on(console, out, args, appender, killed_at)
    results, equal = _compare(console, out, args)
    picture = _draw(console, out, killed_at)
    outcome = Outcome(args.rows, results, killed_at, recovered_s, equal, str(picture))
    if args.json:
        print(json.dumps({name: getattr(outcome, name) for name in Outcome.__slots__}, indent=1))
    return 0 if equal else 1


class _Appender:
    """The input as it comes: a thread that appends at a steady pace, into a kedge stream, and into Parquet for the
    check that knows nothing of Kedge."""

    def __init__(self, out: Path, rows: int) -> None:
        import kedge
        from kedge.bench._road import ROAD

        self.appended = 0
        self.failure: BaseException | None = None
        self._out, self._rows = out, rows
        self._stream = kedge.stream(str(out / "road"), ROAD, event_time="ts")
        self._stream.append(ROAD.empty_table()).wait()  # the stream is there before anybody reads it
        self._thread = threading.Thread(target=self._go, name="demo-append", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def check(self) -> bool:
        """Whether all rows are durable; raises what went wrong."""
        if self.failure is not None:
            raise self.failure
        return not self._thread.is_alive()

    def _go(self) -> None:
        import pyarrow.parquet as pq

        from kedge.bench._road import ROAD, road

        began = time.monotonic()
        try:
            with self._stream, pq.ParquetWriter(self._out / "road.parquet", ROAD) as parquet:
                for start in range(0, self._rows, _CHUNK):
                    batch = road(start, min(_CHUNK, self._rows - start))
                    self._stream.append(batch).wait()
                    parquet.write_batch(batch)
                    self.appended += batch.num_rows
                    due = began + _APPEND_SECONDS * self.appended / self._rows
                    time.sleep(max(0.0, due - time.monotonic()))
        except BaseException as error:
            self.failure = error


def _define(out: Path) -> None:
    """Write the run's description: from here on `kedge run start` is enough."""
    import kedge
    from kedge.run import Options

    query = kedge.sql(QUERY, road=kedge.stream(str(out / "road")))
    query.define(str(out / "run"), str(out / "segments"), Options())


def _child(out: Path, args: argparse.Namespace) -> subprocess.Popen[bytes]:
    """`kedge run start` in a process group of its own, as an operator would start it."""
    command = [sys.executable, "-m", "kedge.cli", "run", "start", "--spark", args.master, str(out / "run")]
    log = open(out / "driver.log", "ab")  # noqa: SIM115  (the child owns it)
    return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


def _run_and_kill(console: Any, out: Path, args: argparse.Namespace, appender: _Appender) -> int:
    """Start the run on Spark, and kill the driver and all its processes once half of the rows are through."""
    _define(out)
    child = _child(out, args)
    appender.start()
    half = args.rows // 2
    ended = _watch(console, out, child, "run on Spark", args.rows, appender, until=lambda rows: rows >= half)
    if ended:
        raise SystemExit(f"The driver ended before it was killed: see {out / 'driver.log'}.")
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    batches = _batches(out)
    on_workers = sum("tables_missed" in batch["figures"] for batch in batches)  # the driver does those before
    console.print(
        f"[red]SIGKILL[/] to the driver and its workers: {len(batches)} batches were committed, {on_workers} of them "
        "by Spark's workers, and those before by the driver while they started\n"
    )
    return batches[-1]["version"]


def _go_on(console: Any, out: Path, args: argparse.Namespace, appender: _Appender, killed_at: int) -> float:
    """Start the run again in a new process and let it finish; seconds until its first batch was committed."""
    began = time.time()  # noqa: TID251  (compared with times that the ledger recorded)
    child = _child(out, args)
    ended = _watch(console, out, child, "run again", args.rows, appender, until=lambda _: appender.check())
    if not ended:
        _directory(out).ask_finish()
        _watch(console, out, child, "finish", args.rows, appender, until=lambda _: False)
    if ended or child.wait() != 0:
        raise SystemExit(f"The second driver failed: see {out / 'driver.log'}.")
    first = next(batch for batch in _batches(out) if batch["version"] > killed_at)
    recovered_s = first["figures"]["committed_us"] / 1e6 - began
    console.print(f"first batch committed {recovered_s:.1f} s after the restart (most of it: Spark's own start)\n")
    return recovered_s


def _directory(out: Path) -> RunDirectory:
    from kedge.host import local
    from kedge.run.directory import RunDirectory

    return RunDirectory(local(), str(out / "run"))


def _watch(
    console: Any,
    out: Path,
    child: subprocess.Popen[bytes],
    title: str,
    rows: int,
    appender: _Appender,
    *,
    until: Callable[[int], bool],
) -> bool:
    """Progress bars from the stream and the run's ledger, until `until(rows committed)`; whether the process ended."""
    from rich.progress import Progress

    from kedge.run.status import status_of

    directory = _directory(out)
    with Progress(console=console) as progress:
        came = progress.add_task("append (durable)", total=rows)
        done = progress.add_task(title, total=rows)
        while True:
            ended = child.poll() is not None
            committed = status_of(directory).rows
            progress.update(came, completed=appender.appended)
            progress.update(done, completed=committed)
            appender.check()
            if ended or until(committed):
                return ended
            time.sleep(0.1)


def _batches(out: Path) -> list[dict[str, Any]]:
    ledger = _directory(out).ledger()
    ledger.refresh()
    return [record for record in ledger.records() if record["kind"] == "batch"]


def _compare(console: Any, out: Path, args: argparse.Namespace) -> tuple[int, bool]:
    """Plain Spark SQL over the Parquet rows against what the run has written."""
    import kedge
    from kedge.spark.session import session

    spark = session("kedge demo check", args.master)
    try:
        kedge.register(spark)
        spark.read.parquet(str(out / "road.parquet")).createOrReplaceTempView("road")
        want = spark.sql(QUERY)
        got = spark.read.format("kedge").load(str(out / "segments")).select(*want.columns)
        results = got.count()
        missing, extra = want.exceptAll(got).count(), got.exceptAll(want).count()
    finally:
        spark.stop()
    equal = missing == 0 and extra == 0 and results > 0
    verdict = "[green]equal[/]" if equal else f"[red]different[/]: {missing} missing, {extra} too many"
    console.print(f"{results:,} result rows against plain Spark SQL over all rows: {verdict}\n")
    return results, equal


def _draw(console: Any, out: Path, killed_at: int) -> Path:
    """Throughput over time, with the crash and the recovery marked."""
    from kedge.ui.timeline import Mark, Span, as_png, in_terminal

    batches = _batches(out)
    origin_us = batches[0]["planned_us"]
    spans = [
        Span(
            (b["planned_us"] - origin_us) / 1e6,
            (b["figures"]["committed_us"] - origin_us) / 1e6,
            b["figures"]["rows"],
        )
        for b in batches
    ]
    marks = [
        Mark(spans[killed_at - 1].end_s, "SIGKILL"),
        Mark(spans[killed_at].end_s, "first batch after the restart"),
    ]
    console.print(in_terminal(spans, marks), markup=False)
    picture = as_png(out / "demo.png", "A Spark driver is killed, and its run goes on", spans, marks)
    console.print(f"\nthe same as a picture: {picture}")
    return picture
