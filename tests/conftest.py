"""Lanes: `KEDGE_LANE` is fast, test or soak; `lane.seeds(fast, test, soak)` says how many seeds to try.

And the one Spark session of a pytest process: starting it costs more than most tests, and a second one would be the
first one under another name, so whoever stopped it would stop it for all.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LANE = os.environ.get("KEDGE_LANE", "fast")

for name, examples in (("fast", 25), ("test", 100), ("soak", 1000)):
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


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The Spark session of this process; no test stops it."""
    from kedge.spark.session import session

    local = tmp_path_factory.mktemp("spark-local")
    started = session("kedge-tests", cores="local[2,4]", **{"spark.local.dir": str(local)})
    yield started
    started.stop()
