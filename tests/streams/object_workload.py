"""The stream workload on a simulated object store: lost and late calls, subscriptions, compactions, many crashes."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
import workload
from workload import PARTITIONS, Log, Workload, check, opened, rows

from kedge.errors import ClosedError, ConflictError, UnavailableError
from kedge.host.sim import Crashed, SimHost, machine
from kedge.streams import Stream, committer

PATH = "s3://bucket/s"
STEPS = 14


@pytest.fixture(autouse=True)
def in_an_object_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """The workload's stream is in the simulated object store, and its ledger is compacted all the time."""
    place(monkeypatch)


def place(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(workload, "PATH", PATH)
    patch.setattr(committer, "COMPACT_EVERY", 3)
    patch.setattr(committer, "PACKED_BYTES", 600)  # units of this workload: some alone, some packed
    patch.setattr(committer, "PACK_BYTES_MAX", 1500)


class ObjectLog(Log):
    """And what a subscription was promised."""

    position: list[int] | None = None
    repeated: tuple[int, int] | None = None  # sequence and first offset of the producer's last append


class ObjectWorkload(Workload):
    """The same steps; a call without an answer ends a stream, and its outcome stays open until the next one."""

    log: ObjectLog

    def run(self, host: SimHost) -> None:
        self.host = host
        self.start_again()
        for _ in range(self.steps):
            try:
                (self.subscribe, self.repeat, self.step)[min(2, int(self.rng.random() * 10))]()
            except (ClosedError, UnavailableError):
                self.start_again()
        with suppress(ClosedError, UnavailableError):
            self.wait()

    def start_again(self) -> None:
        self.open = []
        if hasattr(self, "stream"):
            with suppress(ClosedError, ConflictError, UnavailableError):
                self.stream.close()
        while True:
            with suppress(UnavailableError):
                self.stream = opened(self.host)
                return

    def take_over(self) -> None:
        known = len(self.zombies)
        try:
            super().take_over()
        except UnavailableError:  # nobody knows whether the claim took effect, so whether that one is a zombie
            del self.zombies[known:]
            raise

    def zombie_moves(self) -> None:
        with suppress(UnavailableError):
            super().zombie_moves()

    def retry(self) -> None:
        super().retry()
        self.log.repeated = (self.log.acked[-1][2][0], self.log.acked[-1][1])

    def repeat(self) -> None:
        """The producer's last append again, however long ago it was: it is there once."""
        if self.log.repeated is not None:
            number, first = self.log.repeated
            again = self.stream.append(rows(number, 2), 0, producer="p", sequence=number).wait()
            assert again.duplicate
            assert again.first_offset in (first, again.end)

    def subscribe(self) -> None:
        """A reader's position, which goes on to some place before the ends."""
        reader = self.stream.subscribe("reader")
        if self.log.position is None:
            self.log.position = list(reader.positions)
        # An update without an answer may count or not, so the promise goes by what is asked for.
        ends = self.stream.ends()
        ahead = [max(p, self.rng.randrange(end + 1)) for p, end in zip(reader.positions, ends, strict=True)]
        self.log.position = [max(pair) for pair in zip(self.log.position, ahead, strict=True)]
        reader.commit(ahead)


def crash(seed: int, crash_at: int, *, faults: float = 0.0, steps: int = STEPS) -> tuple[ObjectLog, SimHost]:
    """Run the workload of a seed until it dies: what it was told, and the machine after it."""
    log, host = ObjectLog(), machine(seed, "stop")
    host.machine.objects.faults = faults
    host.crash_at = crash_at
    with suppress(Crashed):
        ObjectWorkload(seed, steps, log).run(host)
    after = host.after_crash()
    after.machine.objects.faults = 0.0
    return log, after


def points(seed: int, *, faults: float = 0.0, steps: int = STEPS) -> list[int]:
    """The calls that change something, and 0: the end."""
    host = machine(seed, "stop")
    host.machine.objects.faults = faults
    ObjectWorkload(seed, steps, ObjectLog()).run(host)
    return [call.number for call in host.trace if call.changes] + [0]


def look(some: Stream) -> tuple[list[list[int]], list[int]]:
    """The numbers of each partition and the offset of its first one, all of one moment."""
    ends = some.ends()
    units = [some.units(partition, 0, ends[partition]) for partition in range(PARTITIONS)]
    numbers = [[v for unit in found for v in some.read_unit(unit)["v"].to_pylist()] for found in units]
    return numbers, [found[0].first_offset if found else end for found, end in zip(units, ends, strict=True)]


def claimed(host: SimHost) -> Stream:
    """The stream's new writer; a record of the dead one that lands late looks like life, once or twice."""
    for _ in range(20):
        with suppress(ConflictError):
            writer = opened(host)
            writer.recover()
            return writer
    raise AssertionError("a dead writer keeps the stream for ever")


def verify(log: ObjectLog, host: SimHost) -> None:
    """Readers first, then a writer: from its claim on nothing of the dead one comes to be seen any more."""
    reader = opened(host)
    seen, first = look(reader)
    check(log, seen, first)
    writer = claimed(host)
    host.machine.objects.land()
    whole, begins = look(writer)
    check(log, whole, begins)
    for partition in range(PARTITIONS):  # a late commit may have come, a late trim may have gone
        skip = begins[partition] - first[partition]
        assert whole[partition][: len(seen[partition]) - skip] == seen[partition][skip:]
        if log.position is not None:
            assert begins[partition] <= log.position[partition], "trimmed although a subscription needs it"
    assert writer.append(rows(10**6, 2), 1).wait().first_offset == begins[1] + len(whole[1])
    again = opened(host.after_crash())
    assert look(again)[0] == [whole[0], [*whole[1], 10**6, 10**6 + 1]]


def trial(seed: int, crash_at: int, *, faults: float = 0.0, steps: int = STEPS) -> None:
    """One crash; the error says how to repeat it."""
    log, host = crash(seed, crash_at, faults=faults, steps=steps)
    try:
        verify(log, host)
    except Exception as error:
        error.add_note(f"Repeat with trial({seed}, {crash_at}, faults={faults}, steps={steps}).")
        raise


def trace(seed: int, faults: float) -> list[Any]:
    """Every call of a run of the workload."""
    host = machine(seed, "stop")
    host.machine.objects.faults = faults
    ObjectWorkload(seed, STEPS, ObjectLog()).run(host)
    return host.trace
