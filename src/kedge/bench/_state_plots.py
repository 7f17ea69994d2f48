"""The state benchmark's pictures, drawn like the paper's figures 10 and 12-18."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kedge.bench import note


def bars(path: Path, title: str, unit: str, groups: Sequence[str], values: Mapping[str, Sequence[float]]) -> None:
    """Groups of bars, one bar a contender, on a logarithmic scale where they are far apart."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        note("no pictures: matplotlib is not installed")
        return
    figure: Any = Figure(figsize=(max(5.5, 2.2 * len(groups) + 2), 3.6), layout="constrained")
    axes = figure.subplots()
    width = 0.84 / max(1, len(values))
    for at, (name, heights) in enumerate(values.items()):
        places = [group - 0.42 + (at + 0.5) * width for group in range(len(heights))]
        axes.bar(places, heights, width, label=name)
    flat = [height for heights in values.values() for height in heights if height > 0]
    if flat and max(flat) > 30 * min(flat):
        axes.set_yscale("log")
    axes.set_xticks(range(len(groups)), groups)
    axes.set_title(title, fontsize=10)
    axes.set_ylabel(unit)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    figure.savefig(path, dpi=150)
