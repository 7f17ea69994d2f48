"""SIGKILL while a store is written: what is found is the last version plus whole calls, and it goes on from there."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
from kill_child import BATCH

from kedge.state import open_store

CHILD = Path(__file__).with_name("kill_child.py")

pytestmark = pytest.mark.slow


def killed(url: str, scheme: str, lines: int) -> tuple[int, int]:
    """Runs the writer until it has said so many lines; the last batch that it has added and the last in a version."""
    child = subprocess.Popen([sys.executable, str(CHILD), url, scheme], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    added = version = -1
    for _ in range(lines):
        what, number = child.stdout.readline().split()
        added, version = (int(number), version) if what == "added" else (added, int(number))
    child.kill()
    child.wait(10)
    return added, version


@pytest.mark.parametrize("scheme", ["undo", "redo", "command", "full"])
@pytest.mark.parametrize("where", ["directory", "redis"])
def test_a_killed_writer_leaves_whole_calls(where, scheme, request, tmp_path, lane):
    url = str(tmp_path / "store") if where == "directory" else request.getfixturevalue("redis_url")
    for seed in lane.seeds(1, 1, 6):
        rng = random.Random(seed)
        added, version = killed(url, scheme, rng.randint(1, 30))
        store = open_store(url)
        members = sorted(store.set("k"))
        assert members == list(range(len(members)))
        batches, rest = divmod(len(members), BATCH)
        assert rest == 0
        assert batches > (version if where == "directory" else added)
        store.rollback()  # what follows the last version is open still, and can be undone
        assert len(store.set("k")) % (3 * BATCH) == 0
        assert len(store.set("k")) > BATCH * version
        store.close()
