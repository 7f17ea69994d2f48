"""Streams in object stores, through the public face: on obstore's memory and local stores."""

from __future__ import annotations

import pickle  # noqa: TID251  (what Spark does with a stream)
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kedge
from kedge import host as hosts
from kedge.errors import ClosedError, ConflictError, CorruptError, UsageError
from kedge.host import Host, Store
from kedge.host.objects import ObjectStore
from kedge.streams import Stream, committer, repair, stream, verify
from kedge.streams.index import header_of

stores = pytest.importorskip("obstore.store")

SCHEMA = pa.schema([("ts", pa.timestamp("us")), ("v", pa.int64()), ("name", pa.string())])


def rows(start: int, end: int) -> pa.Table:
    values = range(start, end)
    return pa.table(
        [pa.array(values, pa.timestamp("us")), list(values), [f"row {v}" for v in values]], schema=SCHEMA
    )


class LocalObjects(Host):
    """A host whose addresses are folders of obstore's local store."""

    folder: Path

    def store(self, root: str) -> Store:
        inner = stores.LocalStore(self.folder, mkdir=True)
        return ObjectStore(inner, root, root.partition("://")[2])


@pytest.fixture(params=["memory", "local"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Host]:
    here = hosts.local()
    if request.param == "memory":
        return f"memory://{tmp_path.name}/s", here
    other = LocalObjects(here.clock, here.disk, here.rng)
    object.__setattr__(other, "folder", tmp_path)
    return "s3://bucket/s", other


@pytest.fixture
def some(place: tuple[str, Host]) -> Iterator[Stream]:
    with stream(place[0], SCHEMA, 2, event_time="ts", host=place[1]) as made:
        yield made


def again(place: tuple[str, Host], **options: Any) -> Stream:
    return stream(place[0], host=place[1], **options)


def test_rows_come_back_in_order_and_pruned(some: Stream, place: tuple[str, Host]) -> None:
    for n in range(20):
        some.append(rows(n * 10, n * 10 + 10), n % 2).wait()  # or they would share units
    reader = again(place)
    assert reader.ends() == [100, 100]
    assert reader.begins() == [0, 0]
    assert reader.to_table(0)["v"].to_pylist() == [v for n in range(0, 20, 2) for v in range(n * 10, n * 10 + 10)]
    assert reader.to_table(1, 5, 12, ["name", "v"]).to_pydict() == {
        "name": [f"row {v}" for v in (15, 16, 17, 18, 19, 30, 31)],
        "v": [15, 16, 17, 18, 19, 30, 31],
    }
    assert [unit.min_us for unit in reader.units(1, 0, 20)] == [10, 30]
    assert reader.to_table(columns=[]).num_rows == 200
    assert reader.to_table(end=0).num_rows == 0


def test_large_units_have_objects_of_their_own_and_small_ones_share(some: Stream, place: tuple[str, Host]) -> None:
    import numpy as np

    noise = np.random.default_rng(1).integers(0, 1 << 62, 400_000)
    big = pa.table([pa.array(noise, pa.timestamp("us")), noise, ["x"] * len(noise)], schema=SCHEMA)
    some.append_atomic({0: big, 1: rows(0, 5)})
    some.append_atomic({0: rows(0, 5), 1: rows(0, 5)})
    assert len({unit.file for p in (0, 1) for unit in again(place).units(p)}) == 3
    assert again(place).to_table(0, 0, 400_000).equals(big)


def test_a_producer_that_repeats_itself_is_heard_once(some: Stream, place: tuple[str, Host]) -> None:
    for _ in range(2):
        first = some.append(rows(0, 3), producer="p", sequence=7).wait()
        both = some.append_atomic({0: rows(0, 2), 1: rows(0, 2)}, producer="q", sequence=1)
    assert first.duplicate
    assert all(one.duplicate for one in both)
    some.append(rows(0, 0), producer="empty", sequence=4).wait()
    some.close()
    with again(place) as later:
        assert later.append(rows(0, 3), producer="p", sequence=7).wait().duplicate
        assert later.append(rows(0, 0), producer="empty", sequence=4).wait().duplicate
        assert not later.append(rows(0, 1), producer="p", sequence=8).wait().duplicate
    assert again(place).ends() == [6, 2]


def test_the_second_writer_is_refused_until_it_takes_over(some: Stream, place: tuple[str, Host]) -> None:
    some.append(rows(0, 1)).wait()
    second = again(place)
    with pytest.raises(ConflictError, match="takeover=True"):
        second.append(rows(0, 1), 1)  # one writer for all partitions
    with again(place, takeover=True) as third:
        assert third.append(rows(0, 1)).wait().first_offset == 1
        with pytest.raises(ConflictError, match="taken over"):
            some.append(rows(0, 1)).wait()
        with pytest.raises(ClosedError):
            some.append(rows(0, 1))
        third.append(rows(0, 1)).wait()
    assert again(place).ends() == [3, 0]


def test_a_writer_that_closed_or_died_gives_way(place: tuple[str, Host], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committer, "SILENCE_SECONDS", 0.2)
    with stream(place[0], SCHEMA, host=place[1]) as first:
        first.append(rows(0, 1)).wait()
    dead = again(place, threads=0)  # without threads it says nothing, as if it were dead
    dead.append(rows(0, 1)).wait()
    with again(place) as later:
        assert later.append(rows(0, 1)).wait().first_offset == 2
    with pytest.raises(ConflictError):
        dead.append(rows(0, 1)).wait()


def test_what_a_reader_has_not_passed_is_kept(some: Stream, place: tuple[str, Host]) -> None:
    for n in range(10):
        some.append(rows(n, n + 1)).wait()
    bills = some.subscribe("bills")
    bills.commit([4, 0])
    assert again(place).subscriptions() == {"bills": [4, 0]}
    assert some.trim([8, 0]) == [8, 0]
    assert some.begins() == [8, 0]
    assert [unit.first_offset for unit in some.units(0)] == [4, 5, 6, 7, 8, 9]
    assert len(place[1].store(place[0]).list("units")) == 6
    again(place).subscribe("bills").commit([9, 0])
    assert again(place).trim() == [9, 0]  # by anybody, beside the writer
    assert again(place).to_table(0)["v"].to_pylist() == [9]
    bills.end()
    assert some.trim(older_us=10) == [10, 0]
    assert some.to_table().num_rows == 0
    assert some.ends() == [10, 0]
    assert some.append(rows(0, 1)).wait().first_offset == 10


def test_many_appends_are_summarised(place: tuple[str, Host], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committer, "COMPACT_EVERY", 8)
    with stream(place[0], SCHEMA, 2, host=place[1]) as made:
        reader = again(place)
        for n in range(40):
            made.append(rows(n, n + 1), n % 2, producer="p", sequence=n).wait()
            assert sum(reader.ends()) == n + 1
    assert len(place[1].store(place[0]).list("ledger")) < 20
    assert again(place).to_table(0)["v"].to_pylist() == list(range(0, 40, 2))
    assert reader.to_table(1)["v"].to_pylist() == list(range(1, 40, 2))
    with again(place) as later:
        assert later.append(rows(0, 1), 1, producer="p", sequence=39).wait().duplicate


def test_a_stream_travels(some: Stream, place: tuple[str, Host]) -> None:
    some.append(rows(0, 3)).wait()
    if place[0].startswith("memory"):
        assert pickle.loads(pickle.dumps(some)).to_table().num_rows == 3
    assert repr(some) == f"kedge.stream({place[0]!r})"


def test_the_same_objects_in_a_directory_are_the_same_stream(some: Stream, place: Any, tmp_path: Path) -> None:
    """`aws s3 sync` and the like: the description says what the format is, not the address."""
    some.append(rows(0, 3)).wait()
    store, copy = place[1].store(place[0]), hosts.local().store(str(tmp_path / "copy"))
    for name in store.list(""):
        copy.put(name, store.get(name))
    assert kedge.stream(tmp_path / "copy").to_table()["v"].to_pylist() == [0, 1, 2]


def test_a_stream_of_segments_is_refused_in_an_object_store(tmp_path: Path) -> None:
    with kedge.stream(tmp_path / "s", SCHEMA) as made:
        made.append(rows(0, 3)).wait()
    store = hosts.local().store(f"memory://{tmp_path.name}/copied")
    store.put("stream.json", (tmp_path / "s" / "stream.json").read_bytes())
    with pytest.raises(UsageError, match="made in a directory"):
        kedge.stream(f"memory://{tmp_path.name}/copied")


def test_file_addresses_are_directories(tmp_path: Path) -> None:
    with kedge.stream(f"file://{tmp_path}/s/", SCHEMA) as made:
        made.append(rows(0, 3)).wait()
    assert kedge.stream(tmp_path / "s").ends() == [3]
    assert verify(f"file://{tmp_path}/s").rows == 3


def damage(store: Store, name: str, how: str) -> None:
    data = bytearray(store.get(name))
    if how == "flip":
        data[len(data) * 2 // 3] ^= 16
    elif how == "cut":
        del data[-40:]
    elif how == "zero":
        data[100:140] = bytes(40)
    elif how == "double":
        data = data + data
    store.delete(name) if how == "gone" else store.put(name, bytes(data))


@pytest.mark.parametrize("how", ["flip", "cut", "zero", "gone"])
def test_damage_is_found_named_and_repaired(some: Stream, place: tuple[str, Host], how: str) -> None:
    for n in range(5):
        some.append(rows(n * 10, n * 10 + 10)).wait()
    some.close()
    store = place[1].store(place[0])
    units = again(place).units(0)
    damage(store, units[2].file, how)
    with pytest.raises(CorruptError, match=units[2].file):
        again(place).to_table(0)
    found = verify(place[0], host=place[1])
    assert [(problem.file, problem.first_offset) for problem in found.problems] == [(units[2].file, 20)]
    assert "byte " in str(found.problems[0])
    done = repair(place[0], host=place[1])
    assert (done.rows_kept, done.rows_lost) == (40, 10)
    assert any("offset 20" in line for line in done.dropped)
    after = again(place)
    assert after.to_table(0)["v"].to_pylist() == [v for v in range(50) if not 20 <= v < 30]
    assert after.to_table(0, 30, 31)["v"].to_pylist() == [30]
    assert verify(place[0], host=place[1]).problems == []
    assert verify(place[0], host=place[1]).rows_lost == 10
    with again(place) as later:
        assert later.append(rows(0, 1)).wait().first_offset == 50


def test_an_object_in_the_place_of_another_does_not_check(some: Stream, place: tuple[str, Host]) -> None:
    """Same size, same rows, right checksums, wrong place."""
    for partition in (0, 1):
        some.append(rows(0, 10), partition).wait()
    store = place[1].store(place[0])
    one, two = (some.units(partition)[0].file for partition in (0, 1))
    first, second = store.get(one), store.get(two)
    store.put(one, second)
    store.put(two, first)
    for partition in (0, 1):
        with pytest.raises(CorruptError, match="checksum"):
            again(place).to_table(partition)
    assert len(verify(place[0], host=place[1]).problems) == 2


@pytest.mark.parametrize("name", ["ledger/00000000000000000001.json", "floors/x", "stream.json"])
def test_damaged_documents_are_named(some: Stream, place: tuple[str, Host], name: str) -> None:
    some.append(rows(0, 10)).wait()
    some.append(rows(0, 10)).wait()
    some.trim(10)
    some.close()
    store = place[1].store(place[0])
    name = next(found for found in store.list("") if found.startswith(name.removesuffix("x")))
    damage(store, name, "flip")
    problems = verify(place[0], host=place[1]).problems
    assert [problem for problem in problems if problem.file.split("/")[0] in name]
    if name.startswith("ledger"):
        with pytest.raises(UsageError, match="Restore"):
            repair(place[0], host=place[1])
        return
    repair(place[0], host=place[1])
    assert verify(place[0], host=place[1]).problems == []
    assert again(place).to_table()["v"].to_pylist()[-10:] == list(range(10))


def test_a_store_that_overwrites_is_refused(tmp_path: Path) -> None:
    """The probe finds out, before a row is taken."""

    class Careless(ObjectStore):
        def put(self, name: str, data: Any, *, if_absent: bool = False) -> None:
            super().put(name, data)

    class CarelessHost(Host):
        def store(self, root: str) -> Store:
            return inner

    here = hosts.local()
    inner = Careless(stores.MemoryStore(), "s3://careless")
    made = stream("s3://careless", SCHEMA, host=CarelessHost(here.clock, here.disk, here.rng))
    with pytest.raises(UsageError, match="no conditional put"):
        made.append(rows(0, 1))


def test_a_durable_append_is_two_puts_and_a_listing() -> None:
    from kedge.host.sim import machine

    host = machine(1, "stop")
    made = stream("s3://bucket/s", SCHEMA, 2, host=host, threads=0)
    made.recover()
    before = host.io_calls
    made.append(rows(0, 3), 0).wait()
    made.append_atomic({0: rows(0, 3), 1: rows(0, 3)})
    assert [call.kind for call in host.trace[before:]] == ["put", "put", "list"] * 2


def wide(first: int, count: int = 1 << 16) -> pa.Table:
    """Rows whose columns do not compress: a unit of them has more than two megabytes."""
    rng = np.random.default_rng(first)
    values = [rng.integers(-(1 << 62), 1 << 62, count) for _ in range(4)]
    return pa.table([np.arange(first, first + count), *values, [f"{n:x}" for n in values[0]]], schema=WIDE)


WIDE = pa.schema([*((name, pa.int64()) for name in ("n", "a", "b", "c", "d")), ("s", pa.string())])


def test_what_is_not_asked_for_is_not_fetched(place: tuple[str, Host], monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[int] = []
    real = ObjectStore.get

    def get(self: ObjectStore, name: str, *where: Any) -> bytes:
        found = real(self, name, *where)
        if name.startswith("units/"):
            fetched.append(len(found))
        return found

    with stream(place[0], WIDE, host=place[1]) as made:
        for first in (0, 1 << 16, 1 << 17):
            made.append(wide(first)).wait()
        unit_bytes = made.units(0)[0].bytes
    assert unit_bytes > 2 << 20
    monkeypatch.setattr(ObjectStore, "get", get)
    whole = again(place)
    assert whole.to_table().equals(pa.concat_tables([wide(0), wide(1 << 16), wide(1 << 17)]))
    assert sum(fetched) == sum(info.bytes for info in whole.units(0))

    fetched.clear()
    assert again(place).to_table(columns=["b"]).equals(whole.to_table(columns=["b"]))
    assert sum(fetched) < unit_bytes, "of three units a seventh each, and the headers"

    fetched.clear()
    few = again(place).to_table(columns=["s", "a"], where={"n": (1 << 16, (1 << 16) + 5)})
    assert few.equals(whole.to_table(0, 1 << 16, (1 << 16) + 6, columns=["s", "a"]))
    assert sum(fetched) < unit_bytes + (100 << 10), "of two units the headers only"


def test_a_spoiled_byte_is_noticed_in_the_columns_that_are_read(place: tuple[str, Host]) -> None:
    with stream(place[0], WIDE, host=place[1]) as made:
        made.append(wide(0)).wait()
        info = made.units(0)[0]
    header = header_of(made._indexes[0].file(info), info)
    store = place[1].store(place[0])
    good = store.get(info.file)
    at = int(header.buffers[2]["start"])  # of column b
    store.put(info.file, good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
    assert again(place).to_table(columns=["a"]).num_rows == 1 << 16
    with pytest.raises(CorruptError, match="checksum"):
        again(place).to_table(columns=["b"])
    store.put(info.file, good[:200] + bytes([good[200] ^ 1]) + good[201:])
    with pytest.raises(CorruptError, match="header"):
        again(place).to_table(columns=["a"])
    store.put(info.file, good[:-4096])
    with pytest.raises(CorruptError):
        again(place).to_table(columns=["s"])
