"""The two functions that run in Spark's Python workers: save a partition, give it back.

`saver` writes the rows of a task into one Parquet file and puts it whole, durable, under a name with its checksum;
`restorer` gives the rows of saved partitions back, in their order. Whatever fails while saving says so with
`SAVING`, so that the driver can tell a full disk from an error of the query.

Invariant: a file gets its name only when the rows have really ended. To Python workers, Arrow's reader shows a stream
that was broken off between two batches (the driver was killed, the task has failed) as one that is complete; what
tells them apart is that Spark keeps the connection open behind the last row.
"""

from __future__ import annotations

import inspect
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash
from pyspark.sql import SparkSession

from kedge.errors import CorruptError, UnavailableError
from kedge.host import Store
from kedge.spark.resume.job import Part, open_store, part_name

SAVING = "kedge-can't-save"
BYTES_OF_A_TASK = 16_000_000
SAVED = "partition int, rows long, bytes long, file string"

Batches = Iterator[pa.RecordBatch]


def saver(at: str, folder: str, partitions: Sequence[int], schema: pa.Schema) -> Callable[[Batches], Batches]:
    """For mapInArrow: task i saves its rows as partition `partitions[i]`; one row tells what was saved."""

    def save(batches: Batches) -> Batches:
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        connection = from_spark()
        partition, rows = partitions[task.partitionId()], 0
        sink = pa.BufferOutputStream()
        with pq.ParquetWriter(sink, schema, compression="zstd", compression_level=1) as writer:
            for batch in batches:
                rows += batch.num_rows
                writer.write_batch(batch.rename_columns(schema.names).cast(schema))
        if broken_off(connection):
            raise UnavailableError(f"Spark broke off the rows of partition {partition}: it is not saved.")
        data = sink.getvalue()
        name = part_name(folder, partition, rows, data.size, xxhash.xxh3_64_hexdigest(data))
        try:
            open_store(at).put(name, memoryview(data))
        except OSError as error:
            raise UnavailableError(f"{SAVING}: {at}/{name}: {error}. Make room there.") from error
        yield pa.RecordBatch.from_pydict(
            {"partition": [partition], "rows": [rows], "bytes": [data.size], "file": [name]},
            schema=pa.schema(
                [("partition", pa.int32()), ("rows", pa.int64()), ("bytes", pa.int64()), ("file", pa.string())]
            ),
        )

    return save


def from_spark() -> IO[bytes]:
    """What this Python worker reads its rows from; it is a variable of pyspark's own loop, further up the stack."""
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code.co_name == "main" and "infile" in frame.f_locals:
            return frame.f_locals["infile"]
        frame = frame.f_back
    raise UnavailableError(f"{SAVING}: this version of Spark does not show whether a task's rows have ended.")


def broken_off(connection: IO[bytes]) -> bool:
    """Whether the other side of a worker's connection has gone, or has given up this task."""
    with socket.socket(fileno=os.dup(connection.fileno())) as behind:
        try:
            return behind.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True


def restorer(at: str, parts: Sequence[Part], schema: pa.Schema) -> Callable[[Batches], Batches]:
    """For mapInArrow over indexes of `parts` in order: the rows of those parts."""

    def restore(batches: Batches) -> Batches:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                part = parts[index]
                data = open_store(at).get(part.file)
                if xxhash.xxh3_64_hexdigest(data) != part.checksum or len(data) != part.bytes:
                    raise CorruptError(
                        f"{at}/{part.file}: the bytes do not match the name. Run `kedge resume clean {at}`."
                    )
                table = pq.read_table(pa.BufferReader(data), schema=schema)
                yield from table.to_batches(max_chunksize=10_000)

    return restore


def tasks_of(parts: Sequence[Part]) -> int:
    """How many tasks read these parts: each in order, and not one for every small file."""
    return max(1, min(len(parts), 2 + sum(part.bytes for part in parts) // BYTES_OF_A_TASK))


def damaged(session: SparkSession, at: str, parts: Sequence[Part]) -> list[Part]:
    """The parts whose files are gone or do not match their names, looked at by tasks."""
    indexes = session.range(0, len(parts), 1, tasks_of(parts))
    found = indexes.mapInArrow(_checker(at, parts), "part long").collect()
    return [parts[row["part"]] for row in found]


def _checker(at: str, parts: Sequence[Part]) -> Callable[[Batches], Batches]:
    def check(batches: Batches) -> Batches:
        store = open_store(at)
        for batch in batches:
            bad = [index for index in batch.column(0).to_pylist() if not _matches(store, parts[index])]
            yield pa.RecordBatch.from_pydict({"part": pa.array(bad, pa.int64())})

    return check


def _matches(store: Store, part: Part) -> bool:
    try:
        data = store.get(part.file)
    except FileNotFoundError:
        return False
    return len(data) == part.bytes and xxhash.xxh3_64_hexdigest(data) == part.checksum
