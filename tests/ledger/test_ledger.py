from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kedge.ledger.ledger as ledger_module
import kedge.ledger.record as record_module
import kedge.ledger.snapshot as snapshot_module
from kedge.errors import ClosedError, ConflictError, CorruptError, UnavailableError, UsageError
from kedge.host import DirectoryStore, LocalDisk, SystemClock, SystemRng
from kedge.host.rng import SeededRng
from kedge.host.sim import SimClock, SimStore, machine, mutate
from kedge.ledger import Ledger
from kedge.ledger.record import decode, encode

GOLDEN = Path(__file__).parent / "golden"


def ledger_on(store: Any, seed: int = 1) -> Ledger:
    return Ledger(store, SeededRng(seed), SimClock())


@pytest.fixture
def store() -> SimStore:
    return SimStore(1)


def test_a_commit_reads_back_with_its_slot_and_epoch(store: SimStore) -> None:
    ledger = ledger_on(store)
    assert ledger.refresh() is None
    assert ledger.floor() == (0, None)
    assert ledger.claim() == 1
    assert ledger.commit({"kind": "batch", "rows": 7, "list": [1, None, "é"]}) == 1
    records = list(ledger.records())
    assert records[0]["kind"] == "claim"
    assert records[1] == {"kind": "batch", "rows": 7, "list": [1, None, "é"], "slot": 1, "epoch": 1}
    assert list(ledger.records(1)) == records[1:]
    assert list(ledger.records(2)) == []


def test_what_a_caller_does_to_a_record_stays_with_him(store: SimStore) -> None:
    ledger = ledger_on(store)
    ledger.claim()
    ledger.commit({"kind": "batch", "ranges": [1]})
    next(ledger.records(1))["ranges"].append(2)
    assert next(ledger.records(1))["ranges"] == [1]


def test_a_reader_follows_without_claiming(store: SimStore) -> None:
    writer, reader = ledger_on(store), ledger_on(store, 2)
    writer.claim()
    assert reader.refresh() == 0
    writer.commit({"kind": "batch"})
    assert len(list(reader.records())) == 1, "between refreshes a view does not move"
    assert reader.refresh() == 1
    with pytest.raises(UsageError, match="claim"):
        reader.commit({"kind": "batch"})
    with pytest.raises(UsageError, match="claim"):
        reader.compact(1, {})


def test_a_takeover_fences_the_one_before(store: SimStore) -> None:
    old, new = ledger_on(store), ledger_on(store, 2)
    assert (old.claim(), new.claim()) == (1, 2)
    for _ in range(2):
        with pytest.raises(ConflictError):
            old.commit({"kind": "batch"})
    with pytest.raises(ConflictError):
        old.compact(1, {})
    assert new.commit({"kind": "batch"}) == 2
    assert old.claim() == 3
    assert old.commit({"kind": "batch"}) == 4


def test_a_refresh_between_claims_does_not_unfence(store: SimStore) -> None:
    old, new = ledger_on(store), ledger_on(store, 2)
    old.claim()
    new.claim()
    old.refresh()
    with pytest.raises(ConflictError):
        old.commit({"kind": "batch"})


def test_compaction_keeps_the_sum_and_deletes_the_rest(store: SimStore) -> None:
    ledger, reader = ledger_on(store), ledger_on(store, 2)
    ledger.claim()
    for number in range(5):
        ledger.commit({"kind": "batch", "number": number})
    reader.refresh()
    ledger.compact(3, {"upto": 2})
    ledger.compact(5, {"upto": 4})
    assert [name for name in store.objects if "probe" not in name] == [
        "ledger/00000000000000000005.json",
        "ledger/floor/00000000000000000005.json",
    ]
    for view in (ledger, reader, ledger_on(store, 3)):
        assert view.refresh() == 5
        assert view.floor() == (5, {"upto": 4})
        assert [record["slot"] for record in view.records(0)] == [5]
    assert ledger.commit({"kind": "batch"}) == 6
    for below in (0, 7, 99):
        with pytest.raises(UsageError, match="below"):
            ledger.compact(below, {})


