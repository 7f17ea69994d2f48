"""The host: clock, disk, store and randomness, handed in so that a test can own them.

Nothing above this room touches time, os or random itself. `local()` is the machine this process runs on;
`kedge.host.sim` is a machine that a test can crash.
"""

from __future__ import annotations

from dataclasses import dataclass

from kedge.host.clock import Clock, SystemClock
from kedge.host.disk import Disk, File, LocalDisk, Lock
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
    "local",
]


@dataclass(frozen=True)
class Host:
    """One machine as Kedge sees it."""

    clock: Clock
    disk: Disk
    rng: Rng

    def store(self, root: str) -> Store:
        """The objects below the directory `root` of this host's disk."""
        return DirectoryStore(self.disk, root, self.rng)


def local() -> Host:
    """The machine this process runs on."""
    return Host(clock=SystemClock(), disk=LocalDisk(), rng=SystemRng())
