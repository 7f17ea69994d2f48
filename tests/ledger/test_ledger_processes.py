"""Real processes fight over a real directory, and some are killed; plain `json` and `open` judge them."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

COORDINATOR = """
import sys
import kedge.host
from kedge.errors import ClosedError, ConflictError
from kedge.ledger import Ledger

host = kedge.host.local()
ledger = Ledger(host.store(sys.argv[1]), host.rng, host.clock)
while True:
    try:
        ledger.claim()
        for _ in range(5):
            nonce = host.rng.token()
            slot = ledger.commit({"kind": "batch", "nonce": nonce})
            print(slot, nonce, flush=True)
    except (ConflictError, ClosedError):
        pass
"""


@pytest.mark.slow
def test_processes_that_are_killed_lose_nothing_acknowledged(tmp_path: Path) -> None:
    dice, acked = random.Random(5), list[str]()
    for _ in range(3):
        outs = [tmp_path / f"out-{number}" for number in range(3)]
        alive = [start(tmp_path / "run", out) for out in outs]
        deadline = time.monotonic() + 30
        while sum(out.stat().st_size for out in outs) < 2_000 and time.monotonic() < deadline:
            time.sleep(0.05)
        dice.shuffle(alive)
        for process in alive:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        acked += [line for out in outs for line in out.read_text().splitlines(keepends=True) if line.endswith("\n")]
    assert len(acked) > 50
    records = [json.loads(file.read_text()) for file in sorted((tmp_path / "run/ledger").glob("0*.json"))]
    assert [record["slot"] for record in records] == list(range(len(records)))
    for line in acked:
        slot, nonce = line.split()
        assert records[int(slot)]["nonce"] == nonce
    claims = [record["epoch"] for record in records if record["kind"] == "claim"]
    assert claims == list(range(1, len(claims) + 1))
    assert [record["epoch"] for record in records] == sorted(record["epoch"] for record in records)


def start(root: Path, out: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", COORDINATOR, str(root)], stdout=out.open("wb"))
