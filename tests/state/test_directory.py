"""The store in a directory: random histories with reopening, a crash at every I/O call, and two writers."""

from __future__ import annotations

import errno
from contextlib import suppress
from itertools import pairwise

import pytest
import state_histories as histories
import state_model as m

from kedge.errors import ClosedError, ConflictError, CorruptError, UnavailableError, UsageError
from kedge.host import sim
from kedge.state import directory, open_store


@pytest.mark.parametrize("scheme", [*histories.SCHEMES, None])
def test_every_version_equals_its_copy(scheme, lane):
    for seed in lane.seeds(1, 10, 400):
        host = sim.machine(seed)

        def reopen(store, host=host):
            store.close()
            return open_store("/data/store", host=host)

        histories.run(seed, open_store("/data/store", host=host), scheme, 40, reopen, survives_open=False)


def durable(states):
    """By the number of finished steps, the state that a crash must leave: the last version made or moved to."""
    found = [states[0]]
    for before, after in pairwise(states):
        moved = after[1] != before[1] or set(after[2]) - set(before[2]) or len(after[2]) < len(before[2]) - 1
        found.append(after if moved else found[-1])
    return found


@pytest.mark.parametrize("fault", ["stop", "lose", "tear"])
@pytest.mark.parametrize("scheme", histories.SCHEMES)
def test_a_crash_at_any_call_leaves_the_last_version(scheme, fault, lane, monkeypatch):
    if fault != "stop":
        monkeypatch.setattr(directory, "INLINE_MAX", 0)  # every layer an object of its own
    _crash_everywhere(scheme, fault, len(lane.seeds(5, 1, 1)))


def test_a_record_before_its_objects_is_caught(monkeypatch):
    """The mutant: objects are put after the record that names them."""
    monkeypatch.setattr(directory, "INLINE_MAX", 0)
    late: list[tuple[str, bytes]] = []

    def put(self, blob):
        late.append((f"objects/{len(late):032x}", blob))
        return {"object": late[-1][0]}

    def commit(self, record):
        slot = self._ledger.commit({"store": directory.FORMAT, **record})
        for name, blob in late:
            self._store.put(name, blob)
        late.clear()
        return slot

    monkeypatch.setattr(directory.DirectoryJournal, "_put", put)
    monkeypatch.setattr(directory.DirectoryJournal, "_commit", commit)
    with pytest.raises((CorruptError, AssertionError)):
        _crash_everywhere("undo", "lose", 1, late.clear)


def test_a_sweep_before_the_new_base_is_caught(monkeypatch):
    """The mutant: compaction deletes what it replaces before the record that replaces it."""
    monkeypatch.setattr(directory, "INLINE_MAX", 0)
    compact = directory.DirectoryJournal.compact

    def hasty(self, line, layers, oldest, open_):
        self._sweep([])
        return compact(self, line, layers, oldest, open_)

    monkeypatch.setattr(directory.DirectoryJournal, "compact", hasty)
    with pytest.raises((CorruptError, AssertionError)):
        _crash_everywhere("undo", "stop", 1)


def _flushing(host, done):
    """A history whose flushed calls count: each step's members, once they are durable."""
    store = open_store("/data/store", host=host)
    members = store.set("s")
    for number in range(3):
        members.add(f"checked {number}")
        store.checkpoint()
        done.append(set(members))
        members.add(f"flushed {number}")
        members.discard(f"checked {number}")
        store.flush()
        done.append(set(members))
        store.compact(count=1)
        done.append(set(members))


def _crash_while_flushing(fault):
    host = sim.machine(0, fault)
    _flushing(host, [])
    for at in range(1, host.io_calls):
        host, done = sim.machine(at, fault), [set()]
        host.crash_at = at
        with suppress(sim.Crashed):
            _flushing(host, done)
        must: list[set[str]] = [set()]
        _flushing(sim.machine(0), must)
        found = open_store("/data/store", host=host.after_crash()).set("s").members()
        assert found in must[len(done) - 1 : len(done) + 1], f"crash at call {at}"


@pytest.mark.parametrize("fault", ["stop", "lose", "tear"])
def test_what_was_flushed_survives_a_crash_in_a_compaction(fault, monkeypatch):
    monkeypatch.setattr(directory, "INLINE_MAX", 0)
    _crash_while_flushing(fault)


def test_flushed_calls_outside_the_base_record_are_caught(monkeypatch):
    """The mutant: the new base first, what was flushed in a record after it."""
    compact = directory.DirectoryJournal.compact

    def apart(self, line, layers, oldest, open_):
        line = compact(self, line, layers, oldest, None)
        if open_ is not None:
            self.flush(open_, line.at, {name: reader.spec for name, reader in oldest.items()})
        return line

    monkeypatch.setattr(directory.DirectoryJournal, "compact", apart)
    with pytest.raises(AssertionError, match="crash at call"):
        _crash_while_flushing("stop")


def test_a_full_disk_is_said_and_loses_nothing():
    host = sim.machine(3)
    store = open_store("/data/store", host=host)
    members = store.set("s")
    members.update(range(20_000))
    version = store.checkpoint()
    members.update(n * n * 1_000_003 for n in range(20_000))
    for call in range(host.io_calls, host.io_calls + 40):
        host.fail_at[call] = errno.ENOSPC
    with pytest.raises(UnavailableError, match="open it again"):
        store.checkpoint()
    for call in (store.checkpoint, lambda: members.add(1)):
        with pytest.raises(ClosedError, match="a write failed"):
            call()
    host.fail_at.clear()
    again = open_store("/data/store", host=host)
    assert again.version == version
    assert len(again.set("s")) == 20_000


