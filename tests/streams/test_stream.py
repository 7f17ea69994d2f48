"""A stream as its users see it: create, append, read, retry, trim, subscribe, take over, bind to a run."""

from __future__ import annotations

import dataclasses
import errno
import functools
import pathlib
import pickle  # noqa: TID251  (what Spark does with a stream; nothing stored is unpickled)
import subprocess
import sys
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge import host as hosts
from kedge.errors import ClosedError, ConflictError, CorruptError, UnavailableError, UsageError
from kedge.host.sim import machine
from kedge.ledger import Ledger
from kedge.streams import Lineage, Stream, repair, stream, verify

SCHEMA = pa.schema([("ts", pa.timestamp("us")), ("v", pa.int64())])


def rows(first: int, count: int) -> pa.RecordBatch:
    values = np.arange(first, first + count)
    return pa.record_batch([pa.array(values, pa.timestamp("us")), pa.array(values)], schema=SCHEMA)


@pytest.fixture
def path(tmp_path: pathlib.Path) -> str:
    return str(tmp_path / "s")


def opened(path: str, **options: Any) -> Stream:
    return stream(path, SCHEMA, 2, event_time="ts", **options)


def values(some: Stream, *args: Any) -> list[int]:
    return some.to_table(*args)["v"].to_pylist()


def test_rows_come_back_from_another_process(path: str) -> None:
    with opened(path, threads=2, segment_bytes=1 << 16) as some:
        tickets = [some.append(rows(100 * n, 100), n % 2) for n in range(40)]
        assert [t.wait().end for t in tickets[-2:]] == [2000, 2000]
    code = "import sys; from kedge.streams import stream; s = stream(sys.argv[1]); "
    code += "print(s.ends(), s.to_table()['v'].to_numpy().sum())"
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[2000,", "2000]", str(sum(range(4000)))]


def test_readers_see_only_what_is_durable(path: str) -> None:
    writer, reader = opened(path, threads=0), stream(path)
    ticket = writer.append(rows(0, 10))
    assert reader.ends() == [0, 0]
    ticket.wait()
    assert reader.ends() == [10, 0]
    assert [(u.first_offset, u.rows, u.min_us, u.max_us) for u in reader.units(0)] == [(0, 10, 0, 9)]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=8), st.data())
def test_any_range_of_any_columns(counts: list[int], data: st.DataObject) -> None:
    some = stream("/s", SCHEMA, host=machine(1), threads=0, unit_rows=3, segment_bytes=1 << 16)
    total = 0
    for count in counts:
        some.append(rows(total, count)).wait()
        total += count
    start = data.draw(st.integers(0, total))
    end = data.draw(st.integers(start, total + 2))
    assert values(some, 0, start, end, ["v"]) == list(range(start, min(end, total)))
    assert some.to_table(0, start, end, []).num_rows == min(end, total) - start


def test_a_plain_column_is_a_view_of_the_file(path: str) -> None:
    noise = np.random.default_rng(1).integers(-(2**63), 2**63 - 1, 100_000)
    with stream(path, pa.schema([("v", pa.int64())])) as some:
        some.append(pa.record_batch({"v": pa.array(noise)})).wait()
        before = pa.total_allocated_bytes()
        batch = next(some.read(0))
        assert pa.total_allocated_bytes() - before < 10_000
        assert (batch["v"].to_numpy() == noise).all()


def test_a_retry_is_appended_once(path: str) -> None:
    with opened(path) as some:
        first = some.append(rows(0, 5), producer="p", sequence=3).wait()
        again = some.append(rows(0, 5), producer="p", sequence=3)
        assert again.wait() == type(first)(0, 0, 5, duplicate=True)
        assert some.append(rows(9, 5), producer="p", sequence=2).wait().duplicate
        assert some.append(rows(5, 5), producer="q", sequence=3).wait().first_offset == 5
        with pytest.raises(UsageError, match="sequence"):
            some.append(rows(5, 5), producer="q")
    with opened(path) as some:
        assert some.append(rows(0, 5), producer="p", sequence=3).wait().duplicate
        assert some.ends() == [10, 0]


