"""The private source of a run on Spark: its offsets are plans, its rows are what fragments made.

    latestOffset: the ledger's tip -> the next plan        (one process for the whole query)
    partitions:   the plan's units, dealt to read tasks
    read:         units -> partial results, one row for each (read task, node)

Spark makes a process of its own to ask a source for its columns, and another to ask it for its reader; so this file
imports nothing of weight, and the work is in `kedge.spark.planning`, which only the processes that do it import.
"""

# ruff: noqa: N802  (the names of the methods are Spark's)

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from kedge.spark.planning import Planning

NAME = "kedge-run"
CROSSING = "node int, seq bigint, rows bigint, rows_late bigint, plan string, payload binary"


class RunSource(DataSource):
    """A run's planner and read tasks."""

    @classmethod
    def name(cls) -> str:
        """What stands in `format(...)`."""
        return NAME

    def schema(self) -> str:
        """What crosses from fragments to assemblies."""
        return CROSSING

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002
        """The planner."""
        return Planner(json.loads(self.options["run"]))


class Planner(DataSourceStreamReader):
    """Plans batches, and reads them."""

    def __init__(self, run: dict[str, Any]) -> None:
        self.run = run  # path, id, epoch, nodes, readers, rows_max, poll_ms, handover
        self._planning: Planning | None = None

    def initialOffset(self) -> dict[str, Any]:
        """The batch at the tip once the driver has handed the run over."""
        return {"nonce": self._now().state().nonce}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002
        """The next batch's plan; `start` itself when there is nothing to do."""
        return self._now().after(start)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:  # noqa: ARG002
        """The plan's units in order, dealt to read tasks of about the same number of rows."""
        if "plan" not in end:  # Spark begins with a batch even when there is nothing to do
            return []
        return self._now().dealt(end["plan"])

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """In a task: fragments of the units, cut by node."""
        from kedge.spark.planning import read

        yield read(self.run, partition)

    def _now(self) -> Planning:
        if self._planning is None:
            from kedge.spark.planning import Planning

            self._planning = Planning(self.run)
        return self._planning
