"""What the next batch is: ranges, watermarks, nodes, scheme. Pure.

Invariants:
- The watermark is taken from event times before any filter, over whole units, and never goes back.
- Units are taken in the order of their oldest event time across partitions, so that one partition that is far
  ahead does not make the rows of another late.
- A batch has at least one unit, or closes the last windows (`final`), or does not exist.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kedge.errors import UsageError
from kedge.run.core.state import ALWAYS_US, NEVER_US, RunState, Scheme

# A base is written when the redo units since the last one outweigh it, but not for trifles.
_REDO_BYTES_MIN = 4 << 20


class Unit(Protocol):
    """What the planner has to know of a unit of a stream."""

    @property
    def first_offset(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def min_us(self) -> int | None: ...
    @property
    def max_us(self) -> int | None: ...


@dataclass(frozen=True, slots=True)
class Range:
    """Rows [start, end) of one partition of one input."""

    input: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Plan:
    """One batch before it happens: everything that its work depends on."""

    epoch: int
    position: int  # the ledger slot it is meant for: part of the names of its files
    version: int
    nonce: str
    parent: str
    ranges: tuple[Range, ...]
    late_us: int  # rows of windows that end at or before this are late
    close_us: int  # windows that end at or before this close
    newest_us: Mapping[str, int]
    nodes: int
    scheme: Scheme
    final: bool
    planned_us: int

    def to_json(self) -> dict[str, Any]:
        """As it travels to the nodes, and as it stands in the batch's record."""
        return {
            "epoch": self.epoch,
            "position": self.position,
            "version": self.version,
            "nonce": self.nonce,
            "parent": self.parent,
            "ranges": [[r.input, r.partition, r.start, r.end] for r in self.ranges],
            "late_us": self.late_us,
            "close_us": self.close_us,
            "newest_us": dict(self.newest_us),
            "nodes": self.nodes,
            "scheme": self.scheme,
            "final": self.final,
            "planned_us": self.planned_us,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Plan:
        """From `to_json`."""
        return Plan(
            epoch=data["epoch"],
            position=data["position"],
            version=data["version"],
            nonce=data["nonce"],
            parent=data["parent"],
            ranges=tuple(Range(*fields) for fields in data["ranges"]),
            late_us=data["late_us"],
            close_us=data["close_us"],
            newest_us=data["newest_us"],
            nodes=data["nodes"],
            scheme=data["scheme"],
            final=data["final"],
            planned_us=data["planned_us"],
        )


def plan_batch(
    state: RunState,
    available: Mapping[tuple[str, int], Sequence[Unit]],
    *,
    nonce: str,
    nodes: int,
    rows_max: int,
    lag_us: int,
    finish: bool,
    now_us: int,
) -> Plan | None:
    """The batch after `state`, or None when there is nothing to do.

    `available` holds, by (input, partition), the units from the run's position to the durable end, in order.
    `finish` closes every window once all of `available` is taken.
    """
    if state.final:
        return None
    ranges, newest_us, all_taken = _take(state, available, rows_max)
    final = finish and all_taken
    if not ranges and not final:
        return None
    return Plan(
        epoch=state.epoch,
        position=state.position + 1,
        version=state.version + 1,
        nonce=nonce,
        parent=state.nonce,
        ranges=ranges,
        late_us=state.watermark_us,
        close_us=ALWAYS_US if final else max(state.watermark_us, _watermark_us(newest_us, available, lag_us)),
        newest_us=newest_us,
        nodes=nodes,
        scheme=_scheme(state),
        final=final,
        planned_us=now_us,
    )


def _take(
    state: RunState, available: Mapping[tuple[str, int], Sequence[Unit]], rows_max: int
) -> tuple[tuple[Range, ...], dict[str, int], bool]:
    """Units up to `rows_max` rows (at least one), oldest event time first; whether that was all there is."""
    newest_us = dict(state.newest_us)
    ends: dict[tuple[str, int], int] = {}
    rows = 0
    heap: list[tuple[int, str, int, int]] = []
    for (name, partition), units in available.items():
        if units:
            _check_start(state, name, partition, units[0])
            heapq.heappush(heap, (_oldest_us(units[0]), name, partition, 0))
    while heap:
        _, name, partition, index = heap[0]
        unit = available[name, partition][index]
        if rows and rows + unit.rows > rows_max:
            break
        heapq.heappop(heap)
        rows += unit.rows
        ends[name, partition] = unit.first_offset + unit.rows
        if unit.max_us is not None:
            newest_us[name] = max(newest_us.get(name, NEVER_US), unit.max_us)
        if index + 1 < len(available[name, partition]):
            following = available[name, partition][index + 1]
            heapq.heappush(heap, (_oldest_us(following), name, partition, index + 1))
    ranges = tuple(
        Range(name, partition, available[name, partition][0].first_offset, end)
        for (name, partition), end in sorted(ends.items())
    )
    return ranges, newest_us, not heap


def _oldest_us(unit: Unit) -> int:
    return NEVER_US if unit.min_us is None else unit.min_us


def _check_start(state: RunState, name: str, partition: int, unit: Unit) -> None:
    position = state.positions.get((name, partition))
    if position is not None and unit.first_offset != position:
        raise UsageError(
            f"Stream {name!r}, partition {partition}: the run is at offset {position}, but the next rows that are "
            f"still there begin at {unit.first_offset}. Rows that the run needed were trimmed: start a new run, "
            "or restore the stream."
        )


def _watermark_us(
    newest_us: Mapping[str, int], available: Mapping[tuple[str, int], Sequence[Unit]], lag_us: int
) -> int:
    """The slowest input's newest event time less the lag; no watermark until every input has shown a row."""
    inputs = {name for name, _ in available}
    if any(name not in newest_us for name in inputs):
        return NEVER_US
    return min(newest_us.values(), default=NEVER_US) - lag_us


def _scheme(state: RunState) -> Scheme:
    base = sum(unit.bytes for unit in state.units if unit.scheme == "full")
    redo = sum(unit.bytes for unit in state.units if unit.scheme == "redo")
    return "full" if redo > max(2 * base, _REDO_BYTES_MIN) else "redo"
