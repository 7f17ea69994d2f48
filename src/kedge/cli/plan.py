"""`kedge plan move FILE`: what to move where, before anything moves.

The file says which node has each task now, its work and its bytes:
CSV     task,node,work,bytes  (a header; `task` may be missing, rows are then tasks 0, 1, ...)
JSON    {"route": [...], "work": [...], "bytes": [...]}, or {"tasks": [{"node": 1, "work": 5, "bytes": 9}, ...]}
        A run's `status --json` has one of these, at the top or under "move"; "nodes" beside it is not needed.
`-` reads standard input.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
from typing import TYPE_CHECKING, Any, cast

from kedge.errors import UsageError

if TYPE_CHECKING:
    from kedge.move import Plan, Steps, Transfer

HELP = "plan ahead: `plan move` says which tasks go where, at what cost"

_FILE_MAX = 1 << 28


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `kedge plan`."""
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    move = kinds.add_parser("move", help="the fewest bytes from the current route to another number of nodes")
    move.add_argument(
        "file", help="node, work and bytes per task: CSV, JSON or a run's status; - reads standard input"
    )
    move.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON document")
    serving = move.add_mutually_exclusive_group(required=True)
    serving.add_argument("--nodes", type=int, help="how many nodes there will be")
    serving.add_argument("--on", metavar="N,N,...", help="which nodes there will be, by number")
    move.add_argument("--tau", type=float, default=0.2, help="how far above the mean a node's work may be (0.2)")
    move.add_argument("--least", type=float, default=0.0, help="the share of the mean that every node gets (0)")
    move.add_argument("--assign", choices=["intervals", "any"], default="intervals", help="what a node may hold")
    move.add_argument("--strict", action="store_true", help="refuse rather than widen a tau that can't be met")
    move.add_argument("--steps", type=int, metavar="K", help="also cut the move into steps of at most K tasks")
    move.add_argument("--seed", type=int, default=0, help="for --assign any: the same seed gives the same plan")
    move.add_argument("--picture", action="store_true", help="draw who gives what to whom")


def run(args: argparse.Namespace) -> int:
    """Plan the move and print it."""
    from kedge import move

    route, work, size = read(args.file)
    nodes: int | list[int] = args.nodes if args.on is None else _numbers(args.on)
    plan = move.single(
        route, work, size, nodes, args.tau, assign=args.assign, least=args.least, strict=args.strict, seed=args.seed
    )
    schedule = move.transfer(plan)
    steps = None if args.steps is None else move.progressive(plan, args.steps)
    if args.json:
        document = {**plan.to_json(), "transfer": schedule.to_json()}
        if steps is not None:
            document.update(steps.to_json())
        print(json.dumps(document))
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