def test_marks_of_producers_survive_a_trim(path: str) -> None:
    with opened(path, segment_bytes=1 << 16, threads=0) as some:
        some.append(rows(0, 5), producer="p", sequence=1).wait()
        for n in range(40):
            some.append(rows(5 + n, 1)).wait()
        some.trim(some.ends())
        assert some.units(0)[0].first_offset > 5
    with opened(path, threads=0) as some:
        assert some.append(rows(0, 5), producer="p", sequence=1).wait().duplicate


def test_trim_keeps_what_a_subscription_has_not_passed(path: str) -> None:
    with opened(path, segment_bytes=1 << 16, threads=0) as some:
        for n in range(60):
            some.append(rows(n, 1)).wait()
        slow = some.subscribe("slow")
        assert some.trim(60) == [60, 0]
        assert values(some, 0) == list(range(60))
        slow.commit([50, 0])
        some.trim()
        held = values(some, 0)
        assert held[0] > 0
        assert held[-10:] == list(range(50, 60))
        assert stream(path).subscribe("slow").positions == [50, 0]
        with pytest.raises(UsageError, match=r"its end \[60, 0\]"):
            slow.commit([61, 0])
        with pytest.raises(UsageError, match="position for each partition"):
            some.subscribe("far", [61, 0])
        late = some.subscribe("late", [0, 0])
        assert late.positions == [60, 0]
        slow.end()
        late.end()
        assert some.subscriptions() == {}


def test_trim_by_event_time(path: str) -> None:
    with opened(path, threads=0) as some:
        for n in range(5):
            some.append(rows(10 * n, 10)).wait()
        assert some.trim(older_us=25) == [20, 0]


def test_appends_to_several_partitions(path: str) -> None:
    with opened(path) as some:
        some.append(rows(0, 3), 0)
        done = some.append_atomic({0: rows(3, 2), 1: rows(7, 4)}, producer="p", sequence=0)
        assert [(r.partition, r.first_offset, r.end) for r in done] == [(0, 3, 5), (1, 0, 4)]
        again = some.append_atomic({0: rows(3, 2), 1: rows(7, 4)}, producer="p", sequence=0)
        assert all(r.duplicate for r in again)
        assert some.append(rows(5, 1), 0).wait().end == 6
        some.append(rows(0, 1), 0, producer="q", sequence=0).wait()
        with pytest.raises(UsageError, match="was made before"):
            some.append_atomic({0: rows(0, 1), 1: rows(0, 1)}, producer="q", sequence=0)
    assert (values(stream(path), 0), values(stream(path), 1)) == ([*range(6), 0], [7, 8, 9, 10])


def test_a_second_writer_conflicts_or_takes_over(path: str) -> None:
    first = opened(path)
    first.append(rows(0, 1)).wait()
    with pytest.raises(ConflictError, match="takeover"):
        opened(path).append(rows(1, 1))
    with opened(path, takeover=True) as second:
        assert second.append(rows(1, 1)).wait().end == 2
        with pytest.raises(ConflictError, match="taken over"):
            first.append(rows(9, 1)).wait()
        with pytest.raises(ClosedError):
            first.append(rows(9, 1))
    assert values(stream(path), 0) == [0, 1]


def test_a_failed_sync_closes_the_stream_for_writing() -> None:
    host = machine(3)
    some = opened("/s", host=host, threads=0, segment_bytes=1 << 16)
    some.append(rows(0, 1)).wait()
    ticket = some.append(rows(1, 1))
    host.fail_at[host.io_calls + 1] = 5
    with pytest.raises(ClosedError, match="open the stream again"):
        ticket.wait()
    with pytest.raises(ClosedError):
        some.append(rows(2, 1))
    assert values(opened("/s", host=host), 0)[:1] == [0]


def test_wrong_rows_are_refused(path: str) -> None:
    with opened(path) as some:
        for wrong, why in (
            (pa.record_batch({"v": [1]}), "missing"),
            (pa.record_batch({"ts": [1], "v": [1]}), "Cast it"),
        ):
            with pytest.raises(UsageError, match=why):
                some.append(wrong)
        with pytest.raises(UsageError, match="partitions 0 to 1"):
            some.append(rows(0, 1), 2)
        with pytest.raises(UsageError, match="dict of rows by partition"):
            some.append_atomic([rows(0, 1)])  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="not '0'"):
            list(some.read("0"))  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="begin at 0"):
            list(some.read(0, -1))
        swapped = rows(0, 2).select(["v", "ts"])
        assert some.append(swapped).wait().end == 2
    with pytest.raises(ClosedError):
        some.append(rows(0, 1))


