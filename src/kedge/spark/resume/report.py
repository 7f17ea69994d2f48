"""What a job looks like: a tree of text, and a picture (SVG). Works from the ledger's record; no Spark in here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.sax.saxutils import escape


def size(count: float) -> str:
    """Bytes as people read them."""
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def state(stage: Mapping[str, Any]) -> str:
    """What happens with a stage, in a few words."""
    if stage["partitions"] and stage["reused"] == stage["partitions"]:
        return f"reused, all {stage['partitions']} partitions"
    if stage["reused"]:
        return f"reused {stage['reused']} of {stage['partitions']} partitions"
    if stage["chosen"]:
        return "saved"
    return f"not saved: {stage['refused']}" if stage["refused"] else "not saved"


def tree(run: Mapping[str, Any]) -> str:
    """The plan as a tree, the result on top."""
    stages: list[Mapping[str, Any]] = run["stages"]
    lines: list[str] = []

    def visit(index: int, lead: str, last: bool, top: bool) -> None:
        stage = stages[index]
        source = "measured" if stage["learned"] else "estimated"
        name = f"step {stage['step']}" if stage["step"] else stage["label"]
        branch = "" if top else ("└─ " if last else "├─ ")
        figures = f"{stage['time_us'] / 1e6:.2f} s, {size(stage['bytes'])} {source}"
        lines.append(f"{lead}{branch}{name}: {figures} [{state(stage)}]")
        below = lead if top else lead + ("   " if last else "│  ")
        for at, child in enumerate(stage["inputs"]):
            visit(child, below, at == len(stage["inputs"]) - 1, False)

    visit(len(stages) - 1, "", True, True)
    end = run["end_us"] / 1e6
    saved = sum(stage["bytes"] for stage in stages if stage["chosen"])
    lines.append("")
    lines.append(f"without a failure {end:.2f} s; saved {size(saved)}")
    lines.append(
        f"worst case {run['worst_us'] / 1e6:.2f} s instead of {2 * end:.2f} s ({_share(run, 'worst_us')} less)"
    )
    if "mean_us" in run:
        lines.append(f"expected with one failure {run['mean_us'] / 1e6:.2f} s")
    if run["expected_us"] is not None:
        lines.append(f"expected at the given rate of failures {run['expected_us'] / 1e6:.2f} s")
    lines.append(f"ceiling of this plan: {_share(run, 'floor_us')} less at any budget")
    return "\n".join([*lines, *run["said"]])


def _share(run: Mapping[str, Any], what: str) -> str:
    return f"{(1 - run[what] / (2 * run['end_us'])) if run['end_us'] else 0:.1%}"


_COLORS = {"reused": "#2a9d8f", "saved": "#e9c46a", "not": "#e5e5e5"}


def picture(run: Mapping[str, Any]) -> str:
    """The plan as an SVG: the result on top, each stage coloured by what became of it."""
    stages: list[Mapping[str, Any]] = run["stages"]
    depth: dict[int, int] = {}

    def place(index: int, level: int) -> None:
        depth[index] = max(depth.get(index, 0), level)
        for child in stages[index]["inputs"]:
            place(child, level + 1)

    place(len(stages) - 1, 0)
    rows: dict[int, list[int]] = {}
    for index, level in depth.items():
        rows.setdefault(level, []).append(index)
    wide, high = 250, 92
    width = max(len(row) for row in rows.values()) * wide
    where = {
        index: ((at + 0.5) * width / len(row), 40 + level * high)
        for level, row in rows.items()
        for at, index in enumerate(sorted(row))
    }
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{60 + len(rows) * high}" '
        'font-family="sans-serif" font-size="11">'
    ]
    for index in depth:
        for child in stages[index]["inputs"]:
            (x, y), (x2, y2) = where[index], where[child]
            parts.append(f'<line x1="{x}" y1="{y + 30}" x2="{x2}" y2="{y2 - 24}" stroke="#888"/>')
    for index, (x, y) in where.items():
        stage = stages[index]
        told = state(stage)
        color = _COLORS.get(told.split(" ")[0].strip(":,"), "#e5e5e5")
        name = f"step {stage['step']}" if stage["step"] else stage["label"]
        share = stage["reused"] / stage["partitions"] if stage["partitions"] else 0
        lines = [name[:38], f"{stage['time_us'] / 1e6:.2f} s, {size(stage['bytes'])}", told[:40]]
        if share:
            lines[1] += f", spared {stage['time_us'] * share / 1e6:.2f} s"
        parts.append(f'<rect x="{x - 115}" y="{y - 24}" width="230" height="54" rx="6" fill="{color}"/>')
        parts += [
            f'<text x="{x}" y="{y - 8 + 15 * at}" text-anchor="middle">{escape(line)}</text>'
            for at, line in enumerate(lines)
        ]
    return "\n".join([*parts, "</svg>"])
