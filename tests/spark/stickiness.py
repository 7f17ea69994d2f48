"""How a task's memory-mapped table is found again on several hosts: hit rates and batch times of the candidates.

Run it as `python tests/spark/stickiness.py [--hosts executors|addresses] [--batches 60] [--nodes 2] NAME...`; it
prints one line for each candidate. Every executor of a local cluster counts as a host: it has its own folder of
tables (its working directory). With `--hosts addresses` the two workers also have different host names (127.0.0.2
and 127.0.0.3), as machines of a real cluster have, so that Spark's locality by host name can act.

A *hit* is a (batch, node) whose assembly ran on the host that assembled the same node in the batch before.
The figures are in docs/decisions; nothing here is imported by Kedge.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from kedge.spark.session import session

PAYLOAD_BYTES = 20_000
RANGES = 2
MANIFEST = "node int, batch bigint, hit boolean, host string"


class Probe(DataSource):
    """`batches` batches; each has one row per (range, node) with a payload, as the partials of a run do."""

    @classmethod
    def name(cls) -> str:
        return "stickiness-probe"

    def schema(self) -> str:
        return "node int, seq bigint, ts timestamp, key int, batch bigint, payload binary"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return ProbeReader(json.loads(self.options["keys"]), int(self.options["batches"]))


class ProbeReader(DataSourceStreamReader):
    def __init__(self, keys: list[list[int]], batches: int) -> None:
        self.keys, self.batches = keys, batches

    def initialOffset(self) -> dict[str, int]:
        return {"batch": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        return {"batch": min(start["batch"] + 1, self.batches)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition((end["batch"], part)) for part in range(RANGES)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batch, part = partition.value
        nodes = list(range(len(self.keys)))
        n = len(nodes)
        fresh = [self.keys[node][(batch * RANGES + part) % len(self.keys[node])] for node in nodes]
        yield pa.record_batch(
            {
                "node": pa.array(nodes, pa.int32()),
                "seq": pa.array([part] * n, pa.int64()),
                "ts": pa.array([batch * 1_000_000] * n, pa.timestamp("us", "UTC")),
                "key": pa.array(fresh, pa.int32()),
                "batch": pa.array([batch] * n, pa.int64()),
                "payload": pa.array([os.urandom(PAYLOAD_BYTES)] * n, pa.binary()),
            }
        )


def host_here() -> str:
    """In local mode every worker is on one host; an executor of a cluster has a working directory of its own."""
    return os.getcwd()


def assemble(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Find each node's table in this host's folder, and leave it there at its new version."""
    seen: dict[int, int] = {}
    for part in batches:
        for node, batch in zip(part.column("node").to_pylist(), part.column("batch").to_pylist(), strict=True):
            seen[node] = batch
    yield manifest([(node, batch, found(node, batch)) for node, batch in seen.items()])


