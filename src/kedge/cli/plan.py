"""`kedge plan move FILE`: what to move where, before anything moves.

FILE is a run's directory, or says which node has each task now, its work and its bytes:
CSV     task,node,work,bytes  (a header; `task` may be missing, rows are then tasks 0, 1, ...)
JSON    {"route": [...], "work": [...], "bytes": [...]}, or {"tasks": [{"node": 1, "work": 5, "bytes": 9}, ...]}
        A run's `status --json` has the first form under "move".
`-` reads standard input. Reading is in _tasks.py.
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from kedge.cli import _tasks
from kedge.errors import UsageError

if TYPE_CHECKING:
    from kedge.move import Plan, Steps, Transfer

HELP = "plan ahead: `plan move` says which tasks go where, at what cost"

_MARKS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `kedge plan`."""
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    move = kinds.add_parser(
        "move",
        help="the fewest bytes from the current route to another number of nodes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    move.add_argument("file", help="a run's directory, or node, work and bytes per task as CSV or JSON; - is stdin")
    move.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON document")
    serving = move.add_mutually_exclusive_group()
    serving.add_argument("--nodes", type=int, help="how many nodes there will be (as many as now)")
    serving.add_argument("--on", metavar="N,N,...", help="which nodes there will be, by number")
    move.add_argument("--tau", type=float, default=0.2, help="how far above the mean a node's work may be (0.2)")
    move.add_argument("--least", type=float, default=0.0, help="the share of the mean that every node gets (0)")
    move.add_argument("--assign", choices=["intervals", "any"], default="intervals", help="what a node may hold")
    move.add_argument("--strict", action="store_true", help="refuse rather than widen a tau that can't be met")
    move.add_argument("--steps", type=int, metavar="K", default=4, help="tasks that move in one step at most (4)")
    move.add_argument("--seed", type=int, default=0, help="for --assign any: the same seed gives the same plan")
    move.add_argument("--picture", action="store_true", help="draw who gives what to whom")


def run(args: argparse.Namespace) -> int:
    """Plan the move and print it."""
    from kedge import move

    route, work, size = _tasks.read(args.file)
    nodes: int | list[int] = len(set(route)) if args.nodes is None else args.nodes
    if args.on is not None:
        nodes = _numbers(args.on)
    plan = move.single(
        route, work, size, nodes, args.tau, assign=args.assign, least=args.least, strict=args.strict, seed=args.seed
    )
    schedule = move.transfer(plan)
    steps = move.progressive(plan, args.steps)
    if args.json:
        print(json.dumps({**plan.to_json(), "transfer": schedule.to_json(), **steps.to_json()}))
    elif args.picture:
        print(picture(plan))
    else:
        _tables(plan, schedule, steps)
    return 0


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(
            f"--on takes node numbers with commas between them, such as 0,1,4, not {text!r}."
        ) from None


def _tables(plan: Plan, schedule: Transfer, steps: Steps) -> None:
    from rich.console import Console
    from rich.table import Table

    from kedge.move import page

    console = Console(highlight=False)
    console.print(page.summary(plan))
    table = Table(title="who gives what to whom")
    for column in ("from", "to", "tasks", "bytes"):
        table.add_column(column, justify="right")
    for (source, target), size in sorted(plan.flows().items()):
        tasks = sum(1 for _, a, b in plan.moves if (a, b) == (source, target))
        table.add_row(str(source), str(target), str(tasks), page.size_text(size))
    if plan.moves:
        console.print(table)
    loads, before = plan.loads(), plan.loads_before()
    mean = max(1e-300, sum(loads.values()) / len(loads))
    table = Table(title="work of each node, the mean is 1")
    for column in ("node", "before", "after", ""):
        table.add_column(column, justify="left" if column == "" else "right")
    for node in sorted({*loads, *before}):
        after = loads.get(node)
        shown = "leaves" if after is None else f"{after / mean:.2f}"
        table.add_row(str(node), f"{before.get(node, 0) / mean:.2f}", shown, "█" * round(12 * (after or 0) / mean))
    console.print(table)
    if schedule.phases:
        console.print(
            f"transfer: {len(schedule.phases)} phases, as long as {page.size_text(schedule.bound_bytes)} take on "
            "one link (no schedule is shorter)"
        )
    if steps.steps:
        console.print(page.steps_text(steps) + ":")
    for number, step in enumerate(steps.steps, 1):
        console.print(f"  {number}: " + ", ".join(f"task {task} {a} -> {b}" for task, a, b in step))


def _ranges(tasks: list[int], most: int = 6) -> str:
    """Task numbers in rising order, consecutive ones as a range."""
    parts: list[str] = []
    first = 0
    for place in range(1, len(tasks) + 1):
        if place < len(tasks) and tasks[place] == tasks[place - 1] + 1:
            continue
        low, high = tasks[first], tasks[place - 1]
        parts.append(str(low) if low == high else f"{low}-{high}")
        first = place
    return ",".join(parts[:most]) + (",..." if len(parts) > most else "")


def picture(plan: Plan, width: int = 30) -> str:
    """Each giver with bars to its takers, and the route as a strip before and after."""
    from kedge.move import page

    lines = [page.summary(plan), ""]
    flows = plan.flows()
    largest = max(flows.values(), default=0)
    for source in sorted({a for a, _ in flows}):
        for target in sorted(b for a, b in flows if a == source):
            size = flows[source, target]
            tasks = [task for task, a, b in plan.moves if (a, b) == (source, target)]
            bar = "━" * max(1, round(width * size / largest)) if largest else "━"
            some = _ranges(tasks)
            lines.append(f"  node {source:>3} {bar}▶ node {target:<3} {page.size_text(size):>9}  tasks {some}")
    if max(int(plan.before.max()), int(plan.after.max())) < len(_MARKS):
        for start in range(0, len(plan.after), 96):
            before, after = plan.before[start : start + 96], plan.after[start : start + 96]
            lines += ["", f"  before {''.join(_MARKS[n] for n in before)}  tasks from {start}"]
            lines += [f"  after  {''.join(_MARKS[n] for n in after)}"]
            lines += [
                "  moved  " + "".join("^" if a != b else " " for a, b in zip(before, after, strict=True)).rstrip()
            ]
    return "\n".join(lines)
