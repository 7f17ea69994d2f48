"""Writing a stream from Spark, exactly once.

A task puts its rows, whole and durable, into files beside the stream (`spark/rows/...`). The commit, which runs
once on the driver's side, first puts down an *intent*: which files are this batch. Only then does it append them, and
when all are appended it says so and deletes them.

Invariants:
- The intent is put if absent, under (producer, batch): a batch that Spark runs again after a restart finds the
  intent of its first time and appends *those* files; its own are dropped, whatever order or tasks they have.
- Each file is one append with a sequence number that the intent decides: an append that is repeated does nothing.
- Only files that winning task attempts returned are named: what a lost or speculative attempt left is never read.
- A commit first finishes the intents that a dead driver left, in the order of their batches.

A reader may see the first rows of a batch while its last ones are being appended; it never sees a row twice.
"""

# ruff: noqa: N803, ARG002  (the names of the arguments are Spark's)

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kedge.errors import ConflictError, UsageError
from kedge.host import Host, Store, local
from kedge.spark.options import WriteOptions
from kedge.spark.types import check_fits, from_cross, to_arrow
from kedge.streams import Stream, stream

_FILE_BYTES = 64 << 20
_ROOT = "spark"
_BATCH_ID = "streaming.sql.batchId"  # the local property that tells a task its micro-batch
_TRIES, _PAUSE_SECONDS = 50, 0.2
# A batch's files get sequence numbers batch * 2^20 + their place.
_FILES_MAX = 1 << 20


@dataclass
class Staged(WriterCommitMessage):
    """The durable files of one task, in the order of its rows."""

    task: int
    files: list[tuple[str, int]]  # name, rows


