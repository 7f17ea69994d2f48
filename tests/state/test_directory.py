"""The store in a directory: random histories with reopening, a crash at every I/O call, and two writers."""

from __future__ import annotations

from itertools import pairwise

import pytest
import state_histories as histories
import state_model as m

from kedge.errors import ConflictError, CorruptError, UsageError
from kedge.host import sim
from kedge.state import directory, open_store


@pytest.mark.parametrize("scheme", [*histories.SCHEMES, None])
def test_every_version_equals_its_copy(scheme, lane):
    for seed in lane.seeds(1, 10, 800):
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
    reader.set("s").add("d")
    with pytest.raises(UsageError, match="read-only"):
        reader.checkpoint()


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
