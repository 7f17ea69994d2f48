"""Reading a stream in Spark: what to read is decided in the planner, reading is done in tasks.

Invariants:
- A task reads whole units, or a range of the first and last of them, and nothing else; it trusts the unit's place
  that the planner gives it and never walks the stream.
- An offset of a streaming query is {"stream": id, "ends": {"0": offset, ...}}: a stream that was replaced under a
  checkpoint is an error, not wrong rows. Rows that were trimmed before they were read are an error too.
- With `maxRowsPerBatch` a micro-batch has at most so many rows, cut at units wherever a whole unit fits.

Streaming plans push neither columns nor filters into a Python source: `columns` or a schema do that by hand. In
batch, comparisons with a constant leave out units that can't have a row for them, by their statistics.
"""

# ruff: noqa: N802  (the names of the methods are Spark's)

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from kedge.errors import UsageError
from kedge.spark.options import EARLIEST, LATEST, ReadOptions
from kedge.spark.types import chosen, to_cross, to_spark
from kedge.streams import Stream, UnitInfo, Where, stream

# Arrow batches that cross to the JVM: big enough to be cheap, small enough that both sides work at once.
_ROWS_CROSSING = 1 << 16


@dataclass
class Piece(InputPartition):
    """What one task reads: rows [start, end) of units that lie one after the other."""

    units: tuple[UnitInfo, ...]
    start: int
    end: int


def opened(path: str) -> Stream:
    """The stream at `path`; UsageError when there is none."""
    return stream(path)


@lru_cache(maxsize=16)
def _kept_open(path: str, identity: str) -> Stream:
    """Workers and planners serve many calls: they keep streams open."""
    found = stream(path)
    if found.id != identity:
        raise UsageError(f"The stream at {path} was replaced while it was being read. Start the query again.")
    return found


