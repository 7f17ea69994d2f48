"""A workload for simulated crashes, and what must hold after one. It knows the public stream only.

Every append carries numbers that no other append has, in order; so what a stream holds says by itself which appends
are there, whole or in part.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from kedge.errors import ClosedError, ConflictError, UnavailableError
from kedge.host.sim import SimHost
from kedge.streams import Stream, Ticket, stream

PATH = "/data/s"
# So many columns that a unit's header is longer than a sector: then it can be torn.
NAMES = ("v", "a", "b", "c", "d", "e", "f", "g")
SCHEMA = pa.schema([(name, pa.int64()) for name in NAMES])
PARTITIONS = 2
SEGMENT_BYTES = 1 << 16


def opened(host: SimHost, **options: Any) -> Stream:
    return stream(
        PATH, SCHEMA, PARTITIONS, host=host, threads=0, segment_bytes=SEGMENT_BYTES, unit_rows=3, **options
    )


def rows(first: int, count: int) -> pa.RecordBatch:
    values = pa.array(range(first, first + count), pa.int64())
    return pa.record_batch([values] * len(NAMES), schema=SCHEMA)


@dataclass
class Sent:
    """One append that was begun."""

    partition: int
    values: list[int]
    ticket: Ticket | None = None
    group: int | None = None  # the first value of the parts that happen together


@dataclass
class Log:
    """What the workload did, kept outside of the machine that crashes."""

    sent: list[Sent] = field(default_factory=list)
    acked: list[tuple[int, int, list[int]]] = field(default_factory=list)  # partition, first offset, values
    floors: dict[int, int] = field(default_factory=dict)  # partition -> the highest floor that was asked for
    promised: list[int] | None = None  # the subscription's positions: from there on nothing is trimmed
    next_value: int = 0


def writer(host: SimHost, log: Log, base: int, refused: tuple[type[Exception], ...] = ()) -> Callable[[], int]:
    """Appends under a takeover, and takes over again when it is pushed out; `refused` are errors of the takeover."""

    def work() -> int:
        acked, value = 0, base
        for _ in range(4):
            try:
                mine = opened(host, takeover=True)
            except refused:
                continue
            try:
                for count in (1, 4, 2):
                    sent = Sent(0, list(range(value, value + count)))
                    log.sent.append(sent)
                    value += count
                    where = mine.append(rows(sent.values[0], count), 0).wait()
                    log.acked.append((0, where.first_offset, sent.values))
                    acked += 1
            except (ConflictError, ClosedError, UnavailableError):
                continue
        return acked

    return work


class Workload:
    """Appends, waits, rolls, closes, reopens and takeovers, in an order that the seed decides."""

    def __init__(self, seed: int, steps: int, log: Log) -> None:
        self.rng, self.steps, self.log = random.Random(seed), steps, log
        self.counts = (7, 28) if seed % 4 == 3 else (1, 2, 3, 7)  # 28 rows fill more than half a segment
        self.stream: Stream
        self.zombies: list[tuple[Stream, list[Sent]]] = []
        self.open: list[Sent] = []

    def run(self, host: SimHost) -> None:
        self.host = host
        self.stream = self.opened()
        for _ in range(self.steps):
            try:
                self.step()
            except (ClosedError, OSError):  # a sync has failed
                self.start_again()
        with suppress(ClosedError, OSError):
            self.wait()

    def start_again(self) -> None:
        self.open = []
        with suppress(ClosedError, ConflictError, OSError):
            self.stream.close()
        self.stream = self.opened()

    def opened(self) -> Stream:
        """One call of the disk may fail while the stream is made; the next attempt finds what is there."""
        with suppress(UnavailableError, OSError):
            return opened(self.host)
        return opened(self.host)

    def step(self) -> None:
        choice = self.rng.random()
        for limit, action in (
            (0.42, self.append),
            (0.54, self.append_to_all),
            (0.62, self.wait),
            (0.70, self.reopen),
            (0.77, self.take_over),
            (0.84, self.zombie_moves),
            (0.90, self.trim),
            (0.94, self.subscribe),
            (1.00, self.retry),
        ):
            if choice < limit:
                action()
                return

    def reopen(self) -> None:
        self.wait()
        self.stream.close()
        self.stream = opened(self.host)

    def trim(self) -> None:
        ends = self.stream.ends()
        wanted = [self.rng.randrange(end + 1) for end in ends]
        for partition, floor in enumerate(wanted):
            self.log.floors[partition] = max(floor, self.log.floors.get(partition, 0))
        self.stream.trim(wanted)

    def subscribe(self) -> None:
        """A reader that is promised what it has not passed, and passes some of it."""
        reader = self.stream.subscribe("r")
        self.log.promised = list(reader.positions)
        if self.rng.random() < 0.5:
            ends = self.stream.ends()
            self.log.promised = None  # while it moves, only the older promise or the newer one holds
            reader.commit([self.rng.randrange(end + 1) for end in ends])
            self.log.promised = list(reader.positions)

    def append_to_all(self) -> None:
        self.wait()
        parts = [self.begin(partition, 2 + 3 * partition) for partition in range(PARTITIONS)]
        for sent in parts:
            sent.group = parts[0].values[0]
        done = self.stream.append_atomic({s.partition: rows(s.values[0], len(s.values)) for s in parts})
        for sent, where in zip(parts, done, strict=True):
            self.log.acked.append((sent.partition, where.first_offset, sent.values))

    def retry(self) -> None:
        """An append with a producer's number, then the same again from a new process: it is there once."""
        self.wait()
        sent = self.begin(0, 2)
        number = sent.values[0]
        first = self.stream.append(rows(number, 2), 0, producer="p", sequence=number).wait()
        self.log.acked.append((0, first.first_offset, sent.values))
        if self.rng.random() < 0.5:
            self.reopen()
        again = self.stream.append(rows(number, 2), 0, producer="p", sequence=number).wait()
        assert (again.first_offset, again.end, again.duplicate) == (first.first_offset, first.end, True)

    def append(self) -> None:
        partition = self.rng.randrange(PARTITIONS)
        count = self.rng.choice(self.counts)
        sent = self.begin(partition, count)
        sent.ticket = self.stream.append(rows(sent.values[0], count), partition)
        self.open.append(sent)
        if self.rng.random() < 0.5:
            self.wait()

    def begin(self, partition: int, count: int) -> Sent:
        sent = Sent(partition, list(range(self.log.next_value, self.log.next_value + count)))
        self.log.next_value += count
        self.log.sent.append(sent)
        return sent

    def wait(self) -> None:
        for sent in self.open:
            assert sent.ticket is not None
            self.acknowledge(sent)
        self.open = []

    def acknowledge(self, sent: Sent) -> None:
        assert sent.ticket is not None
        where = sent.ticket.wait()
        assert where.end - where.first_offset == len(sent.values)
        self.log.acked.append((sent.partition, where.first_offset, sent.values))

    def take_over(self) -> None:
        """The old stream stays open: a zombie that does not know."""
        for partition in range(PARTITIONS):
            self.stream.next_offset(partition)
        self.zombies.append((self.stream, self.open))
        self.open = []
        self.stream = opened(self.host, takeover=True)
        for partition in range(PARTITIONS):
            self.stream.next_offset(partition)

    def zombie_moves(self) -> None:
        if not self.zombies:
            return
        zombie, waiting = self.zombies.pop(0)
        try:
            sent = self.begin(self.rng.randrange(PARTITIONS), 2)
            sent.ticket = zombie.append(rows(sent.values[0], 2), sent.partition)
            for old in [*waiting, sent]:
                self.acknowledge(old)
        except (ConflictError, ClosedError):
            return
        raise AssertionError("a writer that was taken over got an acknowledgement")


