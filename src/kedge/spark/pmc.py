"""The precomputation of `kedge.move` on Spark: a map function that runs blocks of rows as tasks of one job.

Public DataFrame calls only, so it works on Spark Connect too. The job, with its arrays, travels in the closure of
the Python function; each block comes back as the bytes of its result. Kedge has to be installed on the workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kedge.move.forecast import Block, Floats, Job, Map

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def spark_map(session: SparkSession, partitions: int | None = None) -> Map:
    """A map for `kedge.move.precompute(..., run=spark_map(spark))`; by default one task per block."""

    def run(job: Job, blocks: Sequence[Block]) -> list[Floats]:
        todo = list(blocks)

        def compute(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                rows = batch.column(0).to_pylist()
                values = [job(*todo[row]).astype("<f8").tobytes() for row in rows]
                yield pa.RecordBatch.from_arrays(
                    [pa.array(rows, pa.int64()), pa.array(values, pa.binary())], ["id", "v"]
                )

        frame = session.range(0, len(todo), 1, partitions or len(todo))
        found = {row["id"]: row["v"] for row in frame.mapInArrow(compute, "id long, v binary").collect()}
        return [np.frombuffer(found[row], "<f8").astype(np.float64) for row in range(len(todo))]

    return run
