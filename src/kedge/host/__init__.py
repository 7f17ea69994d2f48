"""The host: clock, disk, store and randomness, handed in so that a test can own them.

Nothing above this room touches time, os or random itself. `local()` is the machine this process runs on;
`kedge.host.sim` is a machine that a test can crash.
"""

from __future__ import annotations

from dataclasses import dataclass

from kedge.host.clock import Clock, SystemClock
from kedge.host.disk import Disk, File, LocalDisk, Lock
from kedge.host.objects import is_url, open_store
from kedge.host.rng import Rng, SystemRng
from kedge.host.store import DirectoryStore, Store

__all__ = [
    "Clock",
    "DirectoryStore",
    "Disk",
    "File",
    "Host",
    "LocalDisk",
    "Lock",
    "Rng",
    "Store",
    "SystemClock",
    "SystemRng",
    "is_url",
    "local",
    "open_store",
]


@dataclass(frozen=True)
class Host:
    """One machine as Kedge sees it."""

    clock: Clock
    disk: Disk
    rng: Rng

    def store(self, root: str) -> Store:
        """The objects below `root`: a directory of this host's disk, or an address such as `s3://bucket/prefix`."""
        root = root.removeprefix("file://")
        if is_url(root):
            return open_store(root)
        return DirectoryStore(self.disk, root, self.rng)


def local() -> Host:
    """The machine this process runs on."""
    return Host(clock=SystemClock(), disk=LocalDisk(), rng=SystemRng())
