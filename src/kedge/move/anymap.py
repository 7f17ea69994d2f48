"""Arbitrary task maps: fewer bytes than intervals need at tight balance, with a certified lower bound.

The problem holds bin packing, so there is no fast exact method. The plan is found by simulated annealing from a
greedy start, seeded and repeatable; it is proven optimal when its cost equals the lower bound (bounds.py). A map of
4,096 tasks is 8 KB and fits a cache, so routing stays cheap.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kedge.errors import UsageError
from kedge.jit import jit
from kedge.move import bounds, intervals
from kedge.move.limits import Ints, Problem, least_share, share, tau_of
from kedge.move.plans import Plan, finish, moved_bytes

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _Search:
    """The instance as the kernel sees it: places are 0..n'-1, and `home` is -1 where the owner has to leave."""

    home: Ints
    work: Ints
    size: Ints
    places: int
    floor: int
    seed: int

    def cost(self, place: Ints) -> int:
        """Bytes that a map moves, and among equal ones tasks."""
        gone = place != self.home
        return int(self.size[gone].sum()) * (len(place) + 1) + int(gone.sum())

    def run(self, cap: int, start: Ints, steps: int) -> Ints | None:
        """The cheapest map within the limits that annealing finds, or None."""
        found, place = _anneal(
            self.home, self.work, self.size, self.places, (cap, self.floor), start, steps, self.seed
        )
        return place if found else None


