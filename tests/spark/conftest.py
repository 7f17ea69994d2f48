"""One Spark session for all tests of a pytest process: starting it costs more than most of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from kedge.spark.session import session

    local = tmp_path_factory.mktemp("spark-local")
    started = session("kedge-tests", cores="local[2,4]", **{"spark.local.dir": str(local)})
    yield started
    started.stop()


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], None]:
    """Wait until something is true, for as long as a slow machine may need."""

    def wait(done: Callable[[], bool], seconds: float = 120) -> None:
        deadline = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < deadline, "it did not happen"
            time.sleep(0.05)

    return wait
