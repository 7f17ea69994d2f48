"""Moves in view of those to come: the precomputation, and the planner that uses it."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from kedge.errors import UsageError
from kedge.move import intervals, learn, pmc
from kedge.move.forecast import Floats, Forecast, Map, here
from kedge.move.limits import Ints, Nodes, Problem, problem
from kedge.move.mtm import Transitions
from kedge.move.planners import by_intervals, limits, name
from kedge.move.plans import Plan, finish

_GROUPS = 64


def aware(
    assignment: ArrayLike,
    work: ArrayLike,
    size: ArrayLike,
    nodes: Nodes,
    tau: float,
    forecast: Forecast,
    *,
    least: float = 0.0,
    strict: bool = False,
) -> Plan:
    """Plan the move that is cheapest now plus, by `forecast`, later.

    `bound_bytes` is what this move alone would have to cost.

    Where the forecast knows no partition within today's limits, the plan is that of `single`.
    """
    given = problem(assignment, work, size, nodes)
    alone = by_intervals(given, tau, least, strict=strict)
    old, owners = intervals.runs(given.route)
    sums = intervals.prefix(given.work)
    cap, floor, effective = limits(given, sums, tau, least, strict=strict)
    # Tasks of a node that has to leave move whatever is chosen: they attract no interval.
    stay = given.size if given.allowed is None else np.where(np.isin(given.route, given.allowed), given.size, 0)
    bounds = forecast.choose(replace(given, size=stay), sums, old, cap, floor)
    if bounds is None:
        return alone
    match = intervals.matching(intervals.prefix(given.weights()), old, bounds)
    names, serving = name(given, owners, match)
    after = intervals.route_of(bounds, names)
    return finish(given, after, serving, "mtm-aware", (tau, effective), alone.cost_bytes)


def precompute(
    work: ArrayLike,
    size: ArrayLike,
    transitions: Transitions,
    tau: float,
    *,
    gamma: float = 0.8,
    least: float = 0.0,
    method: Literal["auto", "exact", "learned"] = "auto",
    run: Map = here,
    states_max: int = 5_000,
    seed: int = 0,
    effort: float = 1.0,
    replica: bool = True,
) -> pmc.Table | learn.Learned:
    """Precompute what routes will cost later: exactly where all partitions can be listed, learned elsewhere.

    A learned forecast's stated error is measured: the same method is trained on a replica of the instance that is
    small enough for the exact table, and both policies follow the same long path there. `effort` scales the number
    of policies that are tried. More than 128 tasks are trained in 64 groups of neighbours; prices carry over, since
    they are made of shares, and whether they help is then measured on all tasks.
    """
    given = problem(np.zeros(np.asarray(work).shape, np.int64), work, size, 1)
    if not 0 <= gamma < 1:
        raise UsageError(f"gamma is {gamma}; over an endless sequence it has to be at least 0 and below 1.")
    if method not in ("auto", "exact", "learned"):
        raise UsageError(f'method is "auto", "exact" or "learned", not {method!r}.')
    states = pmc.states_count(given.work, transitions, tau, least) if method != "learned" else 0
    if method == "exact" or (method == "auto" and states <= states_max):
        most = max(states, 1)
        return pmc.table(given.work, given.size, transitions, tau, gamma, least=least, run=run, states_max=most)
    tried = {"rounds": max(4, round(24 * effort**0.5)), "population": max(12, round(48 * effort**0.5))}
    small = _grouped(given)
    forecast = _best_trained(small, transitions, tau, gamma, least, run, seed, tried)
    if small is not given:
        forecast = _confirmed(given, forecast, least, seed)
    if not replica:
        return forecast
    return replace(forecast, error=replica_error(given.work, given.size, transitions, tau, gamma, least, run, seed))


def _grouped(given: Problem) -> Problem:
    """Neighbours taken together, where there are many tasks."""
    if given.tasks <= 2 * _GROUPS:
        return given
    return _merged(given, _GROUPS)


def _merged(given: Problem, groups: int) -> Problem:
    edges = np.arange(groups) * given.tasks // groups
    work, size = np.add.reduceat(given.work, edges), np.add.reduceat(given.size, edges)
    return replace(given, route=np.zeros(groups, np.int64), work=work, size=size)


def _confirmed(given: Problem, forecast: learn.Learned, least: float, seed: int) -> learn.Learned:
    """The forecast with its gain over SSM on all tasks; one that has none is replaced by SSM."""
    steps = int(np.clip(60 * 256 // given.tasks, 12, 60))
    path = forecast.transitions.path(forecast.transitions.lowest, steps, seed + 1)
    cost, alone = (mean_cost(given.work, given.size, path, forecast.tau, least, f) for f in (forecast, None))
    if cost >= alone:
        return replace(forecast, weights=np.zeros_like(forecast.weights), gain=0.0)
    return replace(forecast, gain=1 - cost / alone)


def _best_trained(
    given: Problem,
    transitions: Transitions,
    tau: float,
    gamma: float,
    least: float,
    run: Map,
    seed: int,
    tried: dict[str, int],
) -> learn.Learned:
    """Train; where that is quick, three times from other random numbers, and take what does best on one long path."""
    found = [
        learn.train(given.work, given.size, transitions, tau, gamma, least=least, run=run, seed=seed + i, **tried)
        for i in range(3 if given.tasks <= 32 else 1)
    ]
    if len(found) == 1:
        return found[0]
    path = transitions.path(transitions.lowest, 300, seed)
    return min(found, key=lambda forecast: mean_cost(given.work, given.size, path, tau, least, forecast))


def replica_error(
    work: Ints, size: Ints, transitions: Transitions, tau: float, gamma: float, least: float, run: Map, seed: int
) -> float:
    """How far the learned policy's cost per move is above the exact policy's on a small replica."""
    small = shrunk(transitions, most=4)
    few = _merged(problem(np.zeros(len(work), np.int64), work, size, 1), min(len(work), 16))
    exact = pmc.table(few.work, few.size, small, tau, gamma, least=least, run=run)
    guess = _best_trained(few, small, tau, gamma, least, run, seed, {})
    path = small.path(small.lowest, 500, seed)
    best, ours = (mean_cost(few.work, few.size, path, tau, least, f) for f in (exact, guess))
    return max(0.0, ours / best - 1) if best > 0 else 0.0


def mean_cost(work: Ints, size: Ints, path: Ints, tau: float, least: float, forecast: Forecast | None) -> float:
    """The mean share of state that a policy moves along a path of node counts (SSM without a forecast)."""
    route = by_intervals(problem(np.zeros(len(work), np.int64), work, size, int(path[0])), tau, least).after
    costs: Floats = np.empty(len(path) - 1)
    for t, nodes in enumerate(path[1:]):
        if forecast is None:
            plan = by_intervals(problem(route, work, size, int(nodes)), tau, least)
        else:
            plan = aware(route, work, size, int(nodes), tau, forecast, least=least)
        route, costs[t] = plan.after, plan.share_moved
    return float(costs.mean())


def shrunk(transitions: Transitions, most: int) -> Transitions:
    """The same kind of matrix for at most `most` nodes: counts are scaled down, merged as often as they occur."""
    highest = transitions.counts[-1]
    if highest <= most:
        return transitions
    scaled = np.maximum(1, np.rint(np.array(transitions.counts) * most / highest).astype(int))
    lowest, size = int(scaled.min()), int(scaled.max() - scaled.min()) + 1
    flow = np.zeros((size, size))
    mass = transitions.often()[:, None] * transitions.matrix
    np.add.at(flow, (scaled[:, None] - lowest, scaled[None, :] - lowest), mass)
    for row in np.flatnonzero(flow.sum(axis=1) == 0):
        flow[row, row] = 1.0
    return Transitions(lowest, flow / flow.sum(axis=1, keepdims=True))
