"""A store as a notebook shows it: its structures, and its last versions. Values in, HTML out."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from kedge.state.commands import Spec
from kedge.state.line import Version

_LAST = 10  # versions


def line(text: str) -> str:
    """One line of plain text."""
    return f"<div>{html.escape(text)}</div>"


def store(title: str, sizes: Mapping[Spec, int], versions: Sequence[Version], current: int) -> str:
    """Two tables: what there is, and the last versions with the size of their changes."""
    structures = [(spec.name, spec.kind, spec.scheme, f"{size:,}") for spec, size in sizes.items()]
    rows = [
        (
            f"{version.number}{' (current)' if version.number == current else ''}",
            f"{datetime.fromtimestamp(version.at_us / 1e6, UTC):%Y-%m-%d %H:%M:%S}",
            f"{version.cells:,}",
            f"{version.bytes:,}",
            version.key or "",
        )
        for version in versions[-_LAST:]
    ]
    return (
        line(title)
        + _table(("structure", "kind", "scheme", "size or value"), structures)
        + _table(("version", "made (UTC)", "cells", "bytes", "key"), rows)
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def row(tag: str, cells: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    return f"<table>{row('th', head)}{''.join(row('td', cells) for cells in rows)}</table>"