class _Writer:
    """What both writers share: the stream, and the work of a task."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        target = _opened(options, schema)
        check_fits(schema, target.schema, target.path)
        self.path, self.columns = target.path, target.schema
        target.close()

    def _stage(self, batches: Iterator[pa.RecordBatch], producer: str) -> Staged:
        host = local()
        store = host.store(self.path)
        task = TaskContext.get()
        number = 0 if task is None else task.partitionId()
        batch = None if task is None else task.getLocalProperty(_BATCH_ID)
        prefix = f"{_ROOT}/rows/{producer}/{int(batch or 0):019d}-{number:06d}"
        files: list[tuple[str, int]] = []
        kept: list[pa.RecordBatch] = []
        for batch in batches:
            kept.append(from_cross(batch, self.columns, self.path))
            if sum(part.nbytes for part in kept) >= _FILE_BYTES:
                self._put(host, store, prefix, files, kept)
        self._put(host, store, prefix, files, kept)
        return Staged(number, files)

    def _put(
        self,
        host: Host,
        store: Store,
        prefix: str,
        files: list[tuple[str, int]],
        kept: list[pa.RecordBatch],
    ) -> None:
        rows = sum(part.num_rows for part in kept)
        if rows:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, self.columns) as out:
                for part in kept:
                    out.write_batch(part)
            name = f"{prefix}-{len(files):06d}-{host.rng.token()}.arrow"
            store.put(name, memoryview(sink.getvalue()))
            files.append((name, rows))
        kept.clear()


class BatchWriter(_Writer, DataSourceArrowWriter):
    """`df.write.format("kedge")`: all rows or, when the job fails, none."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self.job = options.producer or local().rng.token()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task: make the rows durable, out of sight."""
        return self._stage(iterator, self.job)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Once, when all tasks have succeeded."""
        commits = Commits(self.path, self.job)
        commits.commit(0, messages)
        commits.sweep(1)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """A task failed for good: nothing was appended."""
        Commits(self.path, self.job).sweep(1)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """`df.writeStream.format("kedge")`: every batch once."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self.producer = options.producer or _checkpoint_id(options.checkpoint)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task: make the rows durable, out of sight."""
        return self._stage(iterator, self.producer)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Once for each batch, and again when the driver died before Spark noted it."""
        Commits(self.path, self.producer).commit(batchId, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """The batch failed; Spark will stop the query."""
        Commits(self.path, self.producer).drop(messages)


class Commits:
    """The commits of one producer to one stream."""

    def __init__(self, path: str, producer: str, host: Host | None = None, *, threads: int | None = None) -> None:
        self._path, self._producer, self._threads = path, producer, threads
        self._host = host or local()
        self._store = self._host.store(path)

    def commit(self, batch: int, messages: Sequence[Any]) -> None:
        """Append a batch's files once; do nothing when that was done before."""
        staged = sorted((message for message in messages if message is not None), key=lambda m: m.task)
        files = [[name, rows] for message in staged for name, rows in message.files]
        if len(files) >= _FILES_MAX:
            raise UsageError(f"A batch of {len(files)} files is too big for one commit; write it in parts.")
        self._finish_pending()
        if files and batch > self._done(self._producer):
            self._apply(self._intend({"producer": self._producer, "batch": batch, "files": files}))
        self.drop(staged)
        self.sweep(batch)

    def _intend(self, intent: dict[str, Any]) -> dict[str, Any]:
        """Put the intent down; when somebody was first, theirs counts."""
        name = _intent_name(intent["producer"], intent["batch"])
        try:
            self._store.put(name, json.dumps(intent).encode(), if_absent=True)
        except FileExistsError:
            return dict(json.loads(self._store.get(name)))
        return intent

    def sweep(self, batch: int) -> None:
        """Delete files of older batches: what is left there was written by attempts that lost."""
        for name in self._store.list(f"{_ROOT}/rows/{self._producer}"):
            if int(name.rpartition("/")[2].partition("-")[0]) < batch:
                self._store.delete(name)

    def drop(self, messages: Sequence[Any]) -> None:
        """Delete what tasks wrote for a batch that does not need it (any more)."""
        for message in messages:
            for name, _ in () if message is None else message.files:
                self._store.delete(name)

    def _finish_pending(self) -> None:
        """What a driver intended and did not finish, of any producer."""
        for name in self._store.list(f"{_ROOT}/intents"):
            try:
                intent = json.loads(self._store.get(name))
            except FileNotFoundError:
                continue  # another driver is finishing it
            if intent["batch"] > self._done(intent["producer"]):
                self._apply(intent)
            else:
                self._store.delete(name)

    def _apply(self, intent: dict[str, Any]) -> None:
        """Append an intent's files, say that it is done, and clear it away. Every step may be repeated."""
        for attempt in range(_TRIES):
            try:
                self._append(intent)
                break
            except ConflictError:  # another writer holds the stream; other sinks only do so for a moment
                if attempt == _TRIES - 1:
                    raise
                self._host.clock.sleep(_PAUSE_SECONDS)
        done = json.dumps({"batch": intent["batch"]}).encode()
        self._store.put(self._done_name(intent["producer"]), done)
        for name, _ in intent["files"]:
            self._store.delete(name)
        self._store.delete(_intent_name(intent["producer"], intent["batch"]))

    def _append(self, intent: dict[str, Any]) -> None:
        batch, producer = intent["batch"], intent["producer"]
        with stream(self._path, host=self._host, threads=self._threads) as target:
            for number, (name, _) in enumerate(intent["files"]):
                try:
                    data = self._store.get(name)
                except FileNotFoundError:
                    if batch <= self._done(producer):
                        return  # another driver has just finished the same intent
                    raise
                with pa.ipc.open_stream(pa.py_buffer(data)) as rows:
                    place, sequence = (batch + number) % target.partitions, batch * _FILES_MAX + number
                    target.append(rows.read_all(), place, producer=f"spark/{producer}", sequence=sequence)
            target.flush()

    def _done(self, producer: str) -> int:
        """The newest batch of a producer that is wholly in the stream."""
        try:
            return int(json.loads(self._store.get(self._done_name(producer)))["batch"])
        except FileNotFoundError:
            return -1

    def _done_name(self, producer: str) -> str:
        return f"{_ROOT}/done/{producer}.json"


def _intent_name(producer: str, batch: int) -> str:
    return f"{_ROOT}/intents/{producer}-{batch:019d}.json"


def _opened(options: WriteOptions, schema: StructType) -> Stream:
    """The stream to write to, created with the DataFrame's columns when there is none."""
    try:
        return stream(options.path)
    except UsageError:
        return stream(
            options.path, schema=to_arrow(schema), partitions=options.partitions, event_time=options.event_time
        )


def _checkpoint_id(location: str | None) -> str:
    """The id that Spark gave a checkpoint when it was made: a deleted checkpoint never comes back under its id."""
    if location is None:
        raise UsageError(
            "A kedge sink needs to know the query again after a restart: set the query's checkpointLocation option "
            "(a default for the session does not reach the sink), or give it a name with option('producer', ...)."
        )
    path = location.removeprefix("file://").removeprefix("file:")
    store = local().store(path)
    try:
        return str(json.loads(store.get("metadata").splitlines()[-1])["id"])
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise UsageError(
            f"The checkpoint {location} can't be read from here ({error}), so its id is not known. Give this "
            "writer a name that no other has: option('producer', ...)."
        ) from error
