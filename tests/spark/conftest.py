"""One Spark session for all tests of a pytest process: starting it costs more than most of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from kedge.spark.session import session

    local = tmp_path_factory.mktemp("spark-local")
    started = session("kedge-tests", **{"spark.local.dir": str(local)})
    yield started
    started.stop()
