"""A unit in a file of its own, whose name is its place: results of a run, and its state.

The name is used once, so the seed of its checksums needs nothing else. Its offset is not in it: that is decided by
the commit, after the unit was written.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kedge.errors import CorruptError
from kedge.streams import layout, unit
from kedge.streams.layout import Lineage

FOLDER = "units"  # of a result stream's directory


def seed(owner: str, file: str) -> int:
    """The seed of the unit in `file` of the stream or run with the id `owner`."""
    return layout.checksum(file.encode(), layout.seed(owner, 0, 0, 0, 0))


def encode(
    batch: pa.RecordBatch, owner: str, file: str, lineage: Lineage, event_time: str | None = None
) -> NDArray[np.uint8]:
    """The bytes of the file."""
    return unit.encode(
        batch,
        first_offset=0,
        seed=seed(owner, file),
        lineage=lineage,
        event_time=event_time,
        epoch=lineage.epoch,
    )


def decode(
    data: bytes, owner: str, file: str, schema: pa.Schema, columns: Sequence[str] | None = None
) -> pa.RecordBatch:
    """The rows of the file; CorruptError names it."""
    try:
        return unit.decode(data, unit.header(data, seed=seed(owner, file)), schema, columns)
    except CorruptError as error:
        raise CorruptError(f"{file}: {error} Restore the file from a copy.", code=error.code) from error
