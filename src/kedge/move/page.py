"""Plans, steps and transfers as a notebook shows them: one picture of who gives what to whom, and the numbers.

Plain HTML and SVG in strings, readable on light and dark pages. Names come from numbers only, so nothing needs
escaping. It computes nothing that the objects do not say themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kedge.move.phases import Transfer
    from kedge.move.plans import Plan
    from kedge.move.sequences import Course
    from kedge.move.steps import Steps

_WIDTH = 640
_ROWS_MAX = 12


def of_plan(plan: Plan) -> str:
    """The headline, the route before and after, loads beside the limit, and the largest flows."""
    flows = sorted(plan.flows().items(), key=lambda flow: -flow[1])
    rows = [(f"{source} → {target}", size_text(size)) for (source, target), size in flows[:_ROWS_MAX]]
    if len(flows) > _ROWS_MAX:
        rows.append((f"{len(flows) - _ROWS_MAX} more", size_text(sum(size for _, size in flows[_ROWS_MAX:]))))
    lines = "<br>".join(summary(plan).split("\n"))
    return f"<div><b>{lines}</b><br>{_strips(plan)}{_loads(plan)}{_table(('from → to', 'bytes'), rows)}</div>"


def of_steps(steps: Steps) -> str:
    """The tasks of every step."""
    rows = [
        (str(number), ", ".join(f"{task}: {a} → {b}" for task, a, b in step))
        for number, step in enumerate(steps.steps, 1)
    ]
    return f"<div><b>{steps_text(steps)}</b>{_table(('step', 'task: from → to'), rows)}</div>"


def of_transfer(transfer: Transfer) -> str:
    """The phases, and their bound."""
    rows = [
        (size_text(phase.length_bytes), ", ".join(f"{a} → {b}" for a, b, _ in phase.pairs))
        for phase in transfer.phases
    ]
    head = f"{len(rows)} phases, together as long as {size_text(transfer.bound_bytes)} take on one link: the least"
    return f"<div><b>{head}</b>{_table(('length', 'from → to'), rows)}</div>"


def of_course(course: Course) -> str:
    """The cost of every move of a sequence."""
    rows = [
        (str(len(plan.nodes)), f"{size_text(plan.cost_bytes)} ({plan.share_moved:.1%})") for plan in course.plans
    ]
    proof = "the least possible" if course.exact else f"at least {size_text(course.bound_bytes)}"
    head = f"{size_text(course.cost_bytes)} in {len(rows)} moves: {proof}"
    return f"<div><b>{head}</b>{_table(('nodes', 'bytes moved'), rows)}</div>"


def size_text(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def summary(plan: Plan) -> str:
    """A plan in a line, and in a second one what became of a threshold that can't be met."""
    proof = "the least possible" if plan.exact else f"at least {size_text(plan.bound_bytes)} have to move"
    if plan.planner in ("oms", "mtm-aware"):
        proof = f"this move alone needs at least {size_text(plan.bound_bytes)}"
    elif plan.bound_bytes == 0 and plan.cost_bytes:
        proof = f"by {plan.planner}, which looks at no bound"
    line = (
        f"{size_text(plan.cost_bytes)} move ({plan.share_moved:.1%} of the state, {len(plan.moves)} of "
        f"{len(plan.after)} tasks): {proof}"
    )
    if plan.widened:
        kind = "smallest tau that was met" if plan.planner == "any" else "smallest feasible tau"
        line += f"\ntau = {plan.tau:g} can't be met; the {kind} is {plan.tau_effective:.6g}"
    return line


def steps_text(steps: Steps) -> str:
    """How many steps, and whether every one of them can run."""
    note = (
        "no node above its limit at any time"
        if steps.balanced
        else f"up to {steps.excess:.1%} of a mean load too much"
    )
    return f"{len(steps.steps)} steps ({steps.steps_min} is the fewest possible), {note}"


def _colour(node: int) -> str:
    return f"hsl({node * 137.508 % 360:.0f},55%,60%)"


def _strips(plan: Plan) -> str:
    """One cell a task, coloured by its node; what moves is cut short on top of the lower strip."""
    cell = _WIDTH / len(plan.after)
    parts: list[str] = []
    for top, route in ((12, plan.before), (44, plan.after)):
        start = 0
        for task in range(1, len(route) + 1):
            if task < len(route) and route[task] == route[start]:
                continue
            node = int(route[start])
            wide = (task - start) * cell
            title = f"<title>node {node}: tasks {start}-{task - 1}</title>"
            parts.append(
                f"<rect x='{start * cell:.1f}' y='{top}' width='{wide:.1f}' height='16' fill='{_colour(node)}' "
                f"stroke='#888' stroke-width='.5'>{title}</rect>"
            )
            if wide > 16:
                parts.append(_text(start * cell + wide / 2, top + 12, str(node), "middle", "#111"))
            start = task
    parts += [
        f"<rect x='{task * cell:.1f}' y='30' width='{max(1.0, cell - 1):.1f}' height='12' fill='{_colour(a)}'/>"
        for task, a, _ in plan.moves
    ]
    return _svg(64, [_text(0, 9, "tasks by node: before, what moves, after"), *parts])


def _loads(plan: Plan) -> str:
    """A bar for each node that serves, and the limit."""
    loads = plan.loads()
    mean = sum(loads.values()) / len(loads)
    limit = (1 + plan.tau_effective) * mean
    top = max([limit, *loads.values()]) or 1
    shown = list(loads.items())[:64]
    wide = min(40.0, _WIDTH / len(shown))
    parts = [_text(0, 9, f"work by node after the move, and the limit ({1 + plan.tau_effective:.3g} of the mean)")]
    for place, (node, load) in enumerate(shown):
        high = 70 * load / top
        parts.append(
            f"<rect x='{place * wide + 1:.1f}' y='{86 - high:.1f}' width='{wide - 2:.1f}' height='{high:.1f}' "
            f"fill='{_colour(node)}'><title>node {node}: {load:g}</title></rect>"
        )
        parts.append(_text(place * wide + wide / 2, 98, str(node), "middle"))
    line = 86 - 70 * limit / top
    parts.append(
        f"<line x1='0' x2='{wide * len(shown):.1f}' y1='{line:.1f}' y2='{line:.1f}' stroke='#c33' "
        "stroke-dasharray='4 3'/>"
    )
    return _svg(104, parts)


def _text(x: float, y: float, text: str, anchor: str = "start", fill: str = "currentColor") -> str:
    return f"<text x='{x:.1f}' y='{y:.1f}' font-size='10' text-anchor='{anchor}' fill='{fill}'>{text}</text>"


def _svg(high: int, parts: Iterable[str]) -> str:
    return f"<svg width='{_WIDTH}' height='{high}' viewBox='0 0 {_WIDTH} {high}'>{''.join(parts)}</svg><br>"


def _table(heads: tuple[str, str], rows: list[tuple[str, str]]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th style='text-align:left'>{name}</th>" for name in heads)
    body = "".join(f"<tr><td>{a}</td><td style='text-align:left'>{b}</td></tr>" for a, b in rows)
    return f"<table><tr>{head}</tr>{body}</table>"
