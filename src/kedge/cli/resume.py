"""`kedge resume ls|show|clean DIR`: what a job has saved."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kedge.spark.resume.job import Job

HELP = "what a resumable query has saved: ls, show (a tree or a picture), clean"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `kedge resume`."""
    parser.add_argument("action", choices=("ls", "show", "clean"))
    parser.add_argument("dir", help="the directory of the job (at= of kedge.resume)")
    parser.add_argument("--svg", help="show: write a picture of the plan to this file")


def run(args: argparse.Namespace) -> int:
    """Look at a job, or remove what it saved."""
    from kedge.errors import UsageError
    from kedge.spark.resume.job import Job

    job = Job(args.dir)
    if not job.store.list("ledger"):
        raise UsageError(
            f"{args.dir} is not a job: it has no ledger. Name the directory that kedge.resume was given."
        )
    if args.action == "clean":
        job.claim()
        freed = job.clean()
        print(json.dumps({"freed_bytes": freed}) if args.json else f"freed {freed:,} bytes in {args.dir}")
    elif args.action == "ls":
        _list(job, args.json)
    else:
        _show(job, args)
    return 0


def _list(job: Job, as_json: bool) -> None:
    rows = [
        {
            "id": cut.id,
            "what": cut.label,
            "partitions": cut.partitions,
            "saved": len(cut.parts),
            "bytes": cut.bytes,
            "complete": cut.done,
        }
        for cut in job.cuts().values()
    ]
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    for row in rows:
        print(
            f"{row['id']}  {row['saved']}/{row['partitions']} partitions  {row['bytes']:>12,} bytes  {row['what']}"
        )
    if not rows:
        print(f"nothing is saved in {job.at}")


def _show(job: Job, args: argparse.Namespace) -> None:
    from kedge import host
    from kedge.errors import UsageError
    from kedge.spark.resume import report

    runs: list[Mapping[str, Any]] = [record for record in job.records() if record["kind"] in ("plan", "run")]
    if not runs:
        raise UsageError(f"{args.dir}: no run of this job has planned its query yet; call kedge.resume first.")
    if args.svg:
        folder, _, name = args.svg.rpartition("/")
        host.local().store(folder or ".").put(name, report.picture(runs[-1]).encode())
    if args.json:
        print(json.dumps(runs[-1], indent=1))
    else:
        print(report.tree(runs[-1]))
