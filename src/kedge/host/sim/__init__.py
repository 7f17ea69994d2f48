"""Simulated machines and object stores: a test owns their time, faults and crashes, and a seed repeats them."""

from __future__ import annotations

from kedge.host.sim.calls import Call, Crashed
from kedge.host.sim.clock import SimClock
from kedge.host.sim.explore import Failure, explore, replay
from kedge.host.sim.files import SECTOR_BYTES, Fault
from kedge.host.sim.machine import SimHost, machine
from kedge.host.sim.mutate import mutate
from kedge.host.sim.store import SimStore
from kedge.host.sim.turns import Outcome, Turns, attempts

__all__ = [
    "SECTOR_BYTES",
    "Call",
    "Crashed",
    "Failure",
    "Fault",
    "Outcome",
    "SimClock",
    "SimHost",
    "SimStore",
    "Turns",
    "attempts",
    "explore",
    "machine",
    "mutate",
    "replay",
]
