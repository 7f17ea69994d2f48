"""Throughput over time as a picture: in the terminal and as a PNG, with the moments that matter marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_BLOCKS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Span:
    """Rows that became visible at the end of a stretch of time, in seconds."""

    start_s: float
    end_s: float
    rows: int


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment with a name."""

    at_s: float
    label: str


def rates(spans: Sequence[Span], width: int) -> tuple[list[float], float]:
    """Rows per second in `width` equal steps from 0 to the last span's end; each span's rows are spread evenly."""
    end_s = max((span.end_s for span in spans), default=0.0)
    step_s = end_s / width if end_s else 1.0
    rows = [0.0] * width
    for span in spans:
        first = min(width - 1, int(span.start_s / step_s))
        last = min(width - 1, int(span.end_s / step_s))
        length_s = max(span.end_s - span.start_s, 1e-9)
        for step in range(first, last + 1):
            shared_s = min(span.end_s, (step + 1) * step_s) - max(span.start_s, step * step_s)
            rows[step] += span.rows * (max(0.0, shared_s) / length_s if first != last else 1.0)
    return [count / step_s for count in rows], step_s


def in_terminal(spans: Sequence[Span], marks: Sequence[Mark], *, width: int = 72, height: int = 8) -> str:
    """Bars of blocks, a line of marks below, and a legend."""
    values, step_s = rates(spans, width)
    top = max(values, default=0.0) or 1.0
    lines: list[str] = []
    for row in range(height - 1, -1, -1):
        cells = [_BLOCKS[max(0, min(8, round((value / top * height - row) * 8)))] for value in values]
        label = f"{top / 1e6:7.2f} " if row == height - 1 else f"{0:7.2f} " if row == 0 else " " * 8
        lines.append(label + "".join(cells))
    ruler = ["·"] * width
    for number, mark in enumerate(marks, 1):
        ruler[min(width - 1, int(mark.at_s / step_s))] = str(number)
    lines.append(" " * 8 + "".join(ruler))
    lines.append(" " * 8 + f"million rows/s over {step_s * width:.1f} s")
    lines += [f"{' ' * 8}{number}  {mark.label} at {mark.at_s:.1f} s" for number, mark in enumerate(marks, 1)]
    return "\n".join(lines)


def as_png(path: Path, title: str, spans: Sequence[Span], marks: Sequence[Mark]) -> Path:
    """The same as a PNG, through matplotlib."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 3.6), dpi=130)
    values, step_s = rates(spans, 180)
    times = [(index + 0.5) * step_s for index in range(len(values))]
    axes.fill_between(times, [v / 1e6 for v in values], step="mid", color="#2a6f97", alpha=0.85, linewidth=0)
    top = max(values, default=1.0) / 1e6
    for mark in marks:
        axes.axvline(mark.at_s, color="#c1121f", linewidth=1.2, linestyle="--")
        axes.annotate(
            mark.label, (mark.at_s, top * 1.04), color="#c1121f", fontsize=8, ha="left", va="bottom", rotation=18
        )
    axes.set_ylim(0, top * 1.35 or 1)
    axes.set_xlim(0, step_s * len(values))
    axes.set_xlabel("seconds since the first batch was planned")
    axes.set_ylabel("million rows/s committed")
    axes.set_title(title, fontsize=10, loc="left")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)
    return path
