"""One move: `single` plans the change of route that moves the fewest bytes under the balance limits.

Among plans of equal bytes the one that moves fewer tasks wins, so a route that already meets the limits is left as
it is. An old node is never left out while a new one is put in, except where the caller names the nodes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from kedge.errors import UsageError
from kedge.move import anymap, intervals, ssm
from kedge.move.limits import Ints, Nodes, Problem, least_share, problem, share, tau_of
from kedge.move.plans import Plan, finish


def single(
    assignment: ArrayLike,
    work: ArrayLike,
    size: ArrayLike,
    nodes: Nodes,
    tau: float,
    *,
    assign: Literal["intervals", "any"] = "intervals",
    least: float = 0.0,
    strict: bool = False,
    seed: int = 0,
) -> Plan:
    """Plan one move from the route `assignment` to `nodes` nodes (a count, or the ids that will serve).

    No node gets more than (1 + tau) times the mean work, nor less than `least` times the mean. If no assignment
    meets tau, the smallest feasible one is used and reported; `strict` refuses instead.

    >>> plan = single([0, 0, 0, 1, 1, 1], work=[1] * 6, size=[5, 5, 5, 5, 5, 5], nodes=3, tau=0.0)
    >>> plan.after.tolist(), plan.cost_bytes, plan.exact
    ([0, 0, 2, 2, 1, 1], 10, True)
    """
    given = problem(assignment, work, size, nodes)
    if assign == "any":
        return _cheaper(given, anymap.plan(given, tau, least, strict=strict, seed=seed), least)
    if assign != "intervals":
        raise UsageError(f'assign is "intervals" or "any", not {assign!r}.')
    return by_intervals(given, tau, least, strict=strict)


def _cheaper(given: Problem, found: Plan, least: float) -> Plan:
    """The map that was found, or the best intervals within its limits if these move less."""
    cuts = np.flatnonzero(np.diff(given.route))
    if found.exact or len(cuts) + 1 != len(np.unique(given.route)):
        return found
    try:
        other = by_intervals(given, found.tau_effective, least, strict=True)
    except UsageError:
        return found
    if other.cost_bytes >= found.cost_bytes:
        return found
    return replace(found, after=other.after, nodes=other.nodes, cost_bytes=other.cost_bytes)


def by_intervals(given: Problem, tau: float, least: float, *, strict: bool = False) -> Plan:
    """SSM: exactly the fewest bytes among assignments of intervals."""
    old, owners = intervals.runs(given.route)
    sums = intervals.prefix(given.work)
    cap, floor, effective = limits(given, sums, tau, least, strict=strict)
    bounds, match = least_moved(intervals.prefix(given.weights()), sums, old, given.nodes, cap, floor)
    names, serving = name(given, owners, match)
    after = intervals.route_of(bounds, names)
    return finish(given, after, serving, "ssm", (tau, effective), None)


def limits(given: Problem, sums: Ints, tau: float, least: float, *, strict: bool) -> tuple[int, int, float]:
    """The cap and floor that intervals can keep, and the threshold that the cap stands for."""
    total, nodes = int(sums[-1]), given.nodes
    cap = share(total, nodes, tau)
    floor = least_share(total, nodes, least)
    if floor == 0:
        needed = int(intervals.bottleneck(sums, nodes))
    else:
        needed = _needed_with_floor(given, sums, cap, floor, least)
    if needed <= cap:
        return cap, floor, tau
    effective = tau_of(needed, total, nodes)
    if strict:
        raise UsageError(
            f"No assignment of intervals keeps every node within tau = {tau:g}: the smallest feasible tau is "
            f"{effective:.6g}. Ask for that, allow arbitrary maps, or use more tasks.",
            code="tau-infeasible",
        )
    return needed, floor, effective


def _needed_with_floor(given: Problem, sums: Ints, cap: int, floor: int, least: float) -> int:
    total, nodes = int(sums[-1]), given.nodes
    if intervals.fits(sums, nodes, cap, floor):
        return cap
    if not intervals.fits(sums, nodes, total, floor):
        low, high = 0, floor if nodes <= given.tasks else 1
        while low < high - 1:
            middle = (low + high) // 2
            low, high = (middle, high) if intervals.fits(sums, nodes, total, middle) else (low, middle)
        raise UsageError(
            f"No assignment of intervals gives each of {nodes} nodes {least:g} of the mean work: "
            f"at most {low * nodes / total if total else 0:.6g} is feasible.",
            code="least-infeasible",
        )
    low, high = cap, total
    while low < high - 1:
        middle = (low + high) // 2
        low, high = (low, middle) if intervals.fits(sums, nodes, middle, floor) else (middle, high)
    return high


def least_moved(kept: Ints, sums: Ints, old: Ints, nodes: int, cap: int, floor: int) -> tuple[Ints, Ints]:
    """Bounds and matches of the best assignment; at most `nodes` intervals, exactly as many where floor > 0."""
    nodes = min(nodes, len(kept) - 1)  # more intervals would be empty
    first, last = ssm.windows(sums, cap, floor)
    free, used = ssm.layers(kept, old, first, last, intervals.band(sums, nodes, cap))
    counts = np.arange(nodes, 0, -1) if floor == 0 else np.array([nodes])
    count = int(counts[np.argmax(free[counts, -1])])
    return ssm.trace(free, used, kept, sums, old, first, last, count)


def name(given: Problem, owners: Ints, match: Ints) -> tuple[Ints, tuple[int, ...]]:
    """Node ids for the new intervals: the matched keep theirs, then old nodes by position, then unused numbers."""
    allowed = None if given.allowed is None else set(given.allowed)
    names = np.full(len(match), -1, np.int64)
    for interval, run in enumerate(match):
        if run >= 0 and (allowed is None or int(owners[run]) in allowed):
            names[interval] = owners[run]
    taken = {int(node) for node in names}
    spare = [int(node) for node in owners if int(node) not in taken and (allowed is None or int(node) in allowed)]
    if allowed is not None:
        spare += sorted(allowed - taken - set(spare))
    else:
        present = {int(node) for node in owners}
        fresh = (node for node in range(len(owners) + given.nodes + 1) if node not in present)
        spare += [node for node, _ in zip(fresh, range(given.nodes), strict=False)]
    coming = iter(spare)
    for interval in np.flatnonzero(names < 0):
        names[interval] = next(coming)
    used = [int(node) for node in names]
    idle = [node for node, _ in zip(coming, range(given.nodes - len(used)), strict=False)]
    return names, tuple(sorted(used + idle))
