"""The batch protocol: pure functions from what is known to what to do.

    state  = fold(state, record)                # what the ledger says
    plan   = plan_batch(state, inputs, ...)     # what the next batch is
    record = commit_record(state, plan, done)   # what makes it true
    sweep(state, needed, names)                 # what nobody needs any more

Invariants:
- A plan names its parent's nonce; its record counts only when it lands right after that parent.
- Everything that a batch depends on is in its plan: ranges, watermarks, nodes. Nothing is computed again later.
- Input is read in whole units, so the newest event time of a batch is known before a row is read.
- A file may be deleted only when a committed record releases it, or when no record can ever name it.

The shells (`kedge.run.embedded`, `kedge.spark.runner`) do the I/O; neither decides anything.
"""

from kedge.run.core.commit import Manifest, Written, attempt_name, commit_record, sweep
from kedge.run.core.plan import Plan, Range, Unit, plan_batch
from kedge.run.core.state import ALWAYS_US, NEVER_US, RunState, StateUnit, fold

__all__ = [
    "ALWAYS_US",
    "NEVER_US",
    "Manifest",
    "Plan",
    "Range",
    "RunState",
    "StateUnit",
    "Unit",
    "Written",
    "attempt_name",
    "commit_record",
    "fold",
    "plan_batch",
    "sweep",
]
