"""A Spark session on this machine: for local work, the demo, tests and benchmarks.

Invariants:
- The JVM listens on the loopback interface only.
- Workers run the same Python as the driver, and times are UTC on both sides.
- Every setting made here can be overridden by the caller.

It is a convenience: Kedge works in any session of Spark 4.1 or newer, on a cluster or through Spark Connect.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import threading
from contextlib import suppress
from importlib import import_module

from pyspark import SparkContext
from pyspark.sql import SparkSession

from kedge.errors import UsageError
from kedge.spark import java as javas

_HERE = os.path.dirname(os.path.abspath(__file__))


def session(
    app_name: str = "kedge", cores: str = "local[2]", java: javas.Choice = "auto", **conf: str | int | bool
) -> SparkSession:
    """The Spark session of this process, started if there is none; `conf` has Spark's own names.

    >>> spark = session("example", cores="local[1]", **{"spark.sql.shuffle.partitions": 1})
    >>> spark.conf.get("spark.sql.session.timeZone")
    'UTC'
    """
    if not re.fullmatch(r"local(\[.+\]|-cluster\[.+\])?", cores):
        raise UsageError(
            f"cores={cores!r} is not a local master: use 'local[2]' or 'local-cluster[2,1,1024]', "
            "or build a session for your cluster with SparkSession.builder."
        )
    if not _running():
        _prepare_environment(java)
        threading.Thread(target=_import, name="kedge-import", daemon=True).start()
    builder = SparkSession.builder.master(cores).appName(app_name)
    for name, value in {**_defaults(cores), **conf}.items():
        builder = builder.config(name, str(value).lower() if isinstance(value, bool) else str(value))
    return builder.getOrCreate()


def _running() -> bool:
    """Whether this process has a JVM: its Java and environment can't change any more."""
    return getattr(SparkContext, "_gateway", None) is not None


def _import() -> None:
    """What a run needs, while the JVM starts; what fails here fails again where it is needed."""
    with suppress(Exception):
        import_module("kedge.spark.runner")


def _prepare_environment(java: javas.Choice) -> None:
    """What spark-submit reads: it has no other way to be told."""
    os.environ["JAVA_HOME"] = javas.find(java).home
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def _defaults(cores: str) -> dict[str, str | int | bool]:
    count = re.search(r"\d+", cores)
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{_HERE}/log4j2.json",
        "spark.executor.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{_HERE}/log4j2.json",
        "spark.log.level": "ERROR",
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": count[0] if count else os.cpu_count() or 2,
        "spark.sql.execution.arrow.pyspark.enabled": True,
        "spark.sql.warehouse.dir": os.path.join(tempfile.gettempdir(), f"kedge-warehouse-{os.getuid()}"),
    }
