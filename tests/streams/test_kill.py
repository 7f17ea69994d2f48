"""A real writer on the real file system, killed with SIGKILL at random moments: what it was told is there."""

from __future__ import annotations

import pathlib
import random
import signal
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest

from kedge.streams import stream, verify

SCHEMA = pa.schema([("v", pa.int64())])
WRITER = """
import sys, pyarrow as pa
from kedge.streams import stream
path, first = sys.argv[1], int(sys.argv[2])
schema = pa.schema([("v", pa.int64())])
there = stream(path, schema, 2, segment_bytes=1 << 18)
n = first
while True:
    tickets = []
    for _ in range(8):
        count = 1 + n % 60
        batch = pa.record_batch({"v": range(n * 1000, n * 1000 + count)})
        tickets.append((n % 2, n, count, there.append(batch, n % 2)))
        n += 1
    if n % 3 == 0:
        there.append_atomic({0: pa.record_batch({"v": [n * 1000]}), 1: pa.record_batch({"v": [n * 1000]})})
        n += 1
    for partition, number, count, ticket in tickets:
        print("acked", partition, number, count, ticket.wait().first_offset, flush=True)
"""


@pytest.mark.slow
def test_killed_writers_lose_nothing(tmp_path: pathlib.Path, lane: Any) -> None:
    path = str(tmp_path / "s")
    acked: list[list[int]] = []
    first = 0
    for seed in lane.seeds(2, 5, 200):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, path, str(first)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        for _ in range(random.Random(seed).randrange(1, 120)):
            line = writer.stdout.readline().split()
            acked.append([int(field) for field in line[1:]])
        writer.send_signal(signal.SIGKILL)
        for line in writer.stdout.read().splitlines():
            if len(fields := line.split()) == 5:
                acked.append([int(field) for field in fields[1:]])
        writer.wait()
        first = max(row[1] for row in acked) + 1_000
        there = stream(path)
        held = [there.to_table(partition)["v"].to_pylist() for partition in range(2)]
        for partition, number, count, offset in acked:
            assert held[partition][offset : offset + count] == list(range(number * 1000, number * 1000 + count))
        assert not verify(path).problems
        for values in held:
            starts = [v for v in values if v % 1000 == 0]
            assert len(set(starts)) == len(starts)
