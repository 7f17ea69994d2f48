"""`kedge bench NAME`: measure, beside rivals, in one run."""

from __future__ import annotations

import argparse

HELP = "run a benchmark: its figures, their aims, and rivals from the same run"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `kedge bench`."""
    parser.add_argument("name", help="spine, streams, queries, recovery, spark, connections, state, move, resume")
    parser.add_argument("--quick", action="store_true", help="scaled sizes, within 50 seconds on two cores")
    parser.add_argument("--out", default="bench-out", help="where tables, JSON and plots go")


def run(args: argparse.Namespace) -> int:
    """Run one benchmark and print its figures."""
    from kedge import bench

    return bench.main(args.name, quick=args.quick, as_json=args.json, out=args.out)
