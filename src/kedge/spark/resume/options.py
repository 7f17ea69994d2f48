"""The session's options that are part of a query's identity.

An option counts unless it is known that the same plan computes the same rows under any value of it. Three kinds do
not count, and nothing else is left out, so that an option nobody here has heard of invalidates rather than misleads:
- how a plan is found: the plan itself is part of the identity;
- how a plan runs: sizes of splits and batches that no expression can see, code generation, storage of caches;
- what is around it: the UI, messages, catalogs' addresses, streaming.

An option that is set to Spark's own default is as good as unset.
"""

from __future__ import annotations

from typing import Any

import pyspark
from pyspark.sql import SparkSession

PREFIX = "spark.sql."
_ALWAYS = ("spark.sql.session.timeZone", "spark.sql.ansi.enabled")  # their defaults come from the machine

_FINDING = (
    "adaptive.", "autoBroadcast", "bucketing.", "cbo.", "csv.filterPushdown.", "join.", "json.filterPushdown.",
    "optimizer.", "orc.aggregatePushdown", "orc.filterPushdown", "parquet.aggregatePushdown",
    "parquet.filterPushdown", "planner.", "python.filterPushdown.", "shuffle.", "shuffledHashJoinFactor",
    "sources.bucketing.", "sources.parallelPartitionDiscovery.", "sources.v2.bucketing.", "statistics.",
)  # fmt: skip
_RUNNING = (
    "broadcast", "cache.", "classic.", "codegen.", "defaultCacheStorageLevel", "execution.arrow.pyspark.",
    "execution.reuse", "files.maxPartition", "files.minPartition", "files.openCost", "inMemoryColumnarStorage.",
    "leafNodeDefaultParallelism", "maxBroadcastTableSize", "maxSinglePartitionBytes", "orc.columnar",
    "orc.enableVectorizedReader", "parquet.columnarReaderBatchSize", "parquet.compression.",
    "parquet.enableVectorizedReader", "shuffleDependency.", "window.",
)  # fmt: skip
_AROUND = (
    "artifact.", "catalogImplementation", "cli.", "connect.", "debug.", "error.", "event.",
    "extendedExplainProviders", "maven.", "maxMetadataString", "maxPlanString", "metadataCacheTTL", "pipelines.",
    "queryExecutionListeners", "redaction.", "repl.", "stackTraces", "streaming.", "thriftServer.",
    "thriftserver.", "ui.", "warehouse.",
)  # fmt: skip
_HARMLESS = tuple(PREFIX + name for name in (*_FINDING, *_RUNNING, *_AROUND))


def that_count(session: SparkSession) -> dict[str, str]:
    """The options that may change results, where they are not Spark's defaults, and Spark's version."""
    given: dict[str, str] = dict(session.conf.getAll)
    jvm: Any = session.sparkContext._jvm  # pyright: ignore[reportPrivateUsage]
    known: Any = getattr(getattr(jvm.org.apache.spark.sql.internal, "SQLConf$"), "MODULE$")
    kept = {"spark.version": pyspark.__version__}
    for name, value in given.items():
        if name.startswith(PREFIX) and not name.startswith(_HARMLESS):
            entry = known.getConfigEntry(name)
            if entry is None or str(entry.defaultValueString()) != value:
                kept[name] = value
    return {**kept, **{name: str(session.conf.get(name)) for name in _ALWAYS}}
