"""What a job looks like: a tree of text, and a picture (SVG). Works from the ledger's record; no Spark in here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    spared = sum(map(spared_us, stages)) / 1e6
    if spared:
        lines.append(f"what was reused saved {spared:.2f} s of this run")
    lines.append(f"ceiling of this plan: {_share(run, 'floor_us')} less at any budget")
    return "\n".join([*lines, *run["said"]])


def _share(run: Mapping[str, Any], what: str) -> str:
    return f"{(1 - run[what] / (2 * run['end_us'])) if run['end_us'] else 0:.1%}"


_COLORS = {"reused": "#7fd1c4", "saved": "#f2d68b", "not": "#eeeeee"}
_LEGEND = tuple(zip(_COLORS.values(), ("reused", "saved", "not saved"), strict=True))


_WIDE, _HIGH, _TOP = 250, 92, 120


def picture(run: Mapping[str, Any]) -> str:
    """The plan as an SVG: the result on top, each stage coloured by what became of it, and what that saved."""
    stages: list[Mapping[str, Any]] = run["stages"]
    where, width, height = _places(stages)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        *_heading(run),
    ]
    for index, (x, y) in where.items():
        for child in stages[index]["inputs"]:
            x2, y2 = where[child]
            parts.append(f'<line x1="{x}" y1="{y + 30}" x2="{x2}" y2="{y2 - 24}" stroke="#888888"/>')
    for index, (x, y) in where.items():
        parts += _box(stages[index], x, y)
    return "\n".join([*parts, "</svg>"])


def _places(stages: Sequence[Mapping[str, Any]]) -> tuple[dict[int, tuple[float, float]], int, int]:
    """The middle of each box: one row for each distance from the result; a shared stage stands once, lowest."""
    depth = {len(stages) - 1: 0}
    for index in range(len(stages) - 1, -1, -1):  # inputs have lower numbers
        for child in stages[index]["inputs"] if index in depth else ():
            depth[child] = max(depth.get(child, 0), depth[index] + 1)
    rows: dict[int, list[int]] = {}
    for index in sorted(depth):
        rows.setdefault(depth[index], []).append(index)
    width = max(3, *(len(row) for row in rows.values())) * _WIDE
    where = {
        index: ((at + 0.5) * width / len(row), float(_TOP + level * _HIGH))
        for level, row in rows.items()
        for at, index in enumerate(row)
    }
    return where, width, _TOP + len(rows) * _HIGH - 30


def _heading(run: Mapping[str, Any]) -> list[str]:
    end, spared = run["end_us"] / 1e6, sum(map(spared_us, run["stages"])) / 1e6
    lines = [
        f"without a failure {end:.2f} s; worst case {run['worst_us'] / 1e6:.2f} s instead of {2 * end:.2f} s "
        f"({_share(run, 'worst_us')} less, at most {_share(run, 'floor_us')})",
        f"what was reused saved {spared:.2f} s in this run" if spared else "nothing was reused in this run",
    ]
    told = [
        f'<text x="12" y="{20 + 17 * at}" font-size="12">{escape(line)}</text>' for at, line in enumerate(lines)
    ]
    for at, (color, what) in enumerate(_LEGEND):
        told.append(f'<rect x="{12 + 120 * at}" y="48" width="14" height="14" rx="3" fill="{color}"/>')
        told.append(f'<text x="{32 + 120 * at}" y="59">{what}</text>')
    return told


def _box(stage: Mapping[str, Any], x: float, y: float) -> list[str]:
    told = state(stage)
    color = _COLORS.get(told.split(" ")[0].strip(":,"), "#e5e5e5")
    name = f"step {stage['step']}" if stage["step"] else stage["label"]
    lines = [_short(name, 36), f"{stage['time_us'] / 1e6:.2f} s, {size(stage['bytes'])}", _short(told, 40)]
    if spared_us(stage):
        lines[1] += f", spared {spared_us(stage) / 1e6:.2f} s"
    return [
        "<g>",
        f"<title>{escape(f'{name}: {told}')}</title>",
        f'<rect x="{x - 115}" y="{y - 24}" width="230" height="54" rx="6" fill="{color}" stroke="#666666"/>',
        *(
            f'<text x="{x}" y="{y - 8 + 15 * at}" text-anchor="middle">{escape(line)}</text>'
            for at, line in enumerate(lines)
        ),
        "</g>",
    ]


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def spared_us(stage: Mapping[str, Any]) -> float:
    """The time that a stage did not need, because of the partitions that were reused."""
    return stage["time_us"] * stage["reused"] / stage["partitions"] if stage["partitions"] else 0.0
