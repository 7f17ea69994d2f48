"""A workload for simulated crashes, and what must hold after one. It knows the public stream only.

Every append carries numbers that no other append has, in order; so what a stream holds says by itself which appends
are there, whole or in part.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from kedge.errors import ClosedError, ConflictError
from kedge.host.sim import SimHost
from kedge.streams import Stream, Ticket, stream

PATH = "/data/s"
SCHEMA = pa.schema([("v", pa.int64())])
PARTITIONS = 2
SEGMENT_BYTES = 1 << 16


def opened(host: SimHost, **options: Any) -> Stream:
    return stream(PATH, SCHEMA, PARTITIONS, host=host, threads=0, segment_bytes=SEGMENT_BYTES, unit_rows=3, **options)


def rows(first: int, count: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(range(first, first + count), pa.int64())], schema=SCHEMA)


@dataclass
class Sent:
    """One append that was begun."""

    partition: int
    values: list[int]
    ticket: Ticket | None = None


@dataclass
class Log:
    """What the workload did, kept outside of the machine that crashes."""

    sent: list[Sent] = field(default_factory=list)
    acked: list[tuple[int, int, list[int]]] = field(default_factory=list)  # partition, first offset, values
    floors: dict[int, int] = field(default_factory=dict)  # partition -> the highest floor that was asked for
    next_value: int = 0


class Workload:
    """Appends, waits, rolls, closes, reopens and takeovers, in an order that the seed decides."""

    def __init__(self, seed: int, steps: int, log: Log, extra: Callable[[Workload, random.Random], None] | None = None):
        self.rng, self.steps, self.log, self.extra = random.Random(seed), steps, log, extra
        self.stream: Stream
        self.zombies: list[tuple[Stream, list[Sent]]] = []
        self.open: list[Sent] = []

    def run(self, host: SimHost) -> None:
        self.host = host
        self.stream = opened(host)
        for _ in range(self.steps):
            self.step()
        self.wait()

    def step(self) -> None:
        choice = self.rng.random()
        if choice < 0.55:
            self.append()
        elif choice < 0.70:
            self.wait()
        elif choice < 0.78:
            self.wait()
            self.stream.close()
            self.stream = opened(self.host)
        elif choice < 0.85:
            self.take_over()
        elif choice < 0.92:
            self.zombie_moves()
        elif self.extra is not None:
            self.extra(self, self.rng)

    def append(self) -> None:
        partition = self.rng.randrange(PARTITIONS)
        count = self.rng.choice((1, 2, 3, 7))
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
    """The numbers of each partition, from its begin."""
    return [some.to_table(partition)["v"].to_pylist() for partition in range(PARTITIONS)]


def check(log: Log, found: list[list[int]], begins: list[int]) -> None:
    """Nothing acknowledged is lost or moved; no append is there in part, twice or out of order."""
    whole = {sent.values[0]: sent.values for sent in log.sent}
    for partition, values in enumerate(found):
        at = 0
        starts: list[int] = []
        while at < len(values):
            sent = whole.get(values[at])
            if sent is None or values[at : at + len(sent)] != sent:
                raise AssertionError(f"partition {partition}: half an append at offset {begins[partition] + at}: {values}")
            starts.append(values[at])
            at += len(sent)
        assert len(set(starts)) == len(starts), f"partition {partition}: an append is there twice: {values}"
        mine = {sent.values[0] for sent in log.sent if sent.partition == partition}
        assert set(starts) <= mine
    for partition, first, values in log.acked:
        low = first - begins[partition]
        if begins[partition] <= log.floors.get(partition, 0) and low < 0:
            continue  # trimmed, as was asked
        got = found[partition][low : low + len(values)]
        assert got == values, f"partition {partition}: acknowledged at {first}: {values}, found {got}"