def test_a_schema_in_other_words(tmp_path: pathlib.Path) -> None:
    for n, schema in enumerate(({"n": "int64"}, [("n", pa.int64())])):
        assert stream(tmp_path / str(n), schema).schema == pa.schema([("n", pa.int64())])
    with pytest.raises(UsageError, match="is not a schema"):
        stream(tmp_path / "x", 5)  # type: ignore[arg-type]


def test_a_place_where_no_stream_can_be(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    for wrong, why in (("file", "is a file"), ("file/inside", "lies in one")):
        with pytest.raises(UsageError, match=why):
            stream(tmp_path / wrong, {"n": "int64"})
    with pytest.raises(UsageError, match="1 to 10,000 partitions, not 0"):
        stream(tmp_path / "none", {"n": "int64"}, 0)
    assert not (tmp_path / "none").exists()


def test_a_disk_that_fails_while_a_stream_is_made() -> None:
    refused = 0
    for call in range(1, 40):
        host = machine(call)
        host.fail_at[call] = errno.EIO
        try:
            stream("/s", {"n": "int64"}, host=host)
        except UnavailableError:
            refused += 1
        host.fail_at.clear()
        assert stream("/s", {"n": "int64"}, host=host).ends() == [0]
    assert refused > 5


def test_opening_checks_what_is_there(path: str) -> None:
    with pytest.raises(UsageError, match="Give a schema"):
        stream(path)
    opened(path)
    for options in ({"partitions": 3}, {"schema": pa.schema([("x", pa.int8())])}, {"event_time": "v"}):
        with pytest.raises(UsageError):
            stream(path, **options)
    with pytest.raises(UsageError, match="can't keep"):
        stream(path + "2", pa.schema([("x", pa.list_(pa.int8()))]))
    assert pickle.loads(pickle.dumps(stream(path))).id == stream(path).id


def test_a_runs_result_is_what_its_ledger_says(path: str, tmp_path: pathlib.Path) -> None:
    host, run, nonce = hosts.local(), str(tmp_path / "run"), "ab" * 16
    some = opened(path)
    some.bind(run, nonce)
    some.bind(run, nonce)
    with pytest.raises(ConflictError):
        stream(path).bind(run, "cd" * 16)
    with pytest.raises(UsageError, match="only that run"):
        some.append(rows(0, 1))
    ledger = Ledger(host.store(run), host.rng, host.clock)
    ledger.claim()
    results: list[dict[str, Any]] = []
    for batch in range(4):
        name = f"units/{batch}.unit"
        raw = some.encode_result(rows(10 * batch, 10), name, Lineage(nonce, batch, 1, ((0, 0, 0, 10),)))
        host.store(path).put(name, raw)
        result = {"partition": 1, "offset": 10 * batch, "rows": 10, "file": name, "bytes": raw.nbytes}
        results.append({**result, "min_us": 10 * batch, "max_us": 10 * batch + 9})
        assert stream(path).ends() == [0, 10 * batch]
        ledger.commit({"kind": "batch", "results": results[-1:]})
    assert values(stream(path), 1, 15, 32) == list(range(15, 32))
    ledger.compact(3, {"results": results[:2]})
    assert some.ends() == stream(path).ends() == [0, 40]
    assert (verify(path).rows, verify(path).problems) == (40, [])
    (tmp_path / "s" / "units" / "0.unit").unlink()
    assert [problem.file for problem in verify(path).problems] == ["units/0.unit"]
    with pytest.raises(UsageError, match="result of run"):
        repair(path)
    with pytest.raises(CorruptError, match=r"0\.unit"):
        values(stream(path), 1)


GIVEN: list[tuple[str, Any]] = [
    ("a dict of columns", {"v": [1, 2], "s": ["a", None]}),
    ("a list of rows", [{"v": 1, "s": "a"}, {"v": 2, "s": None}]),
    ("large strings", pa.table({"v": [1, 2], "s": pa.array(["a", None], pa.large_string())})),
    ("a dictionary", pa.table({"v": [1, 2], "s": pa.array(["a", None]).dictionary_encode()})),
    ("smaller numbers", pa.table({"v": pa.array([1, 2], pa.int8()), "s": ["a", None]})),
    ("columns in another order", pa.table({"s": ["a", None], "v": [1, 2]})),
    ("a reader", pa.table({"v": [1, 2], "s": ["a", None]}).to_reader()),
]


@pytest.mark.parametrize("given", [one for _, one in GIVEN], ids=[name for name, _ in GIVEN])
def test_what_can_be_appended(tmp_path: pathlib.Path, given: Any) -> None:
    with stream(tmp_path / "s", pa.schema([("v", pa.int64()), ("s", pa.string())])) as there:
        there.append(given).wait()
        assert there.to_table().to_pylist() == [{"v": 1, "s": "a"}, {"v": 2, "s": None}]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "can't be appended"),
        ({"v": [1]}, "missing \\['s'\\]"),
        ({"v": ["one"], "s": ["a"]}, "can't be appended"),
        (pa.table({"v": [1.5], "s": ["a"]}), "'v' is double; the stream has int64"),
        (pa.table({"v": pa.array([1], pa.uint64()), "s": ["a"]}), "'v' is uint64"),
        ([{"v": 1, "s": "a", "x": 3}], "unknown \\['x'\\]"),
    ],
)
def test_what_can_not_be_appended(tmp_path: pathlib.Path, given: Any, message: str) -> None:
    with (
        stream(tmp_path / "s", pa.schema([("v", pa.int64()), ("s", pa.string())])) as there,
        pytest.raises(UsageError, match=message),
    ):
        there.append(given)


