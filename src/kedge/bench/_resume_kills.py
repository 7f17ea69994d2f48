"""Drivers that are killed with SIGKILL while they save, and what the rerun in another process is worth.

`python -m kedge.bench._resume_kills` is a driver: it starts Spark, reads one task from its input, and runs it. A
spare one is always starting, because that takes longer than a small query.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SPLITS = {"spark.sql.files.maxPartitionBytes": "200000", "spark.sql.files.openCostInBytes": "0"}
_SECONDS_MAX = 300


@dataclass(frozen=True)
class Killed:
    """One query whose driver was killed: partitions saved by the dead, seconds, and what the model foretold."""

    query: str
    kills: int
    saved: int
    reused: int
    plain_s: float
    again_s: float
    spared_s: float
    bound: float
    same_rows: bool


class Drivers:
    """A spare driver that has started Spark, for the next task."""

    def __init__(self) -> None:
        self._spare: subprocess.Popen[str] | None = None

    def __enter__(self) -> Drivers:
        self._spare = _started()
        return self

    def __exit__(self, *_: object) -> None:
        if self._spare is not None:
            _kill(self._spare)

    def run_until(self, task: Mapping[str, Any], saved: int) -> bool:
        """Run a task and kill its process when the job has `saved` partitions; whether it had to be killed."""
        assert self._spare is not None
        driver = self._spare
        assert driver.stdin is not None
        driver.stdin.write(json.dumps(task) + "\n")
        driver.stdin.flush()
        until = time.monotonic() + _SECONDS_MAX
        while driver.poll() is None and files(Path(task["at"])) < saved and time.monotonic() < until:
            time.sleep(0.01)
        killed = driver.poll() is None
        _kill(driver)
        self._spare = _started()
        return killed


def _started() -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "kedge.bench._resume_kills"]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, text=True, start_new_session=True
    )


def _kill(driver: subprocess.Popen[str]) -> None:
    """The process and its JVM, which are a group of their own."""
    if driver.poll() is None:
        os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
    if driver.stdin is not None:
        driver.stdin.close()


def files(at: Path) -> int:
    """How many partitions of a job are saved."""
    return len([path for path in at.glob("parts/*/*/*.parquet") if not path.name.startswith(".")])


@contextmanager
def saving_everything() -> Generator[None]:
    """Let `kedge.resume` save every stage that can be saved, whatever it buys: small queries are worth nothing."""
    from kedge.spark.resume import run

    real = run.select

    def all_of_them(stages: Sequence[Any], *rest: Any) -> Any:
        chosen = real(stages, *rest)
        for stage in stages:
            stage.chosen = not stage.refused
        return chosen

    run.select = all_of_them
    try:
        yield
    finally:
        run.select = real


def views(spark: Any, folder: Path | str, tables: Sequence[str]) -> None:
    """Name the tables for SQL."""
    for table in tables:
        spark.read.parquet(f"{folder}/{table}").createOrReplaceTempView(table)


def rows(df: Any) -> list[Any]:
    """Rows to compare: floats to six places, in order of their text."""
    told = ([round(x, 6) if isinstance(x, float) else x for x in row] for row in df.collect())
    return sorted(map(tuple, told), key=repr)


def kill_and_resume(
    spark: Any,
    drivers: Drivers,
    query: str,
    text: str,
    place: tuple[Path, Sequence[str], Path],
    points: Sequence[int],
    options: Mapping[str, str],
) -> Killed:
    """Kill a driver at each of `points` (partitions saved), then go on here as users do.

    `place` is (tables, names, job); `options` are what the session here has been set to.
    """
    from kedge.spark.resume import api
    from kedge.spark.resume.job import Job

    folder, tables, at = place
    want = rows(spark.sql(text))
    api.resume(spark.sql(text), at=at, overhead=0.0, keep=True).collect()  # learns, saves nothing
    began = time.perf_counter()
    spark.sql(text).collect()
    plain_s = time.perf_counter() - began
    task = {"folder": str(folder), "tables": list(tables), "at": str(at), "text": text, "options": dict(options)}
    kills = sum(drivers.run_until(task, point) for point in points)
    saved = files(at)
    began = time.perf_counter()
    got = rows(
        api.resume(spark.sql(text), at=at, overhead=0.0, keep=True)
    )  # goes on; saves nothing that is not begun
    again_s = time.perf_counter() - began
    run = [record for record in Job(at).records() if record["kind"] == "run"][-1]
    return Killed(
        query=query,
        kills=kills,
        saved=saved,
        reused=sum(stage["reused"] for stage in run["stages"]),
        plain_s=plain_s,
        again_s=again_s,
        spared_s=foretold_us(run["stages"]) / 1e6,
        bound=1 - run["floor_us"] / (2 * run["end_us"]) if run["end_us"] else 0.0,
        same_rows=got == want,
    )


def foretold_us(stages: Sequence[Mapping[str, Any]]) -> float:
    """What the model says that the rerun need not do: reused shares, and stages that only led to reused ones."""
    needed = {len(stages) - 1}
    for index in range(len(stages) - 1, -1, -1):
        stage = stages[index]
        if index in needed and not (stage["partitions"] and stage["reused"] == stage["partitions"]):
            needed |= set(stage["inputs"])
    spared = 0.0
    for index, stage in enumerate(stages):
        share = stage["reused"] / stage["partitions"] if index in needed and stage["partitions"] else 0.0
        spared += stage["time_us"] * (share if index in needed else 1.0)
    return spared


def table(found: Sequence[Killed]) -> str:
    """What the kills showed, one query a line."""
    lines = [
        "| query | kills | partitions saved | reused | same rows | plain rerun (s) | resumed (s) | saved (s) | "
        "foretold (s) | ceiling of the plan (%) |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for k in found:
        lines.append(
            f"| {k.query} | {k.kills} | {k.saved} | {k.reused} | {'yes' if k.same_rows else 'NO'} | {k.plain_s:.2f} | "
            f"{k.again_s:.2f} | {k.plain_s - k.again_s:.2f} | {k.spared_s:.2f} | {100 * k.bound:.1f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """The driver to be killed."""
    from kedge.spark.resume import api
    from kedge.spark.session import session

    spark = session("kedge-killed")
    task = json.loads(sys.stdin.readline())
    for name, value in task["options"].items():
        spark.conf.set(name, value)
    views(spark, task["folder"], task["tables"])
    with saving_everything():
        api.resume(spark.sql(task["text"]), at=task["at"], keep=True).collect()


if __name__ == "__main__":
    main()
