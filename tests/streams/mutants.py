"""Safety lines taken out, one at a time: the crash simulation must notice each (tests/streams/test_mutants.py).

A mutant is a patch of the program, applied to the running modules; `NAMES` lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any

import pytest

from kedge.host import store
from kedge.host.sim import disk as sim_disk
from kedge.host.sim.mutate import mutate
from kedge.streams import appender, atomic, document, epoch, handle, layout, recovery, segment, unit, writer


def _line(module: ModuleType, line: str, instead: str = "pass") -> Callable[[pytest.MonkeyPatch], None]:
    """`line`, which occurs once in the module, reads `instead`: whoever has imported a function has the mutant."""

    def apply(patch: pytest.MonkeyPatch) -> None:
        for real, copy in _functions(module, mutate(module, line, instead)):
            patch.setattr(real, "__code__", copy.__code__)

    return apply


def _functions(module: ModuleType, copy: ModuleType) -> Iterator[tuple[FunctionType, FunctionType]]:
    """The functions and methods of a module, each with its mutant."""
    for name, value in vars(module).items():
        if getattr(value, "__module__", None) != module.__name__:
            continue
        pairs = [(value, getattr(copy, name))]
        if isinstance(value, type):
            pairs = [(one, vars(getattr(copy, name)).get(key)) for key, one in vars(value).items()]
        for real, mutant in pairs:
            if isinstance(real, FunctionType) and not real.__code__.co_freevars:
                yield real, mutant


def _ack_first(patch: pytest.MonkeyPatch) -> None:
    """The ticket is resolved before the commit."""

    def early(self: appender.Appender) -> None:
        done, self._written = self._written, []
        for item in done:
            item.resolve()

    patch.setattr(appender.Appender, "_commit_written", early)


def _no_slot_checksum(patch: pytest.MonkeyPatch) -> None:
    """A slot counts when its magic is there."""

    def parse(self: epoch.Epochs, raw: bytes, number: int) -> epoch.Slot | None:
        if raw[:8] != epoch._MAGIC:
            return None
        raw = raw.ljust(epoch._SLOT.size, b"\0")
        _, _, turn, seg, seg_epoch, position, end, flags, _ = epoch._SLOT.unpack(raw)
        return epoch.Slot(number, seg, seg_epoch, position, end, bool(flags & 1), bool(flags & 2), turn)

    patch.setattr(epoch.Epochs, "_parse", parse)


def _halves(patch: pytest.MonkeyPatch) -> None:
    """Recovery keeps the units of an append that has no end."""
    patch.setattr(layout.Header, "more", property(lambda self: False))


def _uncommitted(patch: pytest.MonkeyPatch) -> None:
    """Recovery keeps what the ledger does not name."""
    patch.setattr(recovery, "_counts", lambda group, decisions: True)


def _tail_lost(patch: pytest.MonkeyPatch) -> None:
    """Recovery trusts the last slot and looks no further."""
    patch.setattr(recovery, "_tail", lambda *_: iter(()))


def _tail_in_place(patch: pytest.MonkeyPatch) -> None:
    """Recovery publishes the tail where it lies, unsynced."""

    def in_place(files: Any, claim: Any, slot: epoch.Slot, tail: Sequence[Any], found: Any) -> epoch.Slot:
        position = slot.position
        for one in tail:
            position += layout.aligned(one.header.bytes, segment.PAGE)
            recovery.note(found.marks, one.header)
        return epoch.Slot(0, slot.segment, slot.segment_epoch, position, tail[-1].header.end, sealed=True)

    patch.setattr(recovery, "_copy", in_place)


def _marks_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery, "note", lambda marks, header: None)


def _one_durable_page(patch: pytest.MonkeyPatch) -> None:
    """All slots overwrite one page."""
    real = sim_disk.SimFile.write

    def write(self: Any, data: Any, offset: int) -> None:
        real(self, data, 0 if "/epochs/" in self._path else offset)

    patch.setattr(sim_disk.SimFile, "write", write)


MUTANTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    # each fsync of a file
    "no fsync of a group of appends": _line(
        writer,
        "            self._file.sync()\n        self._claim.check()",
        "            pass\n        self._claim.check()",
    ),
    "no fsync of a new segment's header": _line(
        recovery, "        file.write(head, 0)\n        file.sync()\n", "        file.write(head, 0)\n"
    ),
    "no fsync of what recovery copied": _line(
        recovery,
        "            found.kept_rows += unit.header.rows\n        file.sync()\n",
        "            found.kept_rows += unit.header.rows\n",
    ),
    "no fsync of durable slots": _line(epoch, "        if durable:\n            self._file.sync()\n", ""),
    "no fsync of a segment before the next": _line(
        writer,
        "            self._file.truncate(last.position)\n            self._sync()\n",
        "            self._file.truncate(last.position)\n",
    ),
    "no fsync of documents and records": _line(
        store, "            file.write(data, 0)\n            file.sync()\n", "            file.write(data, 0)\n"
    ),
    # each fsync of a directory
    "no fsync of the segments' directory": _line(recovery, "disk.sync_dir(files.segments_folder)"),
    "no fsync of the epochs' directory": _line(epoch, "self._disk.sync_dir(self.folder)"),
    "no fsync of the documents' directory": _line(
        store,
        "                continue  # the temporary file was swept away\n        self._disk.sync_dir(folder)",
        "                continue",
    ),
    # each fence
    "no epoch check before acknowledging": _line(
        writer, "            self._file.sync()\n        self._claim.check()", "            self._file.sync()"
    ),
    "no epoch check in recovery": _line(recovery, "    claim.check()\n    found.slot", "    found.slot"),
    # orders
    "acknowledged before the commit": _ack_first,
    "published before the sync": _line(
        writer, "        self.prepare()\n        return self.publish()", "        return self.publish()"
    ),
    "atomic: the record before the data": _line(atomic, "            share.writer.prepare()", "            pass"),
    "atomic: compacted before the slots are durable": _line(atomic, "publish(durable=compact)", "publish()"),
    # each checksum
    "no checksum of bodies": _line(
        recovery,
        '        if checksum(buffer[start : start + size]) != int(entry["checksum"]):',
        "        if False:",
    ),
    "no checksum of slots": _no_slot_checksum,
    # what recovery keeps
    "half an append is kept": _halves,
    "an uncommitted atomic append is kept": _uncommitted,
    "recovery does not look past the slot": _tail_lost,
    "recovery publishes what it can read": _tail_in_place,
    "producers' marks are forgotten": _marks_forgotten,
    "all slots in one page": _one_durable_page,
}


# Lines that spoiled bytes show, or a reader that was promised rows, rather than a crash.
OTHERS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "no checksum of headers": _line(
        layout,
        "    if _CHECKSUM.unpack_from(buffer, end)[0] != checksum(buffer[start:end], seed_):",
        "    if False:",
    ),
    "no checksum of bodies in reads": _line(unit, "    if checksum(body) != sum_:", "    if False:"),
    "no checksum of segment headers": _line(
        segment, "    if _SUM.unpack_from(buffer, size - 8)[0] != checksum(buffer[: size - 8]):", "    if False:"
    ),
    "no checksum of documents": _line(
        document,
        '        if body.pop("checksum") != _sum(body) or pack(body) != raw:',
        '        if body.pop("checksum") == "":',
    ),
    "trim does not ask the subscriptions": _line(
        handle, "        needed = self._positions.needed()\n", "        needed = [1 << 62] * self.partitions\n"
    ),
}


@contextmanager
def mutated(name: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        {**MUTANTS, **OTHERS}[name](patch)
        yield
