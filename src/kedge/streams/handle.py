"""A stream: durable ordered rows in partitions, below a directory.

>>> import kedge, pyarrow as pa  # doctest: +SKIP
>>> rides = kedge.stream("data/rides", schema=pa.schema([("ts", pa.timestamp("us")), ("fare", pa.int64())]))
>>> rides.append(batch).wait()
>>> rides.to_table(columns=["fare"])

Invariants:
- Opening writes nothing. The first append to a partition makes this process its writer.
- Readers see only what is durable, in whole units; rows never change once they are seen.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kedge import codec
from kedge import host as hosts
from kedge.errors import ClosedError, CorruptError, UsageError
from kedge.host import Host, is_url
from kedge.streams import committed, cut, description, named, summary, unit
from kedge.streams import schema as schemas
from kedge.streams.appender import Appender
from kedge.streams.atomic import AtomicAppends, Share
from kedge.streams.committed import CommittedIndex
from kedge.streams.committer import ObjectAtomic, ObjectPartition
from kedge.streams.files import SEGMENT_BYTES, PartitionFiles
from kedge.streams.index import Index, UnitInfo, header_of
from kedge.streams.layout import ROWS_MAX, Lineage
from kedge.streams.objects import ObjectIndex, Objects
from kedge.streams.positions import Positions, Subscription, delete_below
from kedge.streams.recovery import Recovered
from kedge.streams.ticket import Appended, Ticket
from kedge.streams.where import Given, Where
from kedge.streams.writer import PartitionWriter

_WRITES_UNDER_WAY = 4  # a disk is faster with a few requests in its queue than with one


class Stream:
    """An open stream. Use `kedge.stream` to get one."""

    def __init__(
        self,
        path: str,
        what: description.Description,
        host: Host,
        *,
        threads: int | None = None,
        takeover: bool = False,
        unit_rows: int = ROWS_MAX,
    ) -> None:
        self.path, self._what, self._host = path, what, host
        self._threads = min(2, os.cpu_count() or 1) if threads is None else threads
        self._takeover, self._unit_rows = takeover, unit_rows
        self._choosers = codec.Choosers()  # one for all partitions: their columns are alike
        self._pool: ThreadPoolExecutor | None = None
        self._io: ThreadPoolExecutor | None = None
        self._appenders: dict[int, Appender] = {}
        self._writers: dict[int, PartitionWriter | ObjectPartition] = {}
        self._objects = Objects(host, path, what.id, what.partitions, takeover=takeover) if what.objects else None
        self._indexes = self._make_indexes()
        self._atomic: AtomicAppends | ObjectAtomic | None = None
        self._positions = self._objects.positions if self._objects else Positions(host, path, what.partitions)
        self._closed = False

    def __reduce__(self) -> tuple[Any, ...]:
        return (_reopen, (self.path, self._threads))

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"kedge.stream({self.path!r})"

    def _repr_html_(self) -> str:
        """What a notebook shows: the columns, and how far each partition reaches."""
        return summary.html(self)

    @property
    def id(self) -> str:
        """32 hexadecimal digits that no other stream has."""
        return self._what.id

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._what.schema

    @property
    def partitions(self) -> int:
        """How many partitions there are."""
        return self._what.partitions

    @property
    def event_time(self) -> str | None:
        """The column that says when a row happened."""
        return self._what.event_time

    # ---- writing -------------------------------------------------------------------------------------------

    def append(
        self,
        data: Any,
        partition: int = 0,
        *,
        producer: str | None = None,
        sequence: int | None = None,
    ) -> Ticket:
        """Append rows; they are durable, all together, when the ticket's `wait()` returns.

        Rows are an Arrow batch or table, a DataFrame, a dict of columns or a list of dicts, with the stream's columns.
        With `producer` and a `sequence` that grows, a retry of an append that did happen does nothing.
        """
        self._check_partition(partition)
        self._check_own()
        batches = cut.batches(data, self.schema, empty=producer is not None, rows_max=self._unit_rows)
        return self._appender(partition).append(batches, producer, sequence)

    def append_atomic(
        self,
        parts: Mapping[int, Any],
        *,
        producer: str | None = None,
        sequence: int | None = None,
    ) -> list[Appended]:
        """Append to several partitions, in all of them or in none; returns when it is durable."""
        if not hasattr(parts, "items"):
            raise UsageError(f"An atomic append is a dict of rows by partition, not a {type(parts).__name__}.")
        for partition in parts:
            self._check_partition(partition)
        self._check_own()
        empty = producer is not None
        cuts = {p: cut.batches(parts[p], self.schema, empty=empty, rows_max=self._unit_rows) for p in sorted(parts)}
        appenders = {partition: self._appender(partition) for partition in cuts}
        with ExitStack() as stack:
            for appender in appenders.values():
                stack.enter_context(appender.stopped())
            known = [appender.known(producer, sequence) for appender in appenders.values()]
            done = [result for result in known if result is not None]
            if len(done) == len(known):
                return done
            if done:
                raise UsageError(
                    f"Append {sequence} of producer {producer!r} was made before, to partitions "
                    f"{[result.partition for result in done]} only. Repeat it as it was."
                )
            shares = [self._share(appenders[p], p, batches, producer, sequence) for p, batches in cuts.items()]
            if self._atomic is None:
                objects = self._objects
                self._atomic = objects.atomic(self._io) if objects else AtomicAppends(self._host, self.path)
            self._atomic.append(shares, producer, sequence)
            return [share.result for share in shares]

    def _share(
        self,
        appender: Appender,
        partition: int,
        batches: Sequence[pa.RecordBatch],
        producer: str | None,
        sequence: int | None,
    ) -> Share:
        first = end = appender.writer.end
        units: list[NDArray[np.uint8]] = []
        for index, batch in enumerate(batches):
            units.append(self._encode(batch, end, index + 1 < len(batches), True, producer, sequence))
            end += batch.num_rows
        return Share(
            partition, cast(PartitionWriter, self._writers[partition]), units, Appended(partition, first, end)
        )

    def flush(self) -> None:
        """Return when everything appended so far is durable."""
        for appender in list(self._appenders.values()):
            appender.flush()

    def close(self) -> None:
        """Finish what was appended and give the partitions back; a second call does nothing."""
        self._closed = True
        appenders, self._appenders = self._appenders, {}
        with ExitStack() as stack:  # all of it happens, whatever fails; the first error is raised at the end
            for index in self._indexes:
                stack.callback(index.forget)
            if self._pool is not None:
                stack.callback(self._pool.shutdown)
                self._pool = None
            if self._io is not None:
                stack.callback(self._io.shutdown)
                self._io = None
            for appender in appenders.values():
                stack.callback(appender.close)

    def recover(self) -> list[Recovered]:
        """Become the writer of every partition, now rather than at the first append; what was kept and cut."""
        return [self._writer(p).recovered for p in range(self.partitions)]

    def next_offset(self, partition: int = 0) -> int:
        """The offset that the next append of this process will begin at."""
        return self._appender(partition).next_offset

    def _appender(self, partition: int) -> Appender:
        self._writer(partition)
        return self._appenders[partition]

    def _writer(self, partition: int) -> PartitionWriter | ObjectPartition:
        if self._closed:
            raise ClosedError(f"{self.path} is closed. Open it again with kedge.stream.")
        if partition not in self._appenders:
            if self._threads and self._pool is None:
                self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="kedge-encode")
                self._io = ThreadPoolExecutor(_WRITES_UNDER_WAY, thread_name_prefix="kedge-io")
            if self._objects is not None:
                writer = self._objects.writer(partition, self._io)
            else:
                writer = PartitionWriter(
                    self._files(partition), takeover=self._takeover, io=self._io, choosers=self._choosers
                )
            self._writers[partition] = writer
            self._appenders[partition] = Appender(writer, partition, self._encode, self._pool, self._unit_rows)
        return self._writers[partition]

    def _encode(
        self,
        batch: pa.RecordBatch | pa.Table,
        first_offset: int,
        more: bool,
        atomic: bool,
        producer: str | None,
        sequence: int | None,
    ) -> NDArray[np.uint8]:
        return unit.encode(
            batch, first_offset=first_offset, seed=0, event_time=self.event_time, more=more, atomic=atomic,
            producer=producer, sequence=sequence, choosers=self._choosers, whole_pages=True,
        )  # fmt: skip

    # ---- reading -------------------------------------------------------------------------------------------

    def ends(self) -> list[int]:
        """The durable end of each partition, now."""
        if self._objects is not None:  # all partitions have one manifest
            self._objects.manifest.refresh()
            return [index.end for index in self._indexes]
        return [index.refresh() for index in self._indexes]

    def begins(self) -> list[int]:
        """The first offset of each partition that is sure to stay: the trim floor."""
        self.ends()
        first = [index.begin for index in self._indexes]
        return [max(pair) for pair in zip(first, self._positions.floors(), strict=True)]

    def units(self, partition: int, start: int = 0, end: int | None = None) -> list[UnitInfo]:
        """The durable units that hold rows of [start, end)."""
        self._check_partition(partition)
        if start < 0:
            raise UsageError(f"Offsets of {self.path} begin at 0; there is none at {start}.")
        index = self._indexes[partition]
        if end is None or end > index.end:
            index.refresh()
        return index.units(start, index.end if end is None else min(end, index.end))

    def read_unit(self, info: UnitInfo, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """The rows of one unit."""
        wanted = None if columns is None else unit.places(self.schema, columns)
        buffer = self._indexes[info.partition].file(info, wanted)
        try:
            return unit.decode(buffer, header_of(buffer, info), self.schema, columns, start=info.start)
        except CorruptError as error:
            raise CorruptError(
                f"{self.path}/{info.file}: {error} Run `kedge stream verify {self.path}`.", code=error.code
            ) from error

    def read(
        self,
        partition: int | None = None,
        start: int = 0,
        end: int | None = None,
        columns: Sequence[str] | None = None,
        where: Given | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The rows of [start, end) of one partition (or of each), unit by unit, cut to the range.

        `where={"fare": (10, None)}` gives the rows between inclusive bounds; units without any are not read.
        """
        asked = self.schema.names if columns is None else columns
        wanted = None if where is None else Where(self.schema, where)
        ends = self.ends() if partition is None else []  # of one moment: an atomic append is in all or in none
        for part in range(self.partitions) if partition is None else (partition,):
            stop = min(ends[part], end) if ends and end is not None else ends[part] if ends else end
            for info in self.units(part, start, stop):
                if wanted is not None and not self.may_hold(info, wanted):
                    continue
                batch = self.read_unit(info, columns if wanted is None else wanted.columns(asked))
                low = max(0, start - info.first_offset)
                high = info.rows if end is None else min(info.rows, end - info.first_offset)
                batch = batch if (low, high) == (0, info.rows) else batch.slice(low, high - low)
                yield batch if wanted is None else wanted.rows(batch, asked)

    def may_hold(self, info: UnitInfo, wanted: Where) -> bool:
        """Whether a unit may have a row between the bounds, by its statistics."""
        return wanted.may_hold(header_of(self._indexes[info.partition].file(info, ()), info))

    def to_table(
        self,
        partition: int | None = None,
        start: int = 0,
        end: int | None = None,
        columns: Sequence[str] | None = None,
        where: Given | None = None,
    ) -> pa.Table:
        """The same rows as one table."""
        names = self.schema.names if columns is None else columns
        schema = pa.schema([unit.field(self.schema, name) for name in names])
        return pa.Table.from_batches(self.read(partition, start, end, columns, where), schema=schema)

    # ---- trim and subscriptions -----------------------------------------------------------------------

    def subscribe(self, name: str, start: Sequence[int] | None = None) -> Subscription:
        """A saved position under `name`, new ones at `start` (default: the begin). What it has not passed stays."""
        self._check_own()
        return Subscription(name, self._positions, self.begins() if start is None else start, self.ends)

    def subscriptions(self) -> dict[str, list[int]]:
        """The positions of all subscriptions."""
        return {name: self._positions.read(name) or [] for name in self._positions.names()}

    def trim(self, below: int | Sequence[int] | None = None, *, older_us: int | None = None) -> list[int]:
        """Let go of the rows below these offsets, or of units whose event times are all before `older_us`.

        Whole segments go, as soon as no subscription needs them; returns the floors that hold now. Without
        arguments: what all subscriptions have passed, and nothing when there is none.
        """
        self._check_own()
        ends = self.ends()
        if below is None and older_us is None:
            below = self._positions.passed()
        wanted = [below] * self.partitions if isinstance(below, int) else list(below or [0] * self.partitions)
        if len(wanted) != self.partitions or min(wanted) < 0:
            raise UsageError(f"Trim {self.path} below one offset, or {self.partitions}, from 0 up; not {below}.")
        if older_us is not None:
            wanted = [max(w, self._first_since(p, older_us)) for p, w in enumerate(wanted)]
        floors = self._positions.raise_floors([min(pair) for pair in zip(wanted, ends, strict=True)])
        if self._objects is not None:
            self._objects.trim(floors)
            return floors
        needed = self._positions.needed()
        for partition, keep in enumerate(map(min, floors, needed)):
            delete_below(self._files(partition), keep)
        self._indexes = self._make_indexes()
        return floors

    def _first_since(self, partition: int, older_us: int) -> int:
        if self.event_time is None:
            raise UsageError(f"{self.path} has no event time. Trim below an offset.")
        first = 0
        for info in self.units(partition):
            if info.max_us is None or info.max_us >= older_us:
                break
            first = info.end
        return first

    # ---- a run's result ------------------------------------------------------------------------------------

    def bind(self, run_path: str, run_id: str) -> None:
        """Make this empty stream the result of a run: from now on the run's ledger is its manifest."""
        if self._what.run_id is None and any(self.ends()):
            raise UsageError(f"{self.path} has rows of its own. Give the run an empty stream.")
        self._what = description.bind(
            self._host, self.path, run_path if is_url(run_path) else os.path.abspath(run_path), run_id
        )
        self._objects = None
        self._indexes = self._make_indexes()

    @property
    def run(self) -> tuple[str, str] | None:
        """(path, id) of the run that this stream is bound to."""
        return None if self._what.run is None or self._what.run_id is None else (self._what.run, self._what.run_id)

    def encode_result(self, batch: pa.RecordBatch, file: str, lineage: Lineage) -> NDArray[np.uint8]:
        """The bytes of the result unit `file`: the run writes them, and the commit gives them their offset."""
        return named.encode(batch, self.id, file, lineage, self.event_time)

    def _make_indexes(self) -> list[Index] | list[CommittedIndex] | list[ObjectIndex]:
        if self._objects is not None:
            return self._objects.indexes()
        if self._what.run is None:
            return [Index(self._files(p)) for p in range(self.partitions)]
        manifest = committed.Manifest(self._host, self.path, self.id, self.partitions, self._what.run)
        return [CommittedIndex(manifest, p) for p in range(self.partitions)]

    def _files(self, partition: int) -> PartitionFiles:
        return PartitionFiles(self._host, self.path, self.id, partition, self._what.segment_bytes)

    def _check_own(self) -> None:
        if self._what.run_id is not None:
            raise UsageError(f"{self.path} is the result of run {self._what.run}; only that run appends to it.")

    def _check_partition(self, partition: int) -> None:
        if partition not in range(self.partitions):
            raise UsageError(f"{self.path} has partitions 0 to {self.partitions - 1}, not {partition!r}.")


