"""`kedge sim --seed N`: one simulated crash of the embedded runner, with its trace."""

from __future__ import annotations

import argparse
import json

HELP = "replay one simulated crash and print its trace"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `kedge sim`."""
    parser.add_argument("--seed", type=int, default=0, help="the trial: workload, fault and crash follow from it")


def run(args: argparse.Namespace) -> int:
    """Crash, recover, check."""
    from kedge.testing.crash import Trial

    trial = Trial.of(args.seed)
    before, after = trial.run()
    if args.json:
        traces = {"before": [str(call) for call in before.trace], "after": [str(call) for call in after.trace]}
        print(
            json.dumps({"seed": trial.seed, "fault": trial.fault, "crash_at": trial.crash_at, **traces}, indent=1)
        )
        return 0
    for title, host in (("until the crash", before), ("after the restart", after)):
        print(f"--- {title}")
        for call in host.trace:
            print(f"{call.number:5d}  {call}")
    print(
        f"--- seed {trial.seed}: fault {trial.fault!r}, crash at I/O call {trial.crash_at}; "
        "every batch has the results of the model"
    )
    return 0
