"""Versions over time as a picture: a bar for each, as high as its change, the current one marked."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from kedge.errors import UsageError
from kedge.state.line import Version


def draw(versions: Sequence[Version], current: int, path: str) -> None:
    """Write the picture to `path`; its ending says whether it is an SVG or a PNG."""
    if not path.endswith((".svg", ".png")):
        raise UsageError(f"{path}: a picture is an .svg or a .png file.")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError("A picture needs matplotlib: pip install 'kedge[plot]'.") from None
    figure: Any = Figure(figsize=(max(5.0, min(16.0, 0.3 * len(versions) + 2)), 4.2), layout="constrained")
    cells, stored = figure.subplots(2, 1, sharex=True)
    places = range(len(versions))
    colors = ["#c44e52" if version.number == current else "#4c72b0" for version in versions]
    cells.bar(places, [version.cells for version in versions], color=colors)
    cells.set_ylabel("cells changed")
    stored.bar(places, [version.bytes for version in versions], color=colors)
    stored.set_ylabel("bytes stored")
    step = max(1, len(versions) // 12)
    stored.set_xticks(list(places)[::step], [_label(version) for version in versions[::step]], fontsize=7)
    stored.set_xlabel(f"version (current: {current}, red)")
    for axes in (cells, stored):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def _label(version: Version) -> str:
    return f"{version.number}\n{datetime.fromtimestamp(version.at_us / 1e6, UTC):%H:%M:%S}"
