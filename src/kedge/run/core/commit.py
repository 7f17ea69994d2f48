"""What makes a batch true, and what may be deleted. Pure.

Invariants:
- A record names only what successful attempts of this very plan returned: never a listing, never a guess.
- Offsets of results are given here, in the order of the nodes, so they are dense whatever attempt won.
- `release` is part of the record: a file is deleted only after the record that frees it is committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kedge.errors import ConflictError, InternalError
from kedge.run.core.plan import Plan
from kedge.run.core.state import RunState, StateUnit


@dataclass(frozen=True, slots=True)
class Written:
    """A durable file of result rows."""

    file: str
    bytes: int
    rows: int
    min_us: int | None
    max_us: int | None


@dataclass(frozen=True, slots=True)
class Manifest:
    """What one node's attempt at one plan has durably written."""

    node: int
    nonce: str
    results: tuple[Written, ...]
    state: tuple[StateUnit, ...]
    figures: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        """As it travels to the committer."""
        return {
            "node": self.node,
            "nonce": self.nonce,
            "results": [[w.file, w.bytes, w.rows, w.min_us, w.max_us] for w in self.results],
            "state": [unit.to_json() for unit in self.state],
            "figures": dict(self.figures),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Manifest:
        """From `to_json`."""
        return Manifest(
            node=data["node"],
            nonce=data["nonce"],
            results=tuple(Written(*fields) for fields in data["results"]),
            state=tuple(StateUnit.from_json(unit) for unit in data["state"]),
            figures=data["figures"],
        )


def commit_record(
    state: RunState, plan: Plan, manifests: Sequence[Manifest], *, result_partitions: int, now_us: int
) -> dict[str, Any]:
    """The record of `plan`, whose parent must still be the run's newest batch."""
    if plan.parent != state.nonce or plan.epoch != state.epoch or plan.position != state.position + 1:
        raise ConflictError(
            f"Batch {plan.version} was planned in epoch {plan.epoch} after {plan.parent or 'the start'}, but the "
            f"run is now in epoch {state.epoch} after {state.nonce or 'the start'}: another coordinator has taken "
            "over. Nothing of this batch counts; stop here."
        )
    manifests = sorted(manifests, key=lambda manifest: manifest.node)
    if [m.node for m in manifests] != list(range(plan.nodes)) or any(m.nonce != plan.nonce for m in manifests):
        got = [(manifest.node, manifest.nonce) for manifest in manifests]
        raise InternalError(f"Batch {plan.version} of {plan.nodes} nodes got the manifests {got}.")
    return {
        **plan.to_json(),
        "kind": "batch",
        "results": _results(state, manifests, result_partitions),
        "state": [unit.to_json() for manifest in manifests for unit in manifest.state],
        "release": _released(state, plan, manifests),
        "figures": {**_sum_figures(manifests), "committed_us": now_us},
    }


def _results(state: RunState, manifests: Sequence[Manifest], partitions: int) -> list[dict[str, Any]]:
    ends = dict(state.result_ends)
    units: list[dict[str, Any]] = []
    for manifest, written in ((m, w) for m in manifests for w in m.results):
        partition = manifest.node % partitions
        offset = ends.get(partition, 0)
        ends[partition] = offset + written.rows
        units.append(
            {
                "partition": partition,
                "offset": offset,
                "rows": written.rows,
                "file": written.file,
                "bytes": written.bytes,
                "min_us": written.min_us,
                "max_us": written.max_us,
            }
        )
    return units


def _released(state: RunState, plan: Plan, manifests: Sequence[Manifest]) -> list[str]:
    """State units that the version after this batch does not need: replaced by a base, or all closed."""
    if plan.scheme == "full":
        return [unit.file for unit in state.units]
    written = [unit for manifest in manifests for unit in manifest.state]
    return [unit.file for unit in (*state.units, *written) if unit.open_us <= plan.close_us]


def _sum_figures(manifests: Sequence[Manifest]) -> dict[str, int]:
    total = {"rows": 0, "rows_late": 0}
    for manifest in manifests:
        for name, value in manifest.figures.items():
            total[name] = total.get(name, 0) + value
    return total


def sweep(state: RunState, needed: Iterable[str], names: Iterable[str]) -> list[str]:
    """Attempt files that no record names and none ever can: of an older epoch, or of a slot that is taken.

    `needed` are the names that records still hold, `names` the attempt files that are there. The ones of the
    current epoch beyond the tip may belong to a batch that is under way, and stay.
    """
    kept = {unit.file for unit in state.units} | set(needed)
    return [name for name in names if name not in kept and _is_dead(state, name)]


def attempt_name(folder: str, plan: Plan, node: int, attempt: str, number: int = 0) -> str:
    """A file's name: epoch, slot and attempt are in it, so that no two attempts ever share one."""
    return f"{folder}/{plan.epoch:08d}-{plan.position:012d}-{node:04d}-{attempt}-{number:04d}.unit"


def _is_dead(state: RunState, name: str) -> bool:
    parts = name.rpartition("/")[2].split("-")
    if len(parts) != 5 or not parts[0].isdigit() or not parts[1].isdigit():
        return False  # not an attempt file: not ours to delete
    epoch, position = int(parts[0]), int(parts[1])
    return epoch < state.epoch or (epoch == state.epoch and position <= state.position)