class PieceReader:
    """What both readers share: the columns, and the work of a task."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        found = opened(options.path)
        self.options = options
        self.path, self.identity, self.partition_count = found.path, found.id, found.partitions
        self.event_time = found.event_time
        self.columns: pa.Schema = chosen(found.schema, schema.names, f"The stream {found.path}")
        if [field.dataType for field in to_spark(self.columns)] != [field.dataType for field in schema]:
            have = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in to_spark(found.schema).fields)
            raise UsageError(f"The schema given does not fit the stream {found.path}. Its columns are: {have}.")

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """The rows of one piece, in the order of the stream."""
        source = _kept_open(self.path, self.identity)
        for unit in partition.units:
            batch = source.read_unit(unit, self.columns.names)
            low, high = (
                max(partition.start - unit.first_offset, 0),
                min(partition.end - unit.first_offset, unit.rows),
            )
            crossing = to_cross(batch.slice(low, high - low), self.columns)
            for at in range(0, crossing.num_rows, _ROWS_CROSSING):
                yield crossing.slice(at, _ROWS_CROSSING)

    def pieces(self, units: Sequence[UnitInfo], start: int, end: int) -> Iterator[Piece]:
        """Units of one partition, dealt to tasks of about `rowsPerTask` rows."""
        taken: list[UnitInfo] = []
        rows = 0
        for unit in units:
            if taken and rows + unit.rows > self.options.rows_per_task:
                yield Piece(tuple(taken), max(start, taken[0].first_offset), min(end, taken[-1].end))
                taken, rows = [], 0
            taken.append(unit)
            rows += unit.rows
        if taken:
            yield Piece(tuple(taken), max(start, taken[0].first_offset), min(end, taken[-1].end))


class BatchReader(PieceReader, DataSourceReader):
    """`spark.read.format("kedge")`: the rows that were durable when the query was planned."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        if options.rows_max is not None or options.subscription is not None:
            raise UsageError(
                "maxRowsPerBatch and subscription are for spark.readStream; leave them out of spark.read."
            )
        self.bounds: list[tuple[str, Any, Any]] = []  # column, low, high: all of them hold

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Note what the filters ask of single columns; Spark still checks every row."""
        for one in filters:
            self.bounds += _bounds(one)
        return filters

    def partitions(self) -> list[InputPartition]:
        """Pieces of every partition, between the offsets asked for."""
        source = opened(self.path)
        starts = starting(source, self.options.starting)
        ends = source.ends()
        for partition, end in (self.options.ending or {}).items():
            _check_partition(source, partition)
            ends[partition] = min(ends[partition], end)
        found: list[InputPartition] = []
        wanted = [where for one in self.bounds for where in _where(source, one)]
        for partition, (start, end) in enumerate(zip(starts, ends, strict=True)):
            if start < end:
                units = source.units(partition, start, end)
                units = [unit for unit in units if all(source.may_hold(unit, where) for where in wanted)]
                found += self.pieces(units, start, end)
        return found or [Piece((), 0, 0)]


class StreamReader(PieceReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream.format("kedge")`."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        if options.ending is not None:
            raise UsageError("endingOffsets is for spark.read; a streaming query reads on.")
        self._last: list[int] | None = None  # Trigger.AvailableNow reads up to here

    @property
    def _source(self) -> Stream:
        """Not a field: a reader is sent to every task."""
        return _kept_open(self.path, self.identity)

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins: at its subscription, if there is one, else where it is told."""
        begin = starting(self._source, self.options.starting)
        name = self.options.subscription
        return self._offset(begin if name is None else self._source.subscribe(name, begin).positions)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark has done with everything below `end`: trim may take it, as far as this subscription goes."""
        if self.options.subscription is not None:
            ends = self._ends(end)
            self._source.subscribe(self.options.subscription, ends).commit(ends)

    def getDefaultReadLimit(self) -> ReadLimit:
        """`maxRowsPerBatch`."""
        return ReadAllAvailable() if self.options.rows_max is None else ReadMaxRows(self.options.rows_max)

    def prepareForTriggerAvailableNow(self) -> None:
        """Nothing that is appended from now on is read."""
        self._last = self._source.ends()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next micro-batch."""
        begins = self._ends(start)
        ends = self._source.ends() if self._last is None else self._last
        if isinstance(limit, ReadMaxRows):
            ends = _shares(begins, ends, limit.max_rows)
            ends = [self._cut(p, *cut) for p, cut in enumerate(zip(begins, ends, strict=True))]
        return self._offset([max(begin, end) for begin, end in zip(begins, ends, strict=True)])

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The pieces between two offsets; an error when rows between them are gone."""
        found: list[InputPartition] = []
        kept = self._source.begins()
        for partition, (first, last) in enumerate(zip(self._ends(start), self._ends(end), strict=True)):
            if first >= last:
                continue
            if first < kept[partition]:
                raise UsageError(
                    f"Rows {first} to {kept[partition]} of {self.path}, partition {partition}, were trimmed before "
                    "this query read them. Use a new checkpoint, or name a subscription, which trim respects."
                )
            found += self.pieces(self._source.units(partition, first, last), first, last)
        return found

    def _cut(self, partition: int, start: int, end: int) -> int:
        """The end of the last unit that ends by `end`; `end` itself when the first unit is longer."""
        whole = [unit.end for unit in self._source.units(partition, start, end) if unit.end <= end]
        return whole[-1] if whole else end

    def _offset(self, ends: Sequence[int]) -> dict[str, Any]:
        return {"stream": self.identity, "ends": {str(partition): end for partition, end in enumerate(ends)}}

    def _ends(self, offset: dict[str, Any]) -> list[int]:
        if offset["stream"] != self.identity:
            raise UsageError(
                f"The checkpoint was made with another stream than the one that is at {self.path} now. "
                "Put the old stream back, or start with a new checkpoint."
            )
        return [offset["ends"].get(str(partition), 0) for partition in range(self.partition_count)]


def starting(source: Stream, asked: str | dict[int, int]) -> list[int]:
    """The first offset to read in each partition; a partition that is not named begins at its first row."""
    begins = source.begins()
    if asked == EARLIEST:
        return begins
    if asked == LATEST:
        return source.ends()
    assert isinstance(asked, dict)
    for partition, offset in asked.items():
        _check_partition(source, partition)
        if offset < begins[partition]:
            raise UsageError(
                f"startingOffsets: partition {partition} of {source.path} begins at {begins[partition]}, "
                f"not at {offset}."
            )
    return [asked.get(partition, begin) for partition, begin in enumerate(begins)]


def _check_partition(source: Stream, partition: int) -> None:
    if partition >= source.partitions:
        raise UsageError(f"There is no partition {partition} in {source.path}: it has {source.partitions}, from 0.")


def _shares(starts: Sequence[int], ends: Sequence[int], rows_max: int) -> list[int]:
    """Ends that take `rows_max` rows in all, in proportion to what waits in each partition."""
    waiting = [max(0, end - start) for start, end in zip(starts, ends, strict=True)]
    total = sum(waiting)
    shares = waiting if total <= rows_max else [rows * rows_max // total for rows in waiting]
    left = min(total, rows_max) - sum(shares)
    for partition, rows in enumerate(waiting):  # what the divisions left over
        extra = min(left, rows - shares[partition])
        shares[partition] += extra
        left -= extra
    return [start + share for start, share in zip(starts, shares, strict=True)]


def _bounds(one: Filter) -> list[tuple[str, Any, Any]]:
    """What a comparison with a constant says about a column: (column, low, high), inclusive."""
    name, value = ".".join(getattr(one, "attribute", ())), getattr(one, "value", None)
    match one:
        case EqualTo():
            return [(name, value, value)]
        case GreaterThan() | GreaterThanOrEqual():
            return [(name, value, None)]
        case LessThan() | LessThanOrEqual():
            return [(name, None, value)]
        case In() if one.value and None not in one.value:
            return [(name, min(one.value), max(one.value))]
        case _:
            return []


def _where(source: Stream, bound: tuple[str, Any, Any]) -> Iterator[Where]:
    """The bound as the stream compares it; nothing when it can't (Spark's types are wider than the stream's)."""
    name, low, high = bound
    # NaN: Spark puts it above all numbers, statistics leave it out.
    if any(isinstance(value, float) and math.isnan(value) for value in (low, high)):
        return
    with suppress(UsageError):
        yield Where(source.schema, {name: (low, high)})
