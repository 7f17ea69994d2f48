"""The paper's figures 12 to 17 as pictures; without matplotlib only the numbers are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kedge.bench import note

# name of a line -> (x values, y values)
Lines = dict[str, tuple[list[float], list[float]]]


def draw(out: Path, name: str, title: str, axes: tuple[str, str], panels: dict[str, Lines], **scale: Any) -> bool:
    """One picture with a panel for each application; False where matplotlib is not installed."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        note("matplotlib is not installed (pip install 'kedge[plot]'): no pictures, numbers only")
        return False
    figure, spots = pyplot.subplots(1, len(panels), figsize=(5.2 * len(panels), 3.8), squeeze=False)
    for spot, (panel, lines) in zip(spots[0], panels.items(), strict=True):
        for number, (label, (x, y)) in enumerate(lines.items()):
            spot.plot(x, y, marker="os^vDPX*"[number % 8], label=label)
        spot.set_title(panel)
        spot.set_xlabel(axes[0])
        spot.set_ylabel(axes[1])
        spot.set(**scale)
        if not scale:
            spot.set_ylim(bottom=0)
        spot.legend(fontsize="small")
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(out / f"{name}.png", dpi=120)
    pyplot.close(figure)
    return True
