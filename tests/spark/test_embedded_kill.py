"""The embedded runner in a process of its own, killed at random moments: results are plain Spark SQL's."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import rows

from kedge.host import local
from kedge.run import Options, sql
from kedge.run.directory import RunDirectory

BATCHES = 24


def start(run: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "kedge.cli", "run", "start", "--rows-max", "1", "--finish", str(run)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def kill_after_a_few_batches(child: subprocess.Popen[bytes], run: Path, rng: random.Random) -> bool:
    """SIGKILL at a random moment of a random batch; False when the process ended before."""
    ledger = RunDirectory(local(), str(run)).ledger()
    goal = (ledger.refresh() or 0) + rng.randrange(1, 8)
    while child.poll() is None:
        if (ledger.refresh() or 0) >= goal:
            time.sleep(rng.random() * 0.02)
            child.kill()
            child.wait()
            return True
        time.sleep(0.001)
    return False


@pytest.mark.slow
def test_killed_at_random_moments(spark: Any, lane: Any, tmp_path: Path) -> None:
    want = rows.oracle(spark, BATCHES)
    kills = 0
    for seed in lane.seeds(1, 3, 30):
        rng = random.Random(seed)
        folder = tmp_path / str(seed)
        with rows.make(str(folder / "rides")) as source:
            rows.feed(source, 0, BATCHES)
            query = sql(rows.QUERY, watermark=rows.WATERMARK, rides=source)
            query.define(str(folder / "run"), str(folder / "results"), Options())
        for _ in range(4):
            kills += kill_after_a_few_batches(start(folder / "run"), folder / "run", rng)
        assert start(folder / "run").wait() == 0
        assert rows.results(str(folder / "results")) == want
    assert kills >= 3, "hardly any process lived long enough to be killed"
