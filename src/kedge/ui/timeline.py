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
    """The same as a PNG, through matplotlib; the time between the first mark and the second is shaded."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 3.4), dpi=120)
    values, step_s = rates(spans, 120)
    end_s, top = step_s * len(values), max(values, default=1.0) / 1e6 or 1.0
    times = [index * step_s for index in range(len(values))]
    axes.bar(times, [v / 1e6 for v in values], step_s * 0.92, align="edge", color="#2a6f97", linewidth=0)
    if len(marks) > 1:
        axes.axvspan(marks[0].at_s, marks[1].at_s, color="#c1121f", alpha=0.07, linewidth=0)
    for number, mark in enumerate(marks):
        axes.axvline(mark.at_s, color="#c1121f", linewidth=1.2, ymax=0.9)
        near_the_end = mark.at_s > 0.6 * end_s
        axes.annotate(
            f"{mark.label}  {mark.at_s:.1f} s", (mark.at_s, top * (1.27 if number % 2 == 0 else 1.14)),
            xytext=(-6 if near_the_end else 6, 0), textcoords="offset points", color="#c1121f", fontsize=9,
            ha="right" if near_the_end else "left", va="center",
        )  # fmt: skip
    axes.set_ylim(0, top * 1.36)
    axes.set_xlim(0, end_s or 1)
    axes.set_xlabel("seconds since the first batch was planned", fontsize=9, color="#444")
    axes.set_ylabel("million rows/s", fontsize=9, color="#444")
    axes.set_title(title, fontsize=11, loc="left", pad=10)
    axes.tick_params(labelsize=8, colors="#444")
    axes.grid(axis="y", color="#ddd", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)
    return path