def assemble_any(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a barrier stage: the tasks tell each other what their hosts have, and share the nodes out by that."""
    from pyspark import BarrierTaskContext

    parts = list(batches)
    seen = {
        node: batch
        for part in parts
        for node, batch in zip(part.column("node").to_pylist(), part.column("batch").to_pylist(), strict=True)
    }
    mine = json.dumps([host_here(), sorted(seen), {str(n): version(n) for n in range(64) if version(n)}])
    everyone = [json.loads(text) for text in BarrierTaskContext.get().allGather(mine)]
    batch = max(seen.values())
    slots = {}
    for place, (host, nodes, versions) in enumerate(everyone):
        slots[place] = (host, len(nodes), {int(n) for n, v in versions.items() if v == batch - 1})
    rest = {node for _, nodes, _ in everyone for node in nodes}
    given: dict[int, list[int]] = {}
    for place, (_, room, has) in slots.items():  # first what is here, then what is left
        given[place] = sorted(rest & has)[:room]
        rest -= set(given[place])
    for place, (_, room, _) in slots.items():
        while len(given[place]) < room:
            given[place].append(rest.pop())
    place = BarrierTaskContext.get().partitionId()
    yield manifest([(node, batch, found(node, batch)) for node in given[place]])


def manifest(rows: list[tuple[int, int, bool]]) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "node": pa.array([row[0] for row in rows], pa.int32()),
            "batch": pa.array([row[1] for row in rows], pa.int64()),
            "hit": pa.array([row[2] for row in rows], pa.bool_()),
            "host": pa.array([host_here()] * len(rows), pa.string()),
        }
    )


def version(node: int) -> int:
    try:
        with open(f"table-{node}") as file:
            return int(file.read() or 0)
    except FileNotFoundError:
        return 0


def found(node: int, batch: int) -> bool:
    hit = version(node) == batch - 1
    with open(f"table-{node}", "w") as file:
        file.write(str(batch))
    return hit


def assemble_grouped(key: tuple[int], frames: Iterator[Any], state: Any) -> Iterator[Any]:
    """The anchor and the assembly in one: a stateful Python operator that keeps one integer per node."""
    import pandas as pd

    rows = [row for frame in frames for row in zip(frame["node"], frame["batch"], strict=True)]
    state.update((int(rows[0][1]),))
    node, batch = (int(value) for value in rows[0])
    yield pd.DataFrame({"node": [node], "batch": [batch], "hit": [found(node, batch)], "host": [host_here()]})


def plain(df: DataFrame, nodes: int) -> DataFrame:
    return df.repartitionById(nodes, "node").mapInArrow(assemble, MANIFEST)


def barrier(df: DataFrame, nodes: int) -> DataFrame:
    return df.repartitionById(nodes, "node").mapInArrow(assemble_any, MANIFEST, barrier=True)


def anchor_dedup(df: DataFrame, nodes: int) -> DataFrame:
    """Every row has a fresh key that hashes to its node, so nothing is dropped; state of old batches is evicted."""
    kept = df.withWatermark("ts", "0 seconds").dropDuplicatesWithinWatermark(["key"])
    return kept.mapInArrow(assemble, MANIFEST)


def anchor_grouped(df: DataFrame, nodes: int) -> DataFrame:
    from pyspark.sql.streaming.state import GroupStateTimeout

    first = df.withColumn("place", F.element_at(F.from_json(F.lit(KEYS["first"]), "array<int>"), df["node"] + 1))
    return first.groupBy("place").applyInPandasWithState(
        assemble_grouped, MANIFEST, "batch bigint", "update", GroupStateTimeout.NoTimeout
    )


def anchor_cached(df: DataFrame, nodes: int) -> DataFrame:
    """Joined with a cached frame that has one row per node: its blocks stay where they were computed."""
    spark = df.sparkSession
    first = json.loads(KEYS["first"])
    anchor = spark.createDataFrame([(key,) for key in first], "place int").repartition(nodes, "place").persist()
    anchor.count()
    placed = df.withColumn("place", F.element_at(F.from_json(F.lit(KEYS["first"]), "array<int>"), df["node"] + 1))
    return placed.join(anchor.hint("shuffle_hash"), "place").mapInArrow(assemble, MANIFEST)


KEYS: dict[str, str] = {}
SHUFFLE_FREE = {"spark.shuffle.reduceLocality.enabled": False}
ROCKS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": True,
}
CANDIDATES: dict[str, tuple[Any, dict[str, Any]]] = {
    "plain": (plain, {}),
    "plain, reduceLocality off": (plain, SHUFFLE_FREE),
    "plain, locality.wait 0": (plain, {"spark.locality.wait": "0s"}),
    "barrier": (barrier, {}),
    "dedup": (anchor_dedup, {}),
    "dedup, RocksDB": (anchor_dedup, ROCKS),
    "dedup, locality.wait 0": (anchor_dedup, {"spark.locality.wait": "0s"}),
    "grouped state": (anchor_grouped, {}),
    "cached": (anchor_cached, {}),
    "cached, reduceLocality off": (anchor_cached, SHUFFLE_FREE),
    "cached, reduceLocality off, locality.wait 0.3 s": (
        anchor_cached,
        {**SHUFFLE_FREE, "spark.locality.wait": "300ms"},
    ),
}


def keys_of_nodes(spark: SparkSession, nodes: int, each: int) -> list[list[int]]:
    """For every node, integers that Spark hashes (Murmur3) to the partition of that node."""
    found: list[list[int]] = [[] for _ in range(nodes)]
    rows = spark.range(nodes * each * 3).selectExpr(
        "cast(id as int) as id", f"pmod(hash(cast(id as int)), {nodes})"
    )
    for key, node in rows.collect():
        found[node].append(key)
    return [keys[:each] for keys in found]


def measure(spark: SparkSession, name: str, nodes: int, batches: int) -> dict[str, Any]:
    spark.dataSource.register(Probe)
    keys = keys_of_nodes(spark, nodes, 4 * batches * RANGES)
    KEYS["first"] = json.dumps([of_node[0] for of_node in keys])
    source = spark.readStream.format("stickiness-probe").option("keys", json.dumps(keys)).option("batches", batches)
    manifests: list[Any] = []
    ended: list[float] = []

    def commit(df: DataFrame, _: int) -> None:
        manifests.extend(df.collect())
        ended.append(time.monotonic())

    with tempfile.TemporaryDirectory() as checkpoint:
        frame = CANDIDATES[name][0](source.load(), nodes)
        query = (
            frame.writeStream.outputMode("append" if name != "grouped state" else "update")
            .option("checkpointLocation", checkpoint)
            .foreachBatch(commit)
            .start()
        )
        while query.isActive and not (manifests and manifests[-1].batch >= batches):
            time.sleep(0.05)
        query.stop()
        if query.exception():
            raise query.exception()
    counted = [row for row in manifests if row.batch > 5]  # the first batches warm up
    gaps = sorted(b - a for a, b in itertools.pairwise(ended[5:]))
    return {
        "hits": sum(row.hit for row in counted) / len(counted),
        "seconds": gaps[len(gaps) // 2],
        "seconds_p95": gaps[int(len(gaps) * 0.95)],
        "hosts": len({row.host for row in counted}),
        "missing": nodes * (batches - 5) - len({(row.node, row.batch) for row in counted}),
    }


def cluster(hosts: str) -> tuple[str, list[subprocess.Popen[bytes]]]:
    """A master for the session; with `addresses`, a master and two workers with host names of their own."""
    if hosts == "local":
        return "local[2]", []
    if hosts == "executors":
        return "local-cluster[2,1,1024]", []
    from pyspark.find_spark_home import _find_spark_home

    start = f"{_find_spark_home()}/bin/spark-class"
    package = "org.apache.spark.deploy"
    processes = [subprocess.Popen([start, f"{package}.master.Master", "--host", "127.0.0.1", "--port", "17077"])]
    time.sleep(8)
    for address in ("127.0.0.2", "127.0.0.3"):
        environment = {**os.environ, "SPARK_LOCAL_IP": address}
        arguments = ["--host", address, "--cores", "1", "--memory", "1g", "spark://127.0.0.1:17077"]
        processes.append(subprocess.Popen([start, f"{package}.worker.Worker", *arguments], env=environment))
    time.sleep(8)
    return "spark://127.0.0.1:17077", processes


def one(name: str, hosts: str, nodes: int, batches: int) -> None:
    """Measure one candidate in this process: some settings belong to the whole Spark context."""
    work = tempfile.mkdtemp(prefix="stickiness-")
    os.environ["SPARK_WORKER_DIR"] = work
    master, processes = cluster(hosts)
    try:
        settings = {
            "spark.executor.memory": "512m",
            "spark.executor.cores": 1,
            "spark.sql.shuffle.partitions": nodes,
            "spark.sql.autoBroadcastJoinThreshold": -1,
            **CANDIDATES[name][1],
        }
        if processes:
            settings["spark.master"] = master
        spark = session("stickiness", cores=master if not processes else "local[2]", **settings)
        print(
            json.dumps({"name": name, "nodes": nodes, "on": hosts} | measure(spark, name, nodes, batches)),
            flush=True,
        )
        spark.stop()
    finally:
        for process in processes:
            process.kill()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--hosts", choices=["local", "executors", "addresses"], default="executors")
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    if len(given.names) == 1:
        one(given.names[0], given.hosts, given.nodes, given.batches)
        return
    for name in given.names or CANDIDATES:
        sizes = ["--hosts", given.hosts, "--nodes", str(given.nodes), "--batches", str(given.batches)]
        subprocess.run([sys.executable, __file__, *sizes, name], check=False)


if __name__ == "__main__":
    main()
