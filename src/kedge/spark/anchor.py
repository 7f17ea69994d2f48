"""Keeps every node's assembly on the host that has its tables, on a cluster with several hosts.

Spark gives a task of an exchange to any executor, so a node would find its tables only by chance. The anchor is a
tiny cached frame with one partition for each node; the partials are joined with it before the assembly, and Spark
runs a task where the cached block of its partition is. When an executor is lost its blocks are computed elsewhere,
and those nodes move; the others stay.

Invariants:
- It carries no data and is never needed for correctness: tables that are not found are restored.
- It works only with `spark.shuffle.reduceLocality.enabled=false`: else the preference of the exchange (every host
  that has some of its output, so nearly all) comes first. `placed` leaves the frame as it is when that is not set.
- Places are integers that Spark's hash (Murmur3) sends to the partition of their node; `repartitionById` is no help
  here, since the two sides of a join must be partitioned in the same way.

The other candidates, with their hit rates: docs/decisions/0070-finding-a-table-on-several-hosts.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SETTING = "spark.shuffle.reduceLocality.enabled"


def on_one_host(spark: SparkSession) -> bool:
    """Whether all of Spark's work is done on the driver's machine."""
    master = spark.sparkContext.getConf().get("spark.master", "") or ""
    return master == "local" or master.startswith("local[")


def wanted(spark: SparkSession) -> bool:
    """Whether there may be several hosts, and Spark's settings let an anchor hold."""
    return not on_one_host(spark) and (spark.sparkContext.getConf().get(_SETTING, "true") or "").lower() == "false"


class Anchor:
    """The cached frame of one run."""

    def __init__(self, spark: SparkSession, nodes: int) -> None:
        spark.conf.set("spark.sql.shuffle.partitions", str(nodes))
        spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
        self._places = places(spark, nodes)
        rows = [(node, place) for node, place in enumerate(self._places)]
        frame = spark.createDataFrame(rows, "anchored int, place int").repartition(nodes, "place")
        self._frame = frame.select("place").persist()
        self._frame.count()  # now the blocks are somewhere

    def placed(self, partials: DataFrame) -> DataFrame:
        """The same rows, exchanged by node, in tasks that run where the node's block is."""
        from pyspark.sql import functions

        place = functions.element_at(functions.array(*map(functions.lit, self._places)), partials["node"] + 1)
        joined = partials.withColumn("place", place).join(self._frame.hint("shuffle_hash"), "place")
        return joined.drop("place")

    def release(self) -> None:
        """Give the cache back."""
        self._frame.unpersist()


def places(spark: SparkSession, nodes: int) -> list[int]:
    """For every node the first integer whose hash partition of `nodes` is that node's."""
    found: dict[int, int] = {}
    start, step = 0, 16 * nodes
    while len(found) < nodes:
        hashed = spark.range(start, start + step).selectExpr(
            "cast(id as int) AS place", f"pmod(hash(cast(id as int)), {nodes}) AS node"
        )
        for row in hashed.orderBy("place").collect():
            found.setdefault(row.node, row.place)
        start += step
    return [found[node] for node in range(nodes)]
