"""The first batches after a start, done by the driver's own process while Spark warms up.

A JVM needs seconds until the planner of a query answers; the embedded shell needs half a second to the first commit,
and its batches are the same. So it goes on with the run, under the claim that the driver has made, until the planner
asks for it (`kedge.spark.handover`).

Where all of Spark is on this machine, the tables are the files that Spark's workers look for, at the version that the
last of these batches leaves; elsewhere they are in memory and end with the handover, and Spark's hosts restore theirs.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kedge.run.coordinator import Coordinator
from kedge.run.embedded import Embedded
from kedge.run.options import Options
from kedge.run.restore import HostTables
from kedge.run.tables import Tables
from kedge.spark.anchor import on_one_host
from kedge.spark.opened import folder_below

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# More state is not restored in a driver: on this machine it is what a worker would need as well, a driver of a
# cluster may be small.
_STATE_HERE, _STATE_ELSEWHERE = 512 << 20, 64 << 20
_POLL_MS_MAX = 20  # the planner must not wait for a driver that is idle


def first_batches(run: Coordinator, options: Options, spark: SparkSession) -> Embedded | None:
    """A shell for the first batches, not yet begun; None when the driver is to leave them to Spark."""
    here = on_one_host(spark)
    state_bytes = sum(unit.bytes for unit in run.state.units)
    if options.driver_rows == 0 or state_bytes > (_STATE_HERE if here else _STATE_ELSEWHERE):
        return None
    bounded = replace(
        options,
        nodes=1,
        rows_max=min(options.rows_max, options.driver_rows),
        poll_ms=min(options.poll_ms, _POLL_MS_MAX),
    )
    return Embedded(run, bounded, _tables(run, options, spark) if here else None)


def _tables(run: Coordinator, options: Options, spark: SparkSession) -> HostTables:
    folder = options.tables or folder_below(_local_dir(spark))
    files = Tables(folder, run.definition.id, run.query.program(run.definition.tasks), run.directory.host)
    return HostTables(files, run.directory.store, lambda: run.state)


def _local_dir(spark: SparkSession) -> str:
    """The local directory of Spark on this machine, as Spark finds it; were it another, tables would be restored."""
    context: Any = spark.sparkContext
    given = os.environ.get("SPARK_LOCAL_DIRS") or context.getConf().get("spark.local.dir")
    return (given or context._jvm.java.lang.System.getProperty("java.io.tmpdir")).split(",")[0]
