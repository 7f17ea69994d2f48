"""The processes that `kedge bench spine` starts, times and kills: one run, on Kedge or on plain Spark.

    python -m kedge.bench._spine_child JSON

It prints one JSON line for each event, with the monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from typing import Any


def say(event: str, **more: Any) -> None:
    """One event, now."""
    now = {"at_s": time.monotonic(), "at_us": time.time_ns() // 1000}  # the second as ledgers have it
    print(json.dumps({"event": event, **now, **more}), flush=True)


def main(given: dict[str, Any]) -> None:
    """Carry out one order."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    say("process")
    if given["kind"] == "embedded":
        kedge_run(given, None)
        return
    from kedge.spark.session import session

    spark = session("kedge bench spine", given.get("master", "local[2]"), **given.get("conf", {}))
    spark.range(1).count()
    say("session")
    if given["kind"] == "capacity":
        for order in iter(sys.stdin.readline, ""):
            serve(json.loads(order), spark)
    elif given["kind"] == "kedge":
        kedge_run(given, spark)
    else:
        plain_run(given, spark)


def _end_with(parent: int) -> None:
    """A benchmark that was killed leaves nothing behind that works on: this process leads a group of its own."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os.killpg(os.getpgid(0), signal.SIGKILL)


def serve(order: dict[str, Any], spark: Any) -> None:
    """One measurement in a session that is kept: the times at which batches were committed."""
    if order["kind"] == "kedge":
        kedge_run(order, spark)
    else:
        plain_run(order, spark)
    say("done")


def kedge_run(given: dict[str, Any], spark: Any) -> None:
    """Start or continue a run; an event for each batch that is committed."""
    import kedge
    from kedge.host import local
    from kedge.run.directory import RunDirectory

    query = kedge.sql(given["sql"], rows=kedge.stream(given["input"]))
    ledger = RunDirectory(local(), given["run"]).ledger()
    ledger.refresh()
    seen = ledger.refresh() or 0
    options = {name: given[name] for name in ("rows_max", "nodes", "driver_rows") if name in given}
    run = query.start(given["run"], into=given["into"], spark=spark, **options)
    say("started")
    left = given["batches"]
    while left > 0:
        time.sleep(0.002)
        tip = ledger.refresh() or 0
        for record in ledger.records(seen + 1) if tip > seen else ():
            if record["kind"] == "batch":
                left -= 1
                figures = {**record["figures"], "planned_us": record["planned_us"]}
                say("batch", rows=figures["rows"], figures=figures)
        seen = max(seen, tip)
        if not run.active:
            break
    run.stop()


def plain_run(given: dict[str, Any], spark: Any) -> None:
    """The same query on plain Structured Streaming; an event for each batch that Spark reports."""
    rows = spark.readStream.schema(given["schema"]).option("maxFilesPerTrigger", given["files"])
    rows = rows.parquet(given["input"]).withWatermark("ts", "0 seconds")
    rows.createOrReplaceTempView("rows")
    for name, value in given["conf"].items():
        spark.conf.set(name, value)
    query = spark.sql(given["sql"]).writeStream.format("noop").outputMode("append")
    query = query.option("checkpointLocation", given["checkpoint"]).start()
    say("started")
    seen: set[int] = set()
    while len(seen) < given["batches"] and query.isActive:
        time.sleep(0.005)
        for progress in query.recentProgress:
            if progress["batchId"] not in seen and progress["numInputRows"]:
                seen.add(progress["batchId"])
                say("batch", rows=progress["numInputRows"], figures=dict(progress["durationMs"]))
    query.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