def test_a_store_that_ignores_the_condition_is_refused() -> None:
    class Careless(SimStore):
        def put(self, name: str, data: Any, *, if_absent: bool = False) -> None:
            super().put(name, data)

    with pytest.raises(UsageError, match="conditional put"):
        ledger_on(Careless()).claim()


def test_when_the_outcome_stays_unknown_the_ledger_closes_until_the_next_claim(store: SimStore) -> None:
    ledger = ledger_on(store)
    ledger.claim()
    store.faults = 1.0
    with pytest.raises(UnavailableError):
        ledger.commit({"kind": "batch", "number": 1})
    store.faults = 0.0
    with pytest.raises(ClosedError, match="unknown"):
        ledger.commit({"kind": "batch", "number": 2})
    ledger.claim()
    store.land()
    kinds = [record["kind"] for record in ledger.records()]
    assert kinds in (["claim", "claim"], ["claim", "batch", "claim"])
    assert ledger.commit({"kind": "batch", "number": 3}) == len(kinds)
    assert ledger_on(store, 2).refresh() == len(kinds)


def test_a_missing_record_is_a_hole_and_not_the_end(store: SimStore) -> None:
    ledger = ledger_on(store)
    ledger.claim()
    for _ in range(4):
        ledger.commit({"kind": "batch"})
    del store.objects["ledger/00000000000000000002.json"]
    with pytest.raises(CorruptError, match=r"02\.json is missing"):
        ledger_on(store, 2).refresh()
    with pytest.raises(CorruptError, match=r"02\.json is missing"):
        ledger_on(store, 2).claim()


def half_emptied(store: SimStore) -> Ledger:
    """A reader that saw slots 0 to 2; compaction has deleted 0 to 3 of 0 to 5, and a late claim has refilled 3."""
    writer, reader = ledger_on(store), ledger_on(store, 2)
    writer.claim()
    for number in range(7):
        writer.commit({"kind": "batch", "number": number})
        if number == 1:
            reader.refresh()
    before = dict(store.objects)
    writer.compact(6, {"upto": 5})
    for slot in (4, 5):
        store.objects[f"ledger/{slot:020d}.json"] = before[f"ledger/{slot:020d}.json"]
    store.objects[f"ledger/{3:020d}.json"] = encode({"kind": "claim", "nonce": "late"}, 3, 2)
    return reader


def test_a_claim_that_lands_in_an_emptied_slot_confuses_nobody(store: SimStore) -> None:
    reader = half_emptied(store)
    assert reader.refresh() == 7
    assert reader.floor() == (6, {"upto": 5})
    assert [record["slot"] for record in reader.records()] == [6, 7]
    assert ledger_on(store, 3).claim() == 2


def test_a_reader_that_does_not_ask_for_the_floor_is_confused(
    store: SimStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant = mutate(snapshot_module, "if self.read_floor() > view.floor:", "if False:")
    monkeypatch.setattr(ledger_module, "Snapshot", mutant.Snapshot)
    with pytest.raises(CorruptError, match="epoch 1 after 2"):
        half_emptied(store).refresh()


def test_an_epoch_that_goes_back_above_the_floor_is_corruption(store: SimStore) -> None:
    ledger = ledger_on(store)
    ledger.claim()
    store.objects[f"ledger/{1:020d}.json"] = encode({"kind": "claim", "nonce": "a"}, 1, 5)
    store.objects[f"ledger/{2:020d}.json"] = encode({"kind": "batch", "nonce": "b"}, 2, 4)
    with pytest.raises(CorruptError, match="epoch 4 after 5"):
        ledger_on(store, 2).refresh()


@pytest.mark.parametrize("record", [{"slot": 9}, {"epoch": 9}, {"format": 1}, {"xxh3_64": ""}, {"a": float("nan")}])
def test_records_that_can_not_be_kept_are_refused(store: SimStore, record: dict[str, Any]) -> None:
    ledger = ledger_on(store)
    ledger.claim()
    with pytest.raises(UsageError):
        ledger.commit(record)
    assert ledger.commit({"kind": "batch"}) == 1


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(["kind", "rows", "é", "", "a b"]), JSON))
def test_any_json_reads_back_and_stays_json(record: dict[str, Any]) -> None:
    data = encode(record, 42, 3)
    assert decode(data, 42, "name") == {**record, "slot": 42, "epoch": 3}
    assert json.loads(data)["slot"] == 42


