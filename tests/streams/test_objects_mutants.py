"""For every safety line of object streams there is a mutant without it, and the simulation notices each.

The ledger's own lines (the floor that is read again, the nonce of a claim) have theirs in tests/ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import object_workload as objects
import pytest

from kedge.errors import ConflictError, UnavailableError
from kedge.host.sim import store as sim_store
from kedge.ledger import Ledger, snapshot
from kedge.streams import committer, registers
from kedge.streams import contents as contents_module
from kedge.streams import objects as objects_module

Patch = pytest.MonkeyPatch


def _record_first(patch: Patch) -> None:
    """The units go up after the record that names them."""
    real_put, real_commit = committer.Committer._put, committer.Committer._commit

    def put(self: Any, pack: Any) -> Any:
        self.late = [*getattr(self, "late", []), pack]
        done: Any = committer.Future()
        done.set_result(None)
        return done

    def commit(self: Any, staged: Any) -> None:
        real_commit(self, staged)
        while self.late:
            real_put(self, self.late.pop(0))

    patch.setattr(committer.Committer, "_put", put)
    patch.setattr(committer.Committer, "_commit", commit)


def _overwriting_store(patch: Patch) -> None:
    """A store whose conditional put is honest only for the probe."""
    real = sim_store.SimStore.put
    patch.setattr(
        sim_store.SimStore,
        "put",
        lambda self, name, data, if_absent=False: real(self, name, data, if_absent=if_absent and "probe" in name),
    )


def _no_fence(patch: Patch) -> None:
    """A commit whose slot was taken takes the next one."""
    real = Ledger.commit

    def commit(self: Any, record: Any) -> int:
        while True:
            try:
                return real(self, record)
            except ConflictError:
                self._closed = ""
                self._epoch = self._seen.view.epoch

    patch.setattr(Ledger, "commit", commit)


def _no_claim_to_sweep(patch: Patch) -> None:
    """The sweep comes before the claim, when older writers may still commit."""
    real = committer.Committer._claim

    def claim(self: Any, takeover: bool) -> None:
        self._ledger.refresh()
        self._follow()
        self.epoch = 1 << 60
        self._sweep()
        real(self, takeover)

    patch.setattr(committer.Committer, "_claim", claim)


def _sweep_by_epoch(patch: Patch) -> None:
    """The sweep takes all objects of older epochs."""

    def sweep(self: Any) -> None:
        for name in self._store.list("units"):
            if committer._epoch_of(name) < self.epoch:
                self._store.delete(name)

    patch.setattr(committer.Committer, "_sweep", sweep)


def _shared_names(patch: Patch) -> None:
    """Two attempts may use one name."""
    real = committer.Committer._new_pack

    def new_pack(self: Any) -> Any:
        pack = real(self)
        pack.name = f"units/{0:010d}-{'0' * 12}-{self._written:08d}.unit"
        return pack

    patch.setattr(committer.Committer, "_new_pack", new_pack)


def _summary_without(what: str) -> Callable[[Patch], None]:
    def apply(patch: Patch) -> None:
        real = contents_module.Contents.summary

        def summary(self: Any) -> dict[str, Any]:
            found = real(self)
            return {**found, what: found[what][:0] if what != "ends" else [0] * len(found["ends"])}

        patch.setattr(contents_module.Contents, "summary", summary)

    return apply


def _acknowledged_anyway(patch: Patch) -> None:
    """No answer is taken for a yes."""
    real = committer.Committer._commit

    def commit(self: Any, staged: Any) -> None:
        try:
            real(self, staged)
        except UnavailableError:
            return

    patch.setattr(committer.Committer, "_commit", commit)
    patch.setattr(snapshot, "TRIES", 1)


def _put_once(patch: Patch) -> None:
    """An object without an answer is taken to be there."""

    def put(self: Any, name: str, data: Any) -> None:
        try:
            self._store.put(name, data)
        except UnavailableError:
            return

    patch.setattr(committer.Committer, "_put_patiently", put)


def _delete_first(patch: Patch) -> None:
    """A trim deletes before it has published what is kept."""
    real = objects_module.Objects.trim

    def trim(self: Any, floors: Sequence[int]) -> None:
        keep = [min(pair) for pair in zip(floors, self.positions.needed(), strict=True)]
        self.manifest.refresh()
        for part, units in enumerate(self.manifest.units):
            for unit in units:
                if unit.end <= keep[part]:
                    self._host.store(self._root).delete(unit.file)
        real(self, floors)

    patch.setattr(objects_module.Objects, "trim", trim)


def _no_subscriptions(patch: Patch) -> None:
    patch.setattr(registers.ObjectPositions, "needed", lambda self: [1 << 62] * self._partitions)


def _staged_one_by_one(patch: Patch) -> None:
    """An append to several partitions is several commits."""

    def append(self: Any, shares: Sequence[Any], producer: str | None, sequence: int | None) -> None:
        for share in shares:
            self._committer.stage([committer.Staged(share.partition, share.units, share.rows, producer, sequence)])
            self._committer.commit()

    patch.setattr(committer.ObjectAtomic, "append", append)


MUTANTS: dict[str, Callable[[Patch], None]] = {
    "the record is put before its units": _record_first,
    "the store overwrites records": _overwriting_store,
    "a fenced writer goes on": _no_fence,
    "the sweep does not wait for the claim": _no_claim_to_sweep,
    "the sweep takes what is named": _sweep_by_epoch,
    "two attempts share a name": _shared_names,
    "a summary without units": _summary_without("units"),
    "a summary without marks": _summary_without("marks"),
    "a summary without ends": _summary_without("ends"),
    "no answer is a yes": _acknowledged_anyway,
    "an object without an answer is there": _put_once,
    "deleted before it is published": _delete_first,
    "trim knows no subscriptions": _no_subscriptions,
    "an atomic append in two records": _staged_one_by_one,
}


def tries() -> Iterator[tuple[int, int, float]]:
    """Crashes to try: the same for every mutant."""
    for seed in range(40):
        for faults in (0.05, 0.0):
            found = objects.points(seed, faults=faults)
            for crash_at in [0, *found[seed % 6 :: 6]]:
                yield seed, crash_at, faults


@pytest.fixture(scope="module")
def crashes() -> Iterator[list[tuple[int, int, float]]]:
    """The crashes, chosen by the program as it is."""
    with pytest.MonkeyPatch.context() as patch:
        objects.place(patch)
        yield list(tries())


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_the_simulation_notices(name: str, crashes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    objects.place(monkeypatch)
    MUTANTS[name](monkeypatch)
    assert any(fails(crash) for crash in crashes), f"nobody notices: {name}"


@pytest.mark.slow
def test_the_program_survives_what_kills_the_mutants(crashes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    objects.place(monkeypatch)
    for crash in crashes[::2]:
        seed, crash_at, faults = crash
        objects.trial(seed, crash_at, faults=faults)


def fails(crash: tuple[int, int, float]) -> bool:
    seed, crash_at, faults = crash
    try:
        objects.trial(seed, crash_at, faults=faults)
    except Exception:
        return True
    return False
