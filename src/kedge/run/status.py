"""Where a run is, read from its ledger: nothing here needs the process that executes it."""

from __future__ import annotations

import html
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from kedge.run.core import ALWAYS_US, NEVER_US, RunState
from kedge.run.directory import RunDirectory
from kedge.run.query import reopen
from kedge.run.recover import follow

_RECENT = 20  # batches that the rate is taken over


@dataclass(frozen=True, slots=True)
class Status:
    """A run at its newest committed batch."""

    path: str
    version: int
    epoch: int
    final: bool
    rows: int
    rows_late: int
    rows_behind: int
    watermark: str | None
    results: int
    state_bytes: int
    rows_per_s: float | None
    batch_ms: float | None
    committed: str | None

    def to_json(self) -> dict[str, Any]:
        """As the command line prints it."""
        return asdict(self)

    def to_html(self) -> str:
        """As a notebook shows it."""
        rows = "".join(
            f"<tr><th style='text-align:left'>{html.escape(key)}</th><td>{html.escape(str(value))}</td></tr>"
            for key, value in self.to_json().items()
        )
        return f"<table>{rows}</table>"

    def _repr_html_(self) -> str:
        return self.to_html()


def status_of(directory: RunDirectory) -> Status:
    """Read the ledger and the inputs' ends."""
    query, _, _ = reopen(directory)
    ledger = directory.ledger()
    state = follow(ledger)
    batches = [record for record in ledger.records() if record["kind"] == "batch"][-_RECENT:]
    behind = sum(
        max(0, end - state.positions.get((name, partition), 0))
        for name, stream in query.streams.items()
        for partition, end in enumerate(stream.ends())
    )
    rate, batch_ms = _rates(batches)
    return Status(
        path=directory.path,
        version=state.version,
        epoch=state.epoch,
        final=state.final,
        rows=state.rows,
        rows_late=state.rows_late,
        rows_behind=behind,
        watermark=_watermark(state),
        results=sum(state.result_ends.values()),
        state_bytes=sum(unit.bytes for unit in state.units),
        rows_per_s=rate,
        batch_ms=batch_ms,
        committed=_iso(state.committed_us) if state.version else None,
    )


def _rates(batches: list[dict[str, Any]]) -> tuple[float | None, float | None]:
    """Rows per second and milliseconds per batch, over the time that batches took."""
    spent_us = sum(max(1, b["figures"]["committed_us"] - b["planned_us"]) for b in batches)
    if not batches:
        return None, None
    rows = sum(b["figures"]["rows"] for b in batches)
    return rows / spent_us * 1e6, spent_us / len(batches) / 1e3


def _watermark(state: RunState) -> str | None:
    if state.watermark_us == NEVER_US:
        return None
    if state.watermark_us == ALWAYS_US:
        return "all windows are closed"
    return _iso(state.watermark_us)


def _iso(time_us: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)).isoformat()
