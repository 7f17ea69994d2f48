"""Planners for moving state: which task goes to which node, in what steps, so that the fewest bytes move.

Pure functions on arrays: a route (task -> node), the work and the bytes of each task, and how many nodes there will
be. A plan is a route, its cost and what is known about the optimum; it can be cut into phases or steps.

One move:        single (intervals exactly, or assign="any"), and the baselines
Several moves:   sequence (known), aware (likely: transitions -> precompute -> aware)
Carrying it out: transfer (phases of bytes), progressive (steps of tasks)

It reads no clock and no files, and it moves nothing.
"""

from kedge.move.baselines import consistent_hashing, equal_counts, redist
from kedge.move.forecast import Forecast, Map, threads
from kedge.move.future import aware, mean_cost, precompute
from kedge.move.limits import Problem
from kedge.move.mtm import Transitions, learned, transitions
from kedge.move.phases import Phase, Transfer, transfer
from kedge.move.planners import single
from kedge.move.plans import Plan
from kedge.move.pmc import Table
from kedge.move.sequences import Course, sequence
from kedge.move.steps import Steps, progressive

__all__ = [
    "Course",
    "Forecast",
    "Map",
    "Phase",
    "Plan",
    "Problem",
    "Steps",
    "Table",
    "Transfer",
    "Transitions",
    "aware",
    "consistent_hashing",
    "equal_counts",
    "learned",
    "mean_cost",
    "precompute",
    "progressive",
    "redist",
    "sequence",
    "single",
    "threads",
    "transfer",
    "transitions",
]