def test_a_reader_comes_while_a_writer_compacts(tmp_path):
    """Between a reader's listing and its reading, the objects that it is about to read may go."""
    import threading

    url = str(tmp_path / "store")
    writer = open_store(url)
    members, stop, failed, seen = writer.set("s"), threading.Event(), list[BaseException](), 0
    members.update(n * n * 1_000_003 % 2**61 for n in range(30_000))
    writer.checkpoint()

    def write():
        number = 0
        try:
            while not stop.is_set():
                members.update(n * n * 999_983 % 2**61 for n in range(number, number + 30_000))
                writer.checkpoint()
                writer.compact(count=1)
                number += 1_000
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    for _ in range(15):
        seen += len(open_store(url, read_only=True).set("s")) > 0
    stop.set()
    thread.join()
    assert not failed
    assert seen == 15


def _crash_everywhere(scheme, fault, every, before=lambda: None):
    must = durable(list(histories.steps(open_store("memory:"), scheme)))
    calls = _crash(scheme, sim.machine(0, fault), [])
    assert calls > 60
    for at in range(1, calls, every):
        before()
        host, done = sim.machine(at, fault), []
        host.crash_at = at
        _crash(scheme, host, done)
        store = open_store("/data/store", host=host.after_crash())
        of = m.structures(store)
        found = (m.read(of), store.version, [version.number for version in store.versions()])
        assert found in must[max(len(done) - 1, 0) : len(done) + 1], f"crash at call {at}, after {len(done)} steps"
        of["s"].add("after")
        version = store.checkpoint()
        of["s"].clear()
        store.rollback(version)
        assert "after" in of["s"]


def _crash(scheme, host, done):
    try:
        for state in histories.steps(open_store("/data/store", host=host), scheme):
            done.append(state)
    except sim.Crashed:
        pass
    return host.io_calls


@pytest.mark.parametrize("large", [False, True])
def test_what_was_flushed_is_open_again(large):
    host = sim.machine(1)
    store = open_store("/data/store", host=host)
    members = store.set("s")
    members.update(range(30_000 if large else 3))
    first = store.checkpoint()
    members.discard(1)
    members.add("x")
    store.flush()
    members.add("lost")
    again = open_store("/data/store", host=host)
    members = again.set("s")
    assert members.contains(["x", 1, "lost"]).tolist() == [True, False, False]
    assert list(again.changes(first, first)) == []
    again.rollback()
    assert members.contains(["x", 1]).tolist() == [False, True]


def test_the_older_of_two_writers_is_fenced(tmp_path):
    first = open_store(str(tmp_path / "store"))
    first.set("s").add("a")
    first.checkpoint()
    second = open_store(str(tmp_path / "store"))
    first.set("s").add("b")
    with pytest.raises(ConflictError):
        first.checkpoint()
    second.set("s").add("c")
    second.checkpoint()
    reader = open_store(str(tmp_path / "store"), read_only=True)
    assert set(reader.set("s")) == {"a", "c"}
    for call in (lambda: reader.set("s").add("d"), reader.checkpoint, reader.rollback, lambda: reader.set("new")):
        with pytest.raises(UsageError, match="read-only"):
            call()
    assert set(reader.set("s")) == {"a", "c"}


def test_a_damaged_layer_is_said_and_not_read(tmp_path):
    store = open_store(str(tmp_path / "store"))
    store.set("s").update([2**40 * n for n in range(40_000)])
    store.map("m").update({f"{n:x}" * 9: n for n in range(4_000)})
    store.checkpoint()
    damaged = next((tmp_path / "store" / "objects").iterdir())
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    with pytest.raises(CorruptError, match="checksum"):
        open_store(str(tmp_path / "store"))


def test_the_empty_version_is_no_younger_than_the_first(tmp_path):
    store = open_store(str(tmp_path / "store"))
    store.set("s").add(1)
    store.checkpoint()
    again = open_store(str(tmp_path / "store"))
    empty, first = again.versions()
    assert empty.at_us <= first.at_us
    assert again.compact(age_seconds=0) == [1]


def test_versions_that_a_change_dropped_stay_dropped_after_a_compaction(tmp_path):
    store = open_store(str(tmp_path / "store"))
    members = store.set("s")
    for number in range(3):
        members.add(number)
        store.checkpoint()
    store.rollback(1)
    members.add("another way")
    assert store.compact(count=9) == [0, 1]
    assert [version.number for version in open_store(str(tmp_path / "store")).versions()] == [0, 1]


def test_compaction_leaves_no_garbage(tmp_path):
    store = open_store(str(tmp_path / "store"))
    members = store.set("s")
    for start in range(0, 90_000, 30_000):
        members.update([n * n * 1_000_003 % 2**61 for n in range(start, start + 30_000)])
        store.checkpoint()
    objects = tmp_path / "store" / "objects"
    assert len(list(objects.iterdir())) == 3
    store.compact(count=1)
    assert len(list(objects.iterdir())) == 1
    assert len(open_store(str(tmp_path / "store")).set("s")) == len(members)
