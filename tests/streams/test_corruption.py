"""Spoiled bytes: right rows or CorruptError; `verify` finds it; `repair` keeps what checks, says what went."""

from __future__ import annotations

import pathlib
import random
import shutil
from typing import Any

import pyarrow as pa
import pytest

from kedge.errors import CorruptError
from kedge.streams import repair, stream, verify

SCHEMA = pa.schema([("ts", pa.timestamp("us")), ("v", pa.int64()), ("s", pa.string())])
APPENDS, ROWS = 24, 20


def batch(number: int) -> pa.RecordBatch:
    values = range(number * ROWS, (number + 1) * ROWS)
    strings = [None if v % 7 == 0 else f"{'é' * (v % 3)}{v}" for v in values]
    return pa.record_batch(
        [pa.array(values, pa.timestamp("us")), pa.array(values), pa.array(strings)], schema=SCHEMA
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A stream of several segments, trimmed once, with a subscription and an atomic append."""
    path = tmp_path_factory.mktemp("corruption") / "s"
    with stream(path, SCHEMA, 2, event_time="ts", segment_bytes=1 << 16, threads=0) as there:
        for number in range(APPENDS):
            there.append(batch(number), number % 2, producer="p", sequence=number)
        there.flush()
        there.append_atomic({0: batch(APPENDS), 1: batch(APPENDS + 1)})
        there.subscribe("reader", [40, 40])
        there.trim(10)
    return path


def rows_of(path: pathlib.Path) -> list[list[int]]:
    there = stream(path, threads=0)
    return [there.to_table(partition)["v"].to_pylist() for partition in range(2)]


def spoil(file: pathlib.Path, rng: random.Random) -> str:
    """Flip, cut, zero or duplicate bytes; what was done."""
    raw = bytearray(file.read_bytes())
    kind = rng.choice(("flip", "cut", "zero", "duplicate"))
    at = rng.randrange(len(raw))
    if rng.random() < 0.5:  # where the content is, not where the zeros are
        at = rng.choice([place for place, byte in enumerate(raw) if byte] or [0])
    size = min(rng.choice((1, 8, 100, 5000)), len(raw) - at)
    if kind == "flip":
        raw[at] ^= rng.randrange(1, 256)
    elif kind == "cut":
        del raw[at : at + size]
    elif kind == "zero":
        raw[at : at + size] = bytes(size)
    else:
        raw[at:at] = raw[at : at + size]
    file.write_bytes(raw)
    return f"{kind} {size} at {at} of {file}"


def files_of(path: pathlib.Path) -> list[pathlib.Path]:
    return sorted(file for file in path.rglob("*") if file.is_file() and file.stat().st_size)


def test_spoiled_bytes_anywhere(whole: pathlib.Path, tmp_path: pathlib.Path, lane: Any) -> None:
    want = rows_of(whole)
    for seed in lane.seeds(4, 200, 5_000):
        rng = random.Random(seed)
        path = tmp_path / "s"
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(whole, path)
        file = rng.choice(files_of(path))
        before = file.read_bytes()
        done = f"seed {seed}: {spoil(file, rng)}"
        spoiled = file.read_bytes()
        found = verify(path)
        try:
            got = rows_of(path)
        except CorruptError as error:
            names_file_and_byte(path, error)
            assert found.problems, done
        else:
            assert got == want, done
        # A slot that is zeros looks like one that was never written; recovery has found the rows behind it.
        unseen = file.parent.name == "epochs" and done.split()[2] in ("zero", "cut")
        # What lies behind the durable end of a segment is what a writer has under way.
        unseen |= file.suffix == ".seg" and spoiled.startswith(before)
        if not unseen and spoiled != before and file.name != "probe.json" and not is_padding(before, spoiled):
            assert found.problems, f"verify missed {done}"
        report = repair(path)
        after = rows_of(path)
        assert not verify(path).problems, done
        check_repaired(want, after, report.rows_lost, report.dropped, done)


def test_zeros_that_are_missing_at_the_end_are_found(whole: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Every row is there, but readers want whole pages."""
    path = tmp_path / "s"
    shutil.copytree(whole, path)
    last = sorted(path.glob("partitions/0001/segments/*.seg"))[-1]
    last.write_bytes(last.read_bytes()[:-100])
    with pytest.raises(CorruptError, match="cut at byte"):
        rows_of(path)
    (problem,) = verify(path).problems
    assert "cut" in str(problem)
    repair(path)
    assert rows_of(path) == rows_of(whole)


def names_file_and_byte(path: pathlib.Path, error: CorruptError) -> None:
    assert str(path) in str(error)
    assert "byte" in str(error)


def is_padding(before: bytes, after: bytes) -> bool:
    """Zeros were added to or taken from the end: no byte that counts has changed."""
    return before.rstrip(b"\0") == after.rstrip(b"\0") and len(after) >= len(before) - 8


def check_repaired(want: list[list[int]], got: list[list[int]], lost: int, dropped: list[str], done: str) -> None:
    """All that is missing is counted, is whole units, and is reported."""
    missing = sum(map(len, want)) - sum(map(len, got))
    assert missing == lost, done
    assert bool(dropped) or not missing, done
    for whole_rows, kept in zip(want, got, strict=True):
        assert set(kept) <= set(whole_rows), done
        assert kept == sorted(kept), done
        gone = [v for v in whole_rows if v not in set(kept)]
        assert len(gone) % ROWS == 0, done
        assert len(gone) <= 3 * ROWS, f"{done}: too much was dropped"


def test_repair_keeps_offsets_and_producers(whole: pathlib.Path, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "s"
    shutil.copytree(whole, path)
    there = stream(path)
    unit, end = there.units(0)[3], there.ends()[0]
    file = path / unit.file
    raw = bytearray(file.read_bytes())
    raw[unit.start + unit.bytes // 2] ^= 1
    file.write_bytes(raw)
    report = repair(path)
    assert report.rows_lost == unit.rows
    after = stream(path, threads=0)
    assert [u.first_offset for u in after.units(0)] == [u.first_offset for u in there.units(0) if u != unit]
    assert after.append(batch(0), 0, producer="p", sequence=0).wait().duplicate
    assert after.append(batch(99), 0).wait().first_offset == end
    assert verify(path).rows_lost == unit.rows


def test_a_description_that_does_not_check_is_restored(whole: pathlib.Path, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "s"
    shutil.copytree(whole, path)
    (path / "stream.json").write_text("{}")
    with pytest.raises(CorruptError, match=r"stream\.json"):
        stream(path)
    repair(path)
    assert rows_of(path) == rows_of(whole)