def stream(
    path: str | os.PathLike[str],
    schema: pa.Schema | Mapping[str, Any] | Iterable[Any] | None = None,
    partitions: int | None = None,
    *,
    event_time: str | None = None,
    host: Host | None = None,
    threads: int | None = None,
    takeover: bool = False,
    segment_bytes: int = SEGMENT_BYTES,
    unit_rows: int = ROWS_MAX,
) -> Stream:
    """Open the stream at `path`; with `schema`, create it when there is none.

    A schema is Arrow's, or what `pyarrow.schema` takes: `{"fare": "int64"}`, `[("fare", pa.int64())]`.
    `threads=0` encodes and writes in the caller; `takeover` makes this process the writer of a partition although
    another one is; `unit_rows` is the most rows that one unit of an append has.
    """
    if not 1 <= unit_rows <= ROWS_MAX:
        raise UsageError(f"A unit has 1 to {ROWS_MAX:,} rows, not {unit_rows}.")
    place = description.normal(os.fspath(path))
    where = host or hosts.local()
    there = description.load(where, place)
    wanted = None if schema is None else schemas.given(schema)
    if there is None:
        if wanted is None:
            raise UsageError(f"There is no stream at {place}. Give a schema to create one.")
        there = description.create(
            where,
            place,
            description.new(
                where,
                wanted,
                1 if partitions is None else partitions,
                event_time,
                segment_bytes,
                objects=is_url(place),
            ),
        )
    if is_url(place) and not there.objects and there.run_id is None:
        raise UsageError(f"{place} was made in a directory. Append its rows to a stream that is made here.")
    _check_same(place, there, wanted, partitions, event_time)
    return Stream(place, there, where, threads=threads, takeover=takeover, unit_rows=unit_rows)


def _check_same(
    path: str,
    there: description.Description,
    schema: pa.Schema | None,
    partitions: int | None,
    event_time: str | None,
) -> None:
    if schema is not None and not schemas.check(schema, event_time).equals(there.schema):
        raise UsageError(f"{path} has other columns: {', '.join(f'{f.name} {f.type}' for f in there.schema)}.")
    if partitions is not None and partitions != there.partitions:
        raise UsageError(f"{path} has {there.partitions} partitions, not {partitions}.")
    if event_time is not None and event_time != there.event_time:
        raise UsageError(f"The event time of {path} is {there.event_time!r}, not {event_time!r}.")


def _reopen(path: str, threads: int) -> Stream:
    return stream(path, threads=threads)
