"""The paper's figures 12 to 17 as pictures; without matplotlib only the numbers are written.

A strategy has the same colour and mark in every picture. Shares of state span two decades and reach 0, so they stand
on a scale that is linear up to 1% and logarithmic above.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from kedge.bench import note

# name of a line -> (x values, y values)
Lines = dict[str, tuple[list[float], list[float]]]

_KNOWN = {
    "single step": ("#1d6fa5", "o"),
    "MTM-aware": ("#c8373e", "s"),
    "any map": ("#22897b", "^"),
    "Redist": ("#86609e", "v"),
    "consistent hashing": ("#d98f1f", "D"),
    "Storm": ("#5c6670", "X"),
    "MTM-aware, 4 tasks a step": ("#e58a8e", "P"),
    "word count": ("#1d6fa5", "o"),
    "frequent patterns": ("#c8373e", "s"),
}
_OTHERS = [("#1d6fa5", "o"), ("#c8373e", "s"), ("#22897b", "^")]
_INK = "#30363c"


@dataclass(frozen=True)
class Axes:
    """What stands on the axes of one panel: names, the kind of each scale, and the ticks of y."""

    x: str
    y: str
    x_log: bool = False
    y_kind: str = "linear"  # or "share", "log"
    y_ticks: list[float] = field(default_factory=list[float])


@dataclass(frozen=True)
class Panel:
    """One set of axes with its lines."""

    title: str
    axes: Axes
    lines: Lines


def draw(out: Path, name: str, title: str, panels: list[Panel]) -> bool:
    """One picture with a panel for each application; False where matplotlib is not installed."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        note("matplotlib is not installed (pip install 'kedge[plot]'): no pictures, numbers only")
        return False
    pyplot.rcParams.update({"font.size": 10.5, "font.family": "DejaVu Sans", "text.color": _INK})
    figure, spots = pyplot.subplots(1, len(panels), figsize=(5.0 * len(panels) + 0.4, 4.3), squeeze=False)
    for spot, panel in zip(spots[0], panels, strict=True):
        _fill(spot, panel)
    labels = list(panels[0].lines)
    figure.suptitle(title, x=0.02, ha="left", fontsize=13, fontweight="bold")
    shared = all(list(panel.lines) == labels for panel in panels) and labels
    bottom = 0.0
    if shared and len(labels) > 1:
        rows = -(-len(labels) // (3 * len(panels)))
        bottom = 0.035 + 0.055 * rows
        figure.legend(
            *spots[0][0].get_legend_handles_labels(),
            loc="lower center",
            ncols=-(-len(labels) // rows),
            frameon=False,
        )
    elif not shared:
        for spot in spots[0]:
            spot.legend(frameon=False)
    figure.tight_layout(rect=(0, bottom, 1, 1))
    figure.savefig(out / f"{name}.png", dpi=130, facecolor="white")
    pyplot.close(figure)
    return True


def _fill(spot: Any, panel: Panel) -> None:
    for number, (label, (x, y)) in enumerate(panel.lines.items()):
        colour, mark = _KNOWN.get(label, _OTHERS[number % len(_OTHERS)])
        spot.plot(x, y, marker=mark, color=colour, label=label, linewidth=2, markersize=6, clip_on=False, zorder=3)
    axes = panel.axes
    spot.set_title(panel.title, loc="left", fontsize=10.5, color=_INK)
    spot.set_xlabel(axes.x)
    spot.set_ylabel(axes.y)
    for side in ("top", "right"):
        spot.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        spot.spines[side].set_color("#9aa3ab")
    spot.tick_params(colors=_INK, length=3)
    spot.grid(axis="y", color="#e4e8eb", linewidth=0.9, zorder=0)
    xs = sorted({value for x, _ in panel.lines.values() for value in x})
    if axes.x_log:
        spot.set_xscale("log")
    spot.set_xticks(xs, [f"{value:g}" for value in xs])
    spot.minorticks_off()
    if axes.y_kind == "share":
        spot.set_yscale("symlog", linthresh=1.0, linscale=0.6)
    elif axes.y_kind == "log":
        spot.set_yscale("log")
    if axes.y_kind == "log" and not axes.y_ticks:
        values = [value for _, y in panel.lines.values() for value in y if value > 0] or [1.0]
        low, high = int(np.floor(np.log10(min(values)))), int(np.ceil(np.log10(max(values))))
        ticks = [10.0**power for power in range(low, max(high, low + 1) + 1)]
        spot.set_yticks(ticks, [f"{value:g}" for value in ticks])
        spot.set_ylim(ticks[0], ticks[-1])
    elif axes.y_ticks:
        spot.set_yticks(axes.y_ticks, [f"{value:g}" for value in axes.y_ticks])
        spot.set_ylim(axes.y_ticks[0], axes.y_ticks[-1])
    elif axes.y_kind == "linear":
        spot.set_ylim(bottom=0)
    spot.minorticks_off()