def held(some: Stream) -> list[list[int]]:
    """The numbers of each partition, as far back as they are still there."""
    found: list[list[int]] = []
    for partition in range(PARTITIONS):
        table = some.to_table(partition)
        assert all(table[name] == table["v"] for name in NAMES)
        found.append(table["v"].to_pylist())
    return found


def first_offsets(some: Stream) -> list[int]:
    """The offset of the first number of each partition in `held`."""
    units = [some.units(partition) for partition in range(PARTITIONS)]
    return [found[0].first_offset if found else end for found, end in zip(units, some.ends(), strict=True)]


def check(log: Log, found: list[list[int]], begins: list[int]) -> None:
    """Nothing acknowledged is lost or moved; no append is there in part, twice or out of order."""
    for begin, promise in zip(begins, log.promised or [], strict=False):
        assert begin <= promise, f"rows {promise} to {begin} were promised to a subscription, and are gone"
    there: set[int] = set()
    for partition, values in enumerate(found):
        starts = appends_in(log, partition, values)
        assert len(set(starts)) == len(starts), f"partition {partition}: an append is there twice: {values}"
        there.update(starts)
    for partition, first, values in log.acked:
        low = first - begins[partition]
        if low < 0 and begins[partition] <= log.floors.get(partition, 0):
            continue  # trimmed, as was asked
        got = found[partition][low : low + len(values)]
        assert got == values, f"partition {partition}: acknowledged at {first}: {values}, found {got}"
    check_groups(log, there, begins)


def appends_in(log: Log, partition: int, values: list[int]) -> list[int]:
    """The first numbers of the appends that a partition holds, each of them whole."""
    whole = {sent.values[0]: sent.values for sent in log.sent if sent.partition == partition}
    cut = {value: sent.values for sent in log.sent for value in sent.values}
    starts: list[int] = []
    at = 0
    if values and values[0] not in whole and log.floors.get(partition):
        rest = cut[values[0]][cut[values[0]].index(values[0]) :]  # an append that a trim has cut
        assert values[: len(rest)] == rest
        at = len(rest)
    while at < len(values):
        sent = whole.get(values[at])
        if sent is None or values[at : at + len(sent)] != sent:
            raise AssertionError(f"partition {partition}: half an append at place {at}: {values}")
        starts.append(values[at])
        at += len(sent)
    return starts


def check_groups(log: Log, there: set[int], begins: list[int]) -> None:
    """Appends to several partitions are in all of them or in none, apart from what a trim took."""
    trimmed = {values[0] for partition, first, values in log.acked if first < begins[partition]}
    groups: dict[int, list[Sent]] = {}
    for sent in log.sent:
        if sent.group is not None:
            groups.setdefault(sent.group, []).append(sent)
    for parts in groups.values():
        known = [sent.values[0] in there for sent in parts if sent.values[0] not in trimmed]
        assert all(known) or not any(known) or log.floors, f"half of an append to all partitions: {parts}"
