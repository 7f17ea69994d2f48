"""Lanes: `KEDGE_LANE` is fast, test or soak; `lane.seeds(fast, test, soak)` says how many seeds to try."""

from __future__ import annotations

import os
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, settings

LANE = os.environ.get("KEDGE_LANE", "fast")

for name, examples in (("fast", 25), ("test", 100), ("soak", 2000)):
    settings.register_profile(
        name,
        max_examples=examples,
        deadline=None,
        derandomize=name != "soak",
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
settings.load_profile(LANE)


@dataclass(frozen=True)
class Lane:
    """How much to try in this lane."""

    name: str

    def seeds(self, fast: int, test: int, soak: int) -> range:
        """A range of seeds; the first ones are the same in every lane, so a failure is found again."""
        return range({"fast": fast, "test": test, "soak": soak}[self.name])


@pytest.fixture(scope="session")
def lane() -> Lane:
    """The lane that this run of pytest is in."""
    return Lane(LANE)