def damaged() -> Iterator[tuple[bytes, int]]:
    """A record with each bit flipped, cut at each byte, and under another name."""
    data = encode({"kind": "batch", "rows": 123}, 42, 3)
    for at in range(len(data)):
        yield data[:at], 42
        for bit in range(8):
            yield data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :], 42
    yield data, 41


def test_every_damage_is_noticed() -> None:
    for data, slot in damaged():
        with pytest.raises(CorruptError):
            decode(data, slot, "name")


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("if suffix != _SUFFIX.format(checksum(body, slot)).encode():", "if False:"),
        ("xxhash.xxh3_64_intdigest(body, seed=slot)", "xxhash.xxh3_64_intdigest(body)"),
    ],
)
def test_a_record_without_its_checksum_or_seed_is_caught(line: str, instead: str) -> None:
    mutant = mutate(record_module, line, instead)
    original = mutant.encode({"kind": "batch", "rows": 123}, 42, 3)

    def accepted() -> Iterator[bytes]:
        for data, slot in damaged():
            raw = original if slot != 42 else data
            try:
                mutant.decode(raw, slot, "name")
                yield raw
            except (CorruptError, ValueError, KeyError, TypeError):
                continue

    assert next(accepted(), None) is not None


def test_format_1_stays_readable(tmp_path: Path) -> None:
    """The files were written by the first version and must never be written again."""
    for file in sorted((GOLDEN / "format-1").rglob("*.json")):
        target = tmp_path / file.relative_to(GOLDEN / "format-1")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.read_bytes())
    ledger = Ledger(DirectoryStore(LocalDisk(), str(tmp_path), SystemRng()), SystemRng(), SystemClock())
    assert ledger.refresh() == 4
    assert ledger.floor() == (2, {"kind": "summary", "results": [{"partition": 0, "rows": 3}]})
    assert list(ledger.records()) == [
        {"kind": "batch", "nonce": "b1", "rows": 5, "slot": 2, "epoch": 1},
        {"kind": "claim", "nonce": "c2", "slot": 3, "epoch": 2},
        {"kind": "batch", "nonce": "b2", "text": "naïve ☃", "slot": 4, "epoch": 2},
    ]
    assert ledger.claim() == 3
    assert ledger.commit({"kind": "batch"}) == 6


def test_a_newer_format_is_refused_with_a_word_on_what_to_do() -> None:
    newer = mutate(record_module, "FORMAT = 1\n", "FORMAT = 2\n").encode({}, 1, 1)
    with pytest.raises(CorruptError, match="Upgrade"):
        decode(newer, 1, "name")


def test_a_commit_and_an_idle_refresh_are_cheap() -> None:
    host = machine(1)
    ledger = Ledger(host.store("/run"), host.rng, host.clock)
    ledger.claim()
    before = host.io_calls
    ledger.commit({"kind": "batch"})
    kinds = [call.kind for call in host.trace[before:]]
    assert kinds == ["create", "write", "sync", "link", "unlink", "sync_dir", "list"]
    before = host.io_calls
    ledger.refresh()
    assert [call.kind for call in host.trace[before:]] == ["open", "list"]
