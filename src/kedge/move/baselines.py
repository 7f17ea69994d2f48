"""The assignments that the paper compares with, as published: what a planner has to beat.

Consistent hashing and equal counts look neither at work nor at bytes, so their plans may leave a node far above the
limit: `Plan.tau_reached` says how far. Redist does balance the work.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from kedge.errors import UsageError
from kedge.move.limits import Ints, Problem, problem, share
from kedge.move.plans import Plan, finish

_VIRTUAL = 100


def _given(assignment: ArrayLike, work: ArrayLike, size: ArrayLike, nodes: int) -> Problem:
    given = problem(assignment, work, size, nodes)
    if given.allowed is not None:
        raise UsageError("The baselines number their nodes from 0; give a count.")
    return given


def _finish(given: Problem, after: Ints, name: str) -> Plan:
    plan = finish(given, after, tuple(range(given.nodes)), name, (0.0, 0.0), 0)
    reached = plan.tau_reached
    return finish(given, after, plan.nodes, name, (reached, reached), 0)


def consistent_hashing(
    assignment: ArrayLike, work: ArrayLike, size: ArrayLike, nodes: int, *, seed: int = 0
) -> Plan:
    """Karger's ring: nodes at 100 points each, a task at the next point after its own (Karger et al., 1997)."""
    given = _given(assignment, work, size, nodes)
    node = np.repeat(np.arange(nodes, dtype=np.uint64), _VIRTUAL)
    point = np.tile(np.arange(_VIRTUAL, dtype=np.uint64), nodes)
    ring = _mixed(node * np.uint64(1_000_003) + point, seed)
    order = np.argsort(ring, kind="stable")
    tasks = _mixed(np.arange(given.tasks, dtype=np.uint64) + np.uint64(1 << 40), seed)
    place = np.searchsorted(ring[order], tasks) % len(ring)
    return _finish(given, node[order][place].astype(np.int64), "consistent hashing")


def _mixed(values: np.ndarray, seed: int) -> np.ndarray:
    """Random-looking numbers, the same for the same seed (splitmix64's finaliser)."""
    x = values + np.uint64((seed * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) % (1 << 64))
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def equal_counts(assignment: ArrayLike, work: ArrayLike, size: ArrayLike, nodes: int) -> Plan:
    """Storm's default: node i gets the i-th of n' runs of equally many consecutive tasks."""
    given = _given(assignment, work, size, nodes)
    return _finish(given, np.arange(given.tasks) * nodes // given.tasks, "equal counts")


def redist(assignment: ArrayLike, work: ArrayLike, size: ArrayLike, nodes: int, tau: float) -> Plan:
    """Gedik's Redist: every task is placed anew, most work first, where load and migration together cost least.

    Its utility weighs the load relative to the mean against whether the task moves, all states taken as equally
    large. Written from the published description (VLDB Journal 23(4), 2014); no code was published.
    """
    given = _given(assignment, work, size, nodes)
    total = int(given.work.sum())
    cap, mean = share(total, nodes, tau), max(1e-12, total / nodes)
    loads = np.zeros(nodes, np.int64)
    after = np.empty(given.tasks, np.int64)
    for task in np.argsort(-given.work, kind="stable"):
        then = loads + given.work[task]
        utility = -then / mean - (np.arange(nodes) != given.route[task])
        utility[then > cap] -= nodes + 2.0
        after[task] = place = int(np.argmax(utility))
        loads[place] = then[place]
    return _finish(given, after, "redist")
