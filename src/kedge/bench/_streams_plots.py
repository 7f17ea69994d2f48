"""Pictures of the stream benchmark, in the manner of the Scabbard paper's figures 6 and 11. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kedge.bench import note
from kedge.bench._streams_codecs import Row

MARKERS = "osD^vP*X<>hpd8H1234"


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError:
        note("matplotlib is not installed: no plots. Install kedge[plot].")
        return None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def trade_off(rows: Sequence[Row], path: Path) -> None:
    """Figure 6: ratio against encode throughput; a line is a column, a marker a codec."""
    plot = _pyplot()
    if plot is None:
        return
    figure, axes = plot.subplots(figsize=(10, 6))
    named = sorted({row.way for row in rows})
    kinds = sorted({(row.stream, row.column) for row in rows})
    for index, (stream, column) in enumerate(kinds):
        mine = sorted((row for row in rows if (row.stream, row.column) == (stream, column)), key=lambda r: r.ratio)
        colour = plot.get_cmap("tab20")(index % 20)
        axes.plot([r.ratio for r in mine], [r.encode_gb_s for r in mine], color=colour, lw=0.8, label=column)
        for row in mine:
            marker = MARKERS[named.index(row.way) % len(MARKERS)]
            axes.plot(row.ratio, row.encode_gb_s, marker, color=colour, ms=9 if row.way == "chooser" else 6)
    for index, way in enumerate(named):
        axes.plot([], [], MARKERS[index % len(MARKERS)], color="black", label=way)
    axes.set(xscale="log", yscale="log", xlabel="compression ratio", ylabel="encode, GB/s of values on one core")
    axes.legend(fontsize=6, ncols=2, loc="upper left", bbox_to_anchor=(1, 1))
    figure.savefig(path, dpi=120, bbox_inches="tight")
    plot.close(figure)


def breakdown(rates: Mapping[str, Mapping[str, float]], disk_gb_s: float, path: Path) -> None:
    """Figure 11: durable GB/s of raw rows by stream (outer key) and way (inner key); the line is the disk."""
    plot = _pyplot()
    if plot is None:
        return
    figure, axes = plot.subplots(figsize=(10, 5))
    named = list(dict.fromkeys(way for bars in rates.values() for way in bars))
    for index, way in enumerate(named):
        places = [k + index / (len(named) + 1) for k in range(len(rates))]
        axes.bar(places, [bars.get(way, 0) for bars in rates.values()], 1 / (len(named) + 1), label=way)
    axes.axhline(disk_gb_s, color="black", ls="--", lw=1, label="raw disk, direct writes")
    axes.set(yscale="log", ylabel="durable append, GB/s of raw rows")
    axes.set_xticks([k + 0.4 for k in range(len(rates))], list(rates))
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))
    figure.savefig(path, dpi=120, bbox_inches="tight")
    plot.close(figure)
