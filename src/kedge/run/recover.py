"""From a ledger to a run's state, and the upkeep behind it: release, compaction, sweep.

Order matters, and each step is safe to repeat: a record frees files before they are deleted; a summary is durable
before the floor rises; only the newest epoch sweeps, and only attempts that no record can name any more.
"""

from __future__ import annotations

import posixpath
from typing import Any

from kedge.errors import ConflictError
from kedge.host import Store
from kedge.ledger import Ledger
from kedge.run.core import RunState, fold, sweep
from kedge.run.directory import STATE, RunDirectory
from kedge.streams import RESULTS, Stream

# The ledger is compacted once this many records stand above the floor; the newest ones stay, for people.
_RECORDS_MAX = 512
_RECORDS_KEPT = 64


def follow(ledger: Ledger, state: RunState | None = None) -> RunState:
    """The run's state at the ledger's tip, from `state` or from the floor's summary on."""
    ledger.refresh()
    floor, summary = ledger.floor()
    if state is None or state.position + 1 < floor:
        state = RunState() if summary is None else RunState.from_json(summary["state"])
    for record in ledger.records(state.position + 1):
        state = fold(state, record)
    return state


def recover(directory: RunDirectory, ledger: Ledger, into: Stream) -> RunState:
    """The state to go on from, after a claim; sweeps what dead attempts left behind."""
    state = follow(ledger)
    results = directory.host.store(into.path)
    for store, folder in ((directory.store, STATE), (results, RESULTS)):
        store.sweep(folder)
        needed = [unit["file"] for unit in result_units(ledger)] if folder == RESULTS else []
        _delete(store, sweep(state, needed, store.list(folder)))
    return state


def taken_over(directory: RunDirectory, epoch: int) -> ConflictError | None:
    """The reason for what a coordinator has run into, if it is that a newer one works on the run.

    A newer coordinator deletes state that its records free, so the older one may miss files that it counts on.
    """
    newest = follow(directory.ledger()).epoch
    if newest <= epoch:
        return None
    return ConflictError(
        f"{directory.path}: epoch {newest} has taken over from epoch {epoch}. Stop this coordinator, or start the "
        "run again to take it back."
    )


def release(directory: RunDirectory, ledger: Ledger, state: RunState) -> RunState:
    """The state after the records that were committed since; deletes what they free, compacts when it is due."""
    for record in list(ledger.records(state.position + 1)):
        state = fold(state, record)
        _delete(directory.store, record.get("release", ()))
    compact(ledger, state)
    return state


def compact(ledger: Ledger, state: RunState) -> None:
    """Put a summary in the place of old records once there are many."""
    floor, summary = ledger.floor()
    if state.position - floor < _RECORDS_MAX:
        return
    below = state.position - _RECORDS_KEPT
    at_floor = RunState() if summary is None else RunState.from_json(summary["state"])
    for record in ledger.records(floor):
        if record["slot"] < below:
            at_floor = fold(at_floor, record)
    results = result_units(ledger, below)
    ledger.compact(below, {"kind": "summary", "state": at_floor.to_json(), "results": results})


def result_units(ledger: Ledger, below: int | None = None) -> list[dict[str, Any]]:
    """All committed result units, oldest first, as records and the summary name them."""
    floor, summary = ledger.floor()
    units: list[dict[str, Any]] = [] if summary is None else list(summary["results"])
    for record in ledger.records(floor):
        if below is None or record["slot"] < below:
            units += record.get("results", ())
    return units


def _delete(store: Store, names: Any) -> None:
    for name in names:
        store.delete(posixpath.normpath(name))
