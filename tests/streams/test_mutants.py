"""For every safety line there is a mutant without it, and the crash simulation notices each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import mutants
import numpy as np
import pyarrow as pa
import pytest
import test_crash as crashes
import test_takeover as takeover

from kedge.errors import CorruptError
from kedge.streams import stream, verify

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kedge.host.sim import Fault

STEPS = 16
# A crash that shows the mutant; tried first, since most crashes of most seeds do not.
FIRST: dict[str, tuple[int, Fault, int]] = {
    "no fsync of a segment before the next": (7, "tear", 55),
    "no checksum of bodies": (1, "tear", 484),
    "no epoch check before acknowledging": (2, "stop", 365),
    "no checksum of slots": (5, "tear", 239),
    "an uncommitted atomic append is kept": (1, "tear", 171),
    "recovery publishes what it can read": (2, "tear", 86),
    "all slots in one page": (1, "tear", 35),
}
TAKEOVER = {"no epoch check in recovery"}  # shows only when two recoveries run at once


def tries(name: str) -> Iterator[tuple[int, Fault, int]]:
    """Crashes to try: the known one, then all of some seeds."""
    if name in FIRST:
        yield FIRST[name]
    for seed in range(8):
        for fault in ("tear", "lose", "stop"):
            for crash_at in crashes.points(seed, fault, STEPS)[::5]:
                yield seed, fault, crash_at


def noticed(name: str) -> bool:
    """Whether some crash shows the mutant."""
    try:
        if name in TAKEOVER:
            for seed in range(100):
                takeover.push_each_other_out(seed, (0.0, 0.004)[seed % 2])
        for seed, fault, crash_at in tries(name):
            log, host = crashes.crash(seed, fault, crash_at, STEPS)
            crashes.verify(log, host)
    except (AttributeError, NameError, TypeError):
        raise  # the mutant does not run: that shows nothing
    except Exception:
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("name", mutants.MUTANTS)
def test_the_simulation_notices(name: str) -> None:
    crashes.failing_sync.cache_clear()
    for seed in range(1, 8, 2):
        for fault in crashes.FAULTS:
            crashes.failing_sync(seed, fault, STEPS)  # by the program as it is
    with mutants.mutated(name):
        assert noticed(name)
    crashes.failing_sync.cache_clear()


SCHEMA = pa.schema([("v", pa.float64())])


def spoiled(path: Path, file: str, at: int) -> None:
    raw = bytearray((path / file).read_bytes())
    raw[at] ^= 1
    (path / file).write_bytes(raw)


def shown(path: Path, name: str) -> bool:
    """Whether a small stream with one spoiled byte, or with a promise, is taken for right."""
    with stream(path, SCHEMA, segment_bytes=1 << 16, threads=0) as there:
        for number in range(12):
            rows = pa.record_batch({"v": np.random.default_rng(number).random(1500)})
            there.append(rows, producer="p", sequence=number).wait()
        there.trim(5)
        last = there.units(0)[-1]
        if name == "trim does not ask the subscriptions":
            there.subscribe("reader", [there.units(0)[0].end])
            there.trim(last.first_offset)
            return there.units(0)[0].first_offset > 1500
    if name == "no checksum of documents":
        spoiled(path, "floor.json", (path / "floor.json").read_bytes().index(b"5"))
    else:
        place = {
            "no checksum of headers": last.start + 128 + 16,  # the least value of the column
            "no checksum of bodies in reads": last.start + last.bytes - 640,
            "no checksum of segment headers": 66,  # a producer's sequence
        }
        spoiled(path, last.file, place[name])
    if name == "no checksum of bodies in reads":
        try:
            return stream(path, threads=0).to_table().num_rows == 18_000
        except CorruptError:
            return False
    return not verify(path).problems


@pytest.mark.parametrize("name", mutants.OTHERS)
def test_spoiled_bytes_and_promises_show_the_rest(name: str, tmp_path: Path) -> None:
    assert not shown(tmp_path / "true", name)
    with mutants.mutated(name):
        assert shown(tmp_path / "mutant", name)