def read(path: str) -> tuple[list[int], list[float], list[int]]:
    """Route, work and bytes per task from a file or standard input."""
    text = sys.stdin.read() if path == "-" else _text(path)
    try:
        if text.lstrip()[:1] in ("{", "["):
            rows = _from_json(json.loads(text))
        else:
            rows = [dict(row) for row in csv.DictReader(io.StringIO(text))]
        found: dict[int, tuple[int, float, int]] = {}
        for number, row in enumerate(rows):
            task = int(row.get("task", number))
            if task in found:
                raise UsageError(f"{path}: task {task} is there twice. Give each task one row.")
            found[task] = (int(row["node"]), float(row["work"]), int(float(row["bytes"])))
    except KeyError as missing:
        raise UsageError(f"{path} has no column {missing}. It needs node, work and bytes for each task.") from None
    except (ValueError, TypeError, AttributeError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(
            f"{path} can't be read as CSV or JSON of tasks: {error}. See `kedge plan move --help`."
        ) from None
    if sorted(found) != list(range(len(found))) or not found:
        raise UsageError(f"{path}: tasks are numbered 0, 1, 2, ... without gaps; {len(found)} rows were found.")
    ordered = [found[task] for task in range(len(found))]
    return [node for node, _, _ in ordered], [work for _, work, _ in ordered], [size for _, _, size in ordered]


def _text(path: str) -> str:
    from kedge.host import local

    disk = local().disk
    if not disk.exists(path) or disk.is_dir(path):
        raise UsageError(f"There is no file {path}. Name a CSV or JSON file, or - for standard input.")
    file = disk.open(path)
    try:
        size = file.size()
        if size > _FILE_MAX:
            raise UsageError(f"{path} has {size} bytes, too many for a list of tasks.")
        return file.read(size, 0).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not text: {error}. Give CSV or JSON.") from None
    finally:
        file.close()


def _from_json(document: object) -> list[dict[str, Any]]:
    if isinstance(document, dict):
        fields = cast("dict[str, Any]", document)
        if isinstance(fields.get("move"), dict):
            fields = cast("dict[str, Any]", fields["move"])
        if "route" in fields:
            columns = [fields["route"], fields["work"], fields["bytes"]]
            if len({len(column) for column in columns}) != 1:
                raise UsageError("route, work and bytes have different lengths; give one of each for every task.")
            return [{"node": n, "work": w, "bytes": b} for n, w, b in zip(*columns, strict=True)]
        document = fields["tasks"]
    return cast("list[dict[str, Any]]", document)


def _size(count: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def _tables(plan: Plan, schedule: Transfer, steps: Steps | None) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    console.print(_summary(plan))
    table = Table(title="who gives what to whom")
    for column in ("from", "to", "tasks", "bytes"):
        table.add_column(column, justify="right")
    for (source, target), size in sorted(plan.flows().items()):
        tasks = sum(1 for _, a, b in plan.moves if (a, b) == (source, target))
        table.add_row(str(source), str(target), str(tasks), _size(size))
    if plan.moves:
        console.print(table)
    loads, mean = plan.loads(), max(1e-12, sum(plan.work) / len(plan.nodes))
    console.print("load / mean: " + "  ".join(f"{node}: {load / mean:.2f}" for node, load in loads.items()))
    if schedule.phases:
        console.print(
            f"transfer: {len(schedule.phases)} phases, as long as {_size(schedule.bound_bytes)} take on one link "
            "(no schedule is shorter)"
        )
    if steps is not None:
        _steps(console.print, steps)


def _summary(plan: Plan) -> str:
    proof = "the least possible" if plan.exact else f"at least {_size(plan.bound_bytes)} have to move"
    line = (
        f"{_size(plan.cost_bytes)} move ({plan.share_moved:.1%} of the state, {len(plan.moves)} of "
        f"{len(plan.after)} tasks): {proof}"
    )
    if plan.widened:
        line += f"\ntau = {plan.tau:g} can't be met; the smallest tau that was met is {plan.tau_effective:.4g}"
    return line


def _steps(show: Any, steps: Steps) -> None:
    note = (
        "no node above its limit at any time"
        if steps.balanced
        else f"up to {steps.excess:.1%} of a mean load too much"
    )
    show(f"{len(steps.steps)} steps ({steps.steps_min} is the fewest possible), {note}:")
    for number, step in enumerate(steps.steps, 1):
        show(f"  {number}: " + ", ".join(f"task {task} {a} -> {b}" for task, a, b in step))


def picture(plan: Plan, width: int = 30) -> str:
    """Each giver with bars to its takers, and the route as a strip before and after."""
    lines = [_summary(plan), ""]
    flows = plan.flows()
    largest = max(flows.values(), default=0)
    for source in sorted({a for a, _ in flows}):
        for target in sorted(b for a, b in flows if a == source):
            size = flows[source, target]
            tasks = [str(task) for task, a, b in plan.moves if (a, b) == (source, target)]
            bar = "━" * max(1, round(width * size / largest)) if largest else "━"
            some = ",".join(tasks[:6]) + (",..." if len(tasks) > 6 else "")
            lines.append(f"  node {source:>3} {bar}▶ node {target:<3} {_size(size):>9}  tasks {some}")
    marks = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    if len(plan.after) <= 128 and max(int(plan.before.max()), int(plan.after.max())) < len(marks):
        lines += ["", "  before " + "".join(marks[n] for n in plan.before)]
        lines += ["  after  " + "".join(marks[n] for n in plan.after)]
        changed = zip(plan.before, plan.after, strict=True)
        lines += ["  moved  " + "".join("^" if a != b else " " for a, b in changed).rstrip()]
    return "\n".join(lines)
