"""What the ledger says about a run: the fold of its records.

Invariants:
- `fold` is total over every record that a released version has written, and never looks outside the record.
- `units` holds exactly the state units that a restore of the current version needs: the newest base and every redo
  after it whose windows are not all closed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from kedge.errors import CorruptError, InternalError

Record: TypeAlias = Mapping[str, Any]
Scheme: TypeAlias = Literal["redo", "full"]

# "No watermark yet" and "every window is closed": outside all event times, and far from overflow.
NEVER_US = -(1 << 62)
ALWAYS_US = 1 << 62


@dataclass(frozen=True, slots=True)
class StateUnit:
    """A file of state rows, sorted by task, that one node wrote in one batch."""

    file: str
    bytes: int
    rows: int
    scheme: Scheme
    open_us: int  # the newest window end among its rows: behind the watermark, nobody needs the unit

    def to_json(self) -> dict[str, Any]:
        """As it stands in a record."""
        return {
            "file": self.file,
            "bytes": self.bytes,
            "rows": self.rows,
            "scheme": self.scheme,
            "open_us": self.open_us,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> StateUnit:
        """From a record."""
        return StateUnit(data["file"], data["bytes"], data["rows"], data["scheme"], data["open_us"])


@dataclass(frozen=True, slots=True)
class RunState:
    """A run at one version."""

    epoch: int = 0
    position: int = -1  # the newest slot of the ledger that was folded
    version: int = 0  # batches since the start
    nonce: str = ""  # of the newest batch; "" before the first
    positions: Mapping[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])
    watermark_us: int = NEVER_US
    newest_us: Mapping[str, int] = field(default_factory=dict[str, int])  # newest event time of each input
    result_ends: Mapping[int, int] = field(default_factory=dict[int, int])
    units: tuple[StateUnit, ...] = ()
    final: bool = False  # every window is closed; the run is over
    rows: int = 0
    rows_late: int = 0
    committed_us: int = 0

    def to_json(self) -> dict[str, Any]:
        """The summary that stands for all records up to `position` when the ledger is compacted."""
        return {
            "kind": "summary",
            "epoch": self.epoch,
            "position": self.position,
            "version": self.version,
            "nonce": self.nonce,
            "positions": [[name, partition, end] for (name, partition), end in sorted(self.positions.items())],
            "watermark_us": self.watermark_us,
            "newest_us": dict(self.newest_us),
            "result_ends": [[partition, end] for partition, end in sorted(self.result_ends.items())],
            "units": [unit.to_json() for unit in self.units],
            "final": self.final,
            "rows": self.rows,
            "rows_late": self.rows_late,
            "committed_us": self.committed_us,
        }

    @staticmethod
    def from_json(data: Record) -> RunState:
        """From a summary."""
        return RunState(
            epoch=data["epoch"],
            position=data["position"],
            version=data["version"],
            nonce=data["nonce"],
            positions={(name, partition): end for name, partition, end in data["positions"]},
            watermark_us=data["watermark_us"],
            newest_us=data["newest_us"],
            result_ends=dict(data["result_ends"]),
            units=tuple(StateUnit.from_json(unit) for unit in data["units"]),
            final=data["final"],
            rows=data["rows"],
            rows_late=data["rows_late"],
            committed_us=data["committed_us"],
        )


def fold(state: RunState, record: Record) -> RunState:
    """The run after `record`, which stands in the slot after `state.position`."""
    if record["slot"] != state.position + 1:
        raise InternalError(f"Record {record['slot']} was folded after {state.position}.")
    kind = record["kind"]
    if kind == "claim":
        return replace(state, position=record["slot"], epoch=record["epoch"])
    if kind == "batch":
        return _fold_batch(state, record)
    raise CorruptError(
        f"Ledger record {record['slot']} is of the unknown kind {kind!r}: it was written by a newer Kedge. "
        "Continue this run with that version."
    )


def _fold_batch(state: RunState, record: Record) -> RunState:
    if record["parent"] != state.nonce:
        raise CorruptError(
            f"Ledger record {record['slot']} names the parent {record['parent'] or 'none'}, but the batch before "
            f"it is {state.nonce or 'none'}. Run `kedge run verify` and restore the ledger from a copy."
        )
    positions = dict(state.positions)
    for name, partition, start, end in record["ranges"]:
        if positions.get((name, partition), start) != start:
            raise CorruptError(
                f"Ledger record {record['slot']} reads {name}/{partition} from {start}, but the batch before it "
                f"ended at {positions[name, partition]}. Restore the ledger from a copy."
            )
        positions[name, partition] = end
    ends = dict(state.result_ends)
    for unit in record["results"]:
        ends[unit["partition"]] = unit["offset"] + unit["rows"]
    released = set(record["release"])
    written = tuple(StateUnit.from_json(unit) for unit in record["state"])
    return replace(
        state,
        position=record["slot"],
        epoch=record["epoch"],
        version=record["version"],
        nonce=record["nonce"],
        positions=positions,
        watermark_us=record["close_us"],
        newest_us={**state.newest_us, **record["newest_us"]},
        result_ends=ends,
        units=tuple(u for u in (*state.units, *written) if u.file not in released),
        final=record["final"],
        rows=state.rows + record["figures"]["rows"],
        rows_late=state.rows_late + record["figures"]["rows_late"],
        committed_us=record["figures"]["committed_us"],
    )
