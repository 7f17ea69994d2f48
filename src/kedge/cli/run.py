"""`kedge run start|status|batches|verify DIR`: go on with a run, or look at it."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kedge.run.directory import RunDirectory

HELP = "go on with a run, or look at it"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `kedge run`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    start = actions.add_parser("start", help="go on with the run, here or on Spark, until it ends or is stopped")
    start.add_argument("--spark", metavar="MASTER", help="a Spark master such as local[2]; without it, embedded")
    start.add_argument("--nodes", type=int, help="worker slots")
    start.add_argument("--rows-max", type=int, help="rows in one batch at most")
    start.add_argument("--finish", action="store_true", help="take all input, close every window, and end the run")
    actions.add_parser("status", help="where the run is")
    actions.add_parser("batches", help="what each batch did")
    actions.add_parser("verify", help="read every record and unit that the ledger names")
    for action in actions.choices.values():
        action.add_argument("path", help="the run's directory")
        action.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    """Carry out one action."""
    from kedge.host import local
    from kedge.run.directory import RunDirectory

    directory = RunDirectory(local(), args.path)
    return {"start": _start, "status": _status, "batches": _batches, "verify": _verify}[args.action](
        directory, args
    )


def _start(directory: RunDirectory, args: argparse.Namespace) -> int:
    from kedge.run.query import reopen

    given: dict[str, Any] = {"nodes": args.nodes, "rows_max": args.rows_max}
    options = {name: value for name, value in given.items() if value is not None}
    query, into, _ = reopen(directory)
    spark = None
    if args.spark is not None:
        from kedge.spark.session import session

        spark = session("kedge run", args.spark)
    with query.start(directory.path, into=into, spark=spark, **options) as run:
        if args.finish:
            run.finish()
        else:
            _wait(run)
    return _status(directory, args)


def _wait(run: Any) -> None:
    """Until the run ends, or somebody presses ctrl-C."""
    try:
        while not run.wait(1.0):
            pass
    except KeyboardInterrupt:
        return


def _status(directory: RunDirectory, args: argparse.Namespace) -> int:
    from kedge.run.status import status_of

    status = status_of(directory).to_json()
    print(json.dumps(status, indent=1) if args.json else "\n".join(f"{k:14} {v}" for k, v in status.items()))
    return 0


def _batches(directory: RunDirectory, args: argparse.Namespace) -> int:
    from kedge.run.query import reopen

    reopen(directory)  # says so when there is no run
    ledger = directory.ledger()
    ledger.refresh()
    records = [record for record in ledger.records() if record["kind"] == "batch"]
    if args.json:
        print(json.dumps(records, indent=1))
        return 0
    for record in records:
        spent_ms = (record["figures"]["committed_us"] - record["planned_us"]) / 1000
        print(
            f"{record['version']:>8}  epoch {record['epoch']:<4} rows {record['figures']['rows']:>12,}  "
            f"late {record['figures']['rows_late']:>8,}  results {sum(u['rows'] for u in record['results']):>10,}  "
            f"{spent_ms:>9.1f} ms"
        )
    return 0


def _verify(directory: RunDirectory, args: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.progress import track

    from kedge.run.verify import verify

    console = Console(stderr=True)
    report = verify(
        directory, lambda files: track(files, "verify", console=console, disable=not console.is_terminal)
    )
    if args.json:
        print(json.dumps(report.to_json(), indent=1))
    else:
        print(f"{report.path}: version {report.version}, {report.state_units} state units, "
              f"{report.result_units} result units with {report.result_rows:,} rows: "
              f"{'all well' if not report.damaged else 'DAMAGED'}")  # fmt: skip
        print("".join(f"  {wrong}\n" for wrong in report.damaged), end="")
    return 1 if report.damaged else 0
