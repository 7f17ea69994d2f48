"""Safety lines taken out, one at a time: the crash simulation must notice each (tests/streams/test_mutants.py).

A mutant is a patch of the program, applied to the running modules; `NAMES` lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from kedge.host.sim import disk as sim_disk
from kedge.streams import appender, epoch, layout, positions, recovery, segment, writer


def _no_sync(match: Callable[[str], bool]) -> Callable[[pytest.MonkeyPatch], None]:
    """Files whose path matches are never synced."""

    def apply(patch: pytest.MonkeyPatch) -> None:
        real = sim_disk.SimFile.sync
        patch.setattr(sim_disk.SimFile, "sync", lambda self: None if match(self._path) else real(self))

    return apply


def _no_dir_sync(match: Callable[[str], bool]) -> Callable[[pytest.MonkeyPatch], None]:
    def apply(patch: pytest.MonkeyPatch) -> None:
        real = sim_disk.SimDisk.sync_dir
        patch.setattr(sim_disk.SimDisk, "sync_dir", lambda self, path: None if match(path) else real(self, path))

    return apply


def _no_fence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(epoch.Claim, "check", lambda self: None)


def _ack_first(patch: pytest.MonkeyPatch) -> None:
    """The ticket is resolved before the commit."""

    def early(self: appender.Appender) -> None:
        done, self._written = self._written, []
        for item in done:
            item.ticket.resolve(item.result)

    patch.setattr(appender.Appender, "_commit_written", early)


def _publish_first(patch: pytest.MonkeyPatch) -> None:
    """The end is published before the data is synced."""
    patch.setattr(writer.PartitionWriter, "prepare", lambda self: None)


def _no_header_checksum(patch: pytest.MonkeyPatch) -> None:
    """Headers and bodies check whatever they are."""
    patch.setattr(layout, "checksum", lambda data, seed=0: 0)
    patch.setattr(recovery, "checksum", lambda data, seed=0: 0)


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
        for unit in tail:
            position += layout.aligned(unit.header.bytes, segment.PAGE)
            recovery.note(found.marks, unit.header)
        return epoch.Slot(0, slot.segment, slot.segment_epoch, position, tail[-1].header.end, sealed=True)

    patch.setattr(recovery, "_copy", in_place)


def _marks_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery, "note", lambda marks, header: None)


def _first_slot_not_durable(patch: pytest.MonkeyPatch) -> None:
    real = epoch.Claim.publish
    patch.setattr(epoch.Claim, "publish", lambda self, slot, durable=False: real(self, slot, durable=False))


def _one_durable_page(patch: pytest.MonkeyPatch) -> None:
    """All slots overwrite one page."""
    real = sim_disk.SimFile.write

    def write(self: Any, data: Any, offset: int) -> None:
        real(self, data, 0 if "/epochs/" in self._path else offset)

    patch.setattr(sim_disk.SimFile, "write", write)


def _floor_after(patch: pytest.MonkeyPatch) -> None:
    """Trim goes by the floor alone and keeps nothing for recovery's older slot."""
    patch.setattr(epoch.Epochs, "oldest_segment", lambda self, number: 1 << 60)
    patch.setattr(positions.Positions, "needed", lambda self: [1 << 62] * self._partitions)


def in_segments(path: str) -> bool:
    return path.endswith(".seg")


def in_epochs(path: str) -> bool:
    return "/epochs/" in path


MUTANTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "no fsync of segments": _no_sync(in_segments),
    "no fsync of slots": _first_slot_not_durable,
    "no fsync of the segments' directory": _no_dir_sync(lambda path: path.endswith("/segments")),
    "no fsync of the epochs' directory": _no_dir_sync(lambda path: path.endswith("/epochs")),
    "no epoch check before acknowledging": _no_fence,
    "acknowledged before the commit": _ack_first,
    "published before the sync": _publish_first,
    "no checksum of units": _no_header_checksum,
    "no checksum of slots": _no_slot_checksum,
    "half an append is kept": _halves,
    "an uncommitted atomic append is kept": _uncommitted,
    "recovery does not look past the slot": _tail_lost,
    "recovery publishes what it can read": _tail_in_place,
    "producers' marks are forgotten": _marks_forgotten,
    "all slots in one page": _one_durable_page,
}


@contextmanager
def mutated(name: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        MUTANTS[name](patch)
        yield