def plan(given: Problem, tau: float, least: float, *, strict: bool, seed: int) -> Plan:
    """Plan one move by an arbitrary map."""
    total, nodes = int(given.work.sum()), given.nodes
    cap, floor = share(total, nodes, tau), least_share(total, nodes, least)
    needed = max(int(given.work.max()), -(-total // nodes))
    serving = _serving(given, max(cap, needed))
    number = {node: place for place, node in enumerate(serving)}
    home = np.array([number.get(int(node), -1) for node in given.route], np.int64)
    search = _Search(home, given.work, given.size, nodes, floor, seed)
    steps = int(np.clip(4_000 * given.tasks, 100_000, 1_500_000))
    reached, place = _narrowed(search, given, cap, needed, steps)
    effective = tau if reached <= cap else tau_of(reached, total, nodes)
    if strict and reached > cap:
        raise UsageError(
            f"No map within tau = {tau:g} was found: the smallest tau that was met is {effective:.6g}, and none "
            f"below {tau_of(needed, total, nodes):.6g} exists.",
            code="tau-infeasible",
        )
    after = np.array(serving, np.int64)[place]
    cost = moved_bytes(given.route, after, given.size)
    bound = bounds.lower_bound(given, reached, floor)
    if bound < cost:
        place = _longer(search, reached, place, steps)
        after = np.array(serving, np.int64)[place]
        cost = moved_bytes(given.route, after, given.size)
    if bound < cost:
        bound = max(bound, bounds.by_prices(given, reached, cost))
    return finish(given, after, serving, "any", (tau, effective), min(bound, cost))


def _longer(search: _Search, cap: int, place: Ints, steps: int) -> Ints:
    """Try twice more, with more steps and other random numbers, where the first map is not proven the best."""
    best = place
    for seed in (search.seed + 1, search.seed + 2):
        found = replace(search, seed=seed).run(cap, best, 4 * steps)
        if found is not None and search.cost(found) < search.cost(best):
            best = found
    return best


def _narrowed(search: _Search, given: Problem, cap: int, needed: int, steps: int) -> tuple[int, Ints]:
    """A map at `cap`, or at the smallest cap above it for which one was found."""
    fallback = _longest_first(search)
    low = max(cap, needed)
    found = search.run(low, _greedy(search, low), steps)
    if found is not None:
        return low, found
    loads = np.zeros(search.places, np.int64)
    np.add.at(loads, fallback, search.work)
    high = int(loads.max())
    high = min(high, int(intervals.bottleneck(intervals.prefix(given.work), search.places)))
    best: Ints | None = None
    while low < high - max(1, high // 500):
        middle = (low + high) // 2
        found = search.run(middle, _greedy(search, middle), steps)
        low, high, best = (low, middle, found) if found is not None else (middle, high, best)
    if best is None:
        best = search.run(high, fallback, steps)
    if best is None:
        raise UsageError("No map that gives every node its least share was found. Ask for a smaller least.")
    return high, best


def _serving(given: Problem, cap: int) -> tuple[int, ...]:
    """The nodes that serve afterwards: of too many old ones those whose staying saves the most bytes."""
    if given.allowed is not None:
        return given.allowed
    present = [int(node) for node in np.unique(given.route)]
    if len(present) > given.nodes:
        saved = {node: bounds.held(given, node) - bounds.shed(given, node, cap) for node in present}
        present = sorted(present, key=lambda node: (-saved[node], node))[: given.nodes]
    fresh = [node for node in range(len(present) + given.nodes) if node not in set(present)]
    return tuple(sorted(present + fresh[: given.nodes - len(present)]))


def _greedy(search: _Search, cap: int) -> Ints:
    """Everybody at home; overfull nodes then give up what costs least per work, into the emptiest places."""
    place = search.home.copy()
    loads = np.zeros(search.places, np.int64)
    np.add.at(loads, place[place >= 0], search.work[place >= 0])
    by_cost = np.argsort(search.size / np.maximum(search.work, 1), kind="stable")
    for task in by_cost:
        where = place[task]
        if where >= 0 and loads[where] > cap and search.work[task] > 0:
            loads[where] -= search.work[task]
            place[task] = -1
    return _filled(search, place, loads)


def _longest_first(search: _Search) -> Ints:
    """Everything anew, most work first, into the emptiest place."""
    return _filled(search, np.full(len(search.home), -1, np.int64), np.zeros(search.places, np.int64))


def _filled(search: _Search, place: Ints, loads: Ints) -> Ints:
    waiting = np.flatnonzero(place < 0)
    for task in waiting[np.argsort(-search.work[waiting], kind="stable")]:
        where = int(np.argmin(loads))
        place[task] = where
        loads[where] += search.work[task]
    return place


@jit
def _random(state: NDArray[np.uint64]) -> float:
    """A number in [0, 1): xorshift, kept in state[0]."""
    x = state[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    state[0] = x
    return float(x >> np.uint64(11)) / 9007199254740992.0


@jit
def _off(load: Any, cap: int, floor: int) -> int:
    return max(0, load - cap) + max(0, floor - load)


@jit
def _anneal(
    home: Ints, work: Ints, size: Ints, places: int, limits: tuple[int, int], start: Ints, steps: int, seed: int
) -> tuple[bool, Ints]:
    """Relocate one task, send one home or exchange two; being outside the limits costs, ever more."""
    m = len(home)
    cap, floor = limits
    state = np.array([np.uint64(seed * 2 + 88172645463325253)], np.uint64)
    place = start.copy()
    loads = np.zeros(places, np.int64)
    moved, off = 0, 0
    for t in range(m):
        loads[place[t]] += work[t]
        if place[t] != home[t]:
            moved += size[t] * (m + 1) + 1
    for p in range(places):
        off += _off(loads[p], cap, floor)
    best, best_place, found = moved, place.copy(), off == 0
    per_byte = 1.0 / max(1.0, float((size * (m + 1) + 1).sum()))
    per_work = 1.0 / max(1.0, float(work.sum()))
    typical = 1.0 / m
    for step in range(steps):
        part = step / steps
        heat = typical * 0.5 * (0.002**part)
        weight = 2.0 + 30.0 * part
        t = int(_random(state) * m)
        kind = _random(state)
        a = place[t]
        other = -1
        if kind < 0.3:
            b = home[t]
            if b < 0:
                continue
        elif kind < 0.6:
            b = int(_random(state) * places)
        else:
            other = int(_random(state) * m)
            b = place[other]
        if a == b:
            continue
        shift = work[t] - (work[other] if other >= 0 else 0)
        change = 0
        if a == home[t]:
            change += size[t] * (m + 1) + 1
        elif b == home[t]:
            change -= size[t] * (m + 1) + 1
        if other >= 0:
            if b == home[other]:
                change += size[other] * (m + 1) + 1
            elif a == home[other]:
                change -= size[other] * (m + 1) + 1
        was = _off(loads[a], cap, floor) + _off(loads[b], cap, floor)
        now = _off(loads[a] - shift, cap, floor) + _off(loads[b] + shift, cap, floor)
        worse = change * per_byte + weight * (now - was) * per_work
        if worse > 0 and _random(state) >= np.exp(-worse / heat):
            continue
        place[t] = b
        if other >= 0:
            place[other] = a
        loads[a] -= shift
        loads[b] += shift
        moved += change
        off += now - was
        if off == 0 and (not found or moved < best):
            found = True
            best = moved
            best_place[:] = place
    return found, best_place
