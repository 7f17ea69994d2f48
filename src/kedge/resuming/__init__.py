"""Which intermediates of a query to save: pure functions on graphs.

Reading order: `dag` (operations and data), `schedule` (when everything is done), `cost` (what a failure costs),
`schemes` (the paper's choices, corrected), `cuts` (the fewest bytes for a target), `choose` (under a budget),
`pieces` (saving by partition).
"""

from __future__ import annotations

from kedge.resuming.choose import Selection, fewest_bytes, select_checkpoints
from kedge.resuming.dag import Dag, Datum, Operation, as_dag, build
from kedge.resuming.schedule import Speeds

__all__ = [
    "Dag",
    "Datum",
    "Operation",
    "Selection",
    "Speeds",
    "as_dag",
    "build",
    "fewest_bytes",
    "select_checkpoints",
]
