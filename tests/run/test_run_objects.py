"""A run whose input, directory and results are in an object store: crashed at every call of its process."""

from __future__ import annotations

from typing import Any

from kedge.testing.crash import crash, io_calls
from kedge.testing.workload import Workload

ROOT = "s3://bucket/w"


def test_a_run_in_an_object_store_survives_every_crash(lane: Any) -> None:
    for seed in lane.seeds(1, 3, 20):
        work = Workload(seed, units=3, rows=6, root=ROOT)
        stride = {"fast": 29, "test": 5}.get(lane.name, 1)
        for crash_at in io_calls(work, seed)[seed % stride :: stride]:
            before, after = crash(work, "stop", seed, crash_at)
            assert not before.machine.names.visible, "something is on a disk that another machine does not have"
            assert not after.machine.names.visible