def test_times_in_other_units_are_taken_when_they_are_exact(tmp_path: pathlib.Path) -> None:
    with stream(tmp_path / "s", pa.schema([("ts", pa.timestamp("us"))])) as there:
        for unit in ("s", "ms", "ns"):
            there.append(pa.table({"ts": pa.array([1_000_000_000], "int64").cast(pa.timestamp(unit))})).wait()
        with pytest.raises(UsageError, match="lose data"):
            there.append(pa.table({"ts": pa.array([1], pa.timestamp("ns"))}))
        found = there.to_table()["ts"].cast(pa.int64()).to_pylist()
    assert found == [10**15, 10**12, 10**6]


def test_trim_without_arguments_takes_what_all_subscriptions_have_passed(tmp_path: pathlib.Path) -> None:
    schema = pa.schema([("v", pa.int64())])
    with stream(tmp_path / "s", schema, segment_bytes=1 << 16, threads=0) as there:
        for first in range(0, 40_000, 10_000):
            rows = np.random.default_rng(first).integers(0, 1 << 62, 10_000)
            there.append(pa.record_batch({"v": rows})).wait()
        assert there.trim() == [0], "nobody has said what may go"
        fast, slow = there.subscribe("fast"), there.subscribe("slow")
        fast.commit([40_000])
        slow.commit([20_000])
        assert there.trim() == [20_000]
        assert there.begins() == [20_000]
        assert there.to_table(start=20_000).num_rows == 20_000


class FullDisk:
    """A real disk on which nothing can be allocated or written any more."""

    def __init__(self, real: Any) -> None:
        self.real, self.full = real, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def open(self, path: str, mode: Any = "read") -> Any:
        file = self.real.open(path, mode)
        for name in ("write", "allocate"):
            real = getattr(file, name)
            setattr(file, name, functools.partial(self.call, real))
        return file

    def call(self, real: Any, *arguments: Any) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(*arguments)


@pytest.mark.parametrize("threads", [0, 2])
def test_a_full_disk_closes_the_stream_and_loses_nothing(tmp_path: pathlib.Path, threads: int) -> None:
    disk = FullDisk(hosts.LocalDisk())
    host = dataclasses.replace(hosts.local(), disk=disk)
    there = stream(tmp_path / "s", SCHEMA, host=host, threads=threads)
    there.append(rows(0, 10)).wait()
    disk.full = True
    with pytest.raises((ClosedError, OSError), match="No space left"):
        there.append(rows(10, 10)).wait()
    with pytest.raises(ClosedError, match="No space left"):
        there.append(rows(20, 10))
    with suppress(ClosedError, OSError):
        there.close()
    disk.full = False
    with stream(tmp_path / "s", host=host, threads=threads) as again:
        assert again.append(rows(30, 10)).wait().first_offset == 10
        assert values(again) == [*range(10), *range(30, 40)]
