"""The writer measures what the disk takes, and the choosers go by it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from kedge.host import SystemClock, local
from kedge.streams import stream

ROWS = 1 << 20


@dataclass
class StretchedClock(SystemClock):
    """Every look at the clock takes so long."""

    step_ns: int
    now_ns: int = 0

    def monotonic_ns(self) -> int:
        self.now_ns += self.step_ns
        return self.now_ns


def unit_sizes(path: Path, step_ns: int) -> list[int]:
    """The sizes of four units of one column, written to a disk that seems to be fast or slow."""
    draw = np.random.default_rng(0)
    host = replace(local(), clock=StretchedClock(step_ns))
    few = draw.integers(0, 1 << 60, 4000)
    with stream(path, pa.schema([("v", pa.int64())]), host=host, threads=0) as there:
        for _ in range(4):
            there.append(pa.record_batch({"v": few[draw.integers(0, few.size, ROWS)]})).wait()
        return [info.bytes for info in there.units(0)]


def test_a_slow_disk_is_written_less(tmp_path: Path) -> None:
    slow = unit_sizes(tmp_path / "slow", 10**9)
    fast = unit_sizes(tmp_path / "fast", 10_000)
    assert slow[0] == fast[0], "nothing is measured before the first sync"
    assert slow[-1] < fast[-1] / 2, "on a fast disk this column is not worth a dictionary"
