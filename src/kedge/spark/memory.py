"""`format("kedge-memory")`: the same Arrow batch again and again, the most that any Python data source can read.

`kedge bench streams` reads it beside a stream: what is left of Spark's time when reading costs nothing.
"""

# ruff: noqa: ARG002  (the names of the arguments are Spark's)

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kedge.spark.types import to_cross, to_spark


class MemorySource(DataSource):
    """Options: `path` of an Arrow IPC file with one batch, `tasks`, and `batches`: how often each task yields it."""

    @classmethod
    def name(cls) -> str:
        """What stands in `format(...)`."""
        return "kedge-memory"

    def schema(self) -> StructType:
        """The file's columns."""
        return to_spark(_batch(self.options["path"]).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`."""
        return _Reader(self.options["path"], int(self.options["tasks"]), int(self.options["batches"]))


class _Reader(DataSourceReader):
    def __init__(self, path: str, tasks: int, batches: int) -> None:
        self._path, self._tasks, self._batches = path, tasks, batches

    def partitions(self) -> list[InputPartition]:
        """As many as were asked for, all alike."""
        return [InputPartition(task) for task in range(self._tasks)]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """The batch, from memory."""
        batch = _batch(self._path)
        crossing = to_cross(batch, batch.schema)
        for _ in range(self._batches):
            yield crossing


def _batch(path: str) -> pa.RecordBatch:
    with pa.OSFile(path) as file, pa.ipc.open_file(file) as rows:
        return rows.get_batch(0)
