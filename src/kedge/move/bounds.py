"""Bytes that every arbitrary map within the limits moves: certified lower bounds.

By knapsacks: a node above the cap has to give up tasks whose work covers the excess, at the fewest bytes (exact by
branch and bound, fractional where that takes too long). This misses that what leaves one node has to fit elsewhere.

By prices (Lagrange): let every task carry a price instead of the rule that it is placed once; each node then takes
the set of tasks within the cap that is best for it alone, a knapsack, and the n' best nodes count. The sum is a lower
bound for any prices; a subgradient method raises it. Work is rounded down to units for the knapsacks, which keeps it
a bound. For large instances the prices are left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kedge.jit import jit
from kedge.move.limits import Ints, Problem

Floats = NDArray[np.float64]

_BRANCHES_MAX = 200_000
_UNITS = 1_000
_CELLS_MAX = 400_000_000
_ROUNDS = 200


def held(given: Problem, node: int) -> int:
    """The bytes that `node` has now."""
    return int(given.size[given.route == node].sum())


def shed(given: Problem, node: int, cap: int) -> int:
    """The fewest bytes that `node` has to give up to come down to `cap`; a lower bound if that is hard to find."""
    mine = given.route == node
    excess = int(given.work[mine].sum()) - cap
    if excess <= 0:
        return 0
    work, size = given.work[mine], given.size[mine]
    useful = work > 0
    work, size = work[useful], size[useful]
    order = np.lexsort((-work, size / work))
    return int(cover(work[order], size[order], excess, _BRANCHES_MAX))


def lower_bound(given: Problem, cap: int, floor: int) -> int:
    """Bytes that every map within the limits moves."""
    present = [int(node) for node in np.unique(given.route)]
    stays = present if given.allowed is None else [node for node in present if node in set(given.allowed)]
    saved = sorted((held(given, node) - shed(given, node, cap) for node in stays), reverse=True)
    by_cap = int(given.size.sum()) - sum(saved[: given.nodes])
    return max(by_cap, _by_floor(given, present, floor))


def _by_floor(given: Problem, present: list[int], floor: int) -> int:
    """Work that has to come to nodes below the floor, at the fewest bytes per unit of work."""
    loads = sorted((int(given.work[given.route == node].sum()) for node in present), reverse=True)
    loads = (loads + [0] * given.nodes)[: given.nodes]
    missing = sum(max(0, floor - load) for load in loads)
    useful = given.work > 0
    work, size = given.work[useful], given.size[useful]
    order = np.argsort(size / work, kind="stable")
    sums = np.cumsum(work[order])
    full = int(np.searchsorted(sums, missing, side="right"))
    bytes_moved = int(size[order][:full].sum())
    if full < len(order):
        left = missing - (int(sums[full - 1]) if full else 0)
        bytes_moved += int(left * int(size[order][full]) // int(work[order][full]))
    return bytes_moved


@jit
def _part(left: Any, work: Any, size: Any) -> int:
    """left / work of size, rounded up, or a little less: the product itself may not fit into 64 bits."""
    return int(np.ceil(left / work * size * (1 - 1e-12)))


@jit
def cover(work: Ints, size: Ints, excess: int, branches_max: int) -> int:
    """The least total size of items whose work is `excess` or more; items come by rising size per work.

    Depth first, cut by the fractional bound. Out of branches, it returns the fractional bound of the whole.
    """
    n = len(work)
    root, left = 0, excess
    for i in range(n):
        if work[i] >= left:
            root += _part(left, work[i], size[i])
            left = 0
            break
        root += size[i]
        left -= work[i]
    best = size.sum()
    taken = np.zeros(n, np.bool_)
    depth, need, spent, branches = 0, excess, 0, 0
    forward = True
    while True:
        branches += 1
        if branches > branches_max:
            return root
        if forward:
            bound, left, i = spent, need, depth
            while left > 0 and i < n and work[i] < left:
                bound += size[i]
                left -= work[i]
                i += 1
            if left > 0 and i < n:
                bound += _part(left, work[i], size[i])
                left = 0
            if left > 0 or bound >= best:
                forward = False
            elif need <= 0:
                best = spent
                forward = False
            else:
                taken[depth] = True
                need -= work[depth]
                spent += size[depth]
                depth += 1
        else:
            while depth > 0 and not taken[depth - 1]:
                depth -= 1
            if depth == 0:
                return best
            taken[depth - 1] = False
            need += work[depth - 1]
            spent -= size[depth - 1]
            forward = True


def by_prices(given: Problem, cap: int, cost: int) -> int:
    """A lower bound by prices on tasks; `cost` is that of a known map."""
    present = [int(node) for node in np.unique(given.route)]
    stays = present if given.allowed is None else [node for node in present if node in set(given.allowed)]
    kinds = len(stays) + 1  # the last stands for all new nodes
    rounds = min(_ROUNDS, _CELLS_MAX // (given.tasks * _UNITS * kinds))
    fresh = given.nodes - len(stays) if given.allowed is not None else given.nodes
    if rounds < 10 or cap == 0:
        return 0
    home = np.full(given.tasks, -1, np.int64)
    for place, node in enumerate(stays):
        home[given.route == node] = place
    bound = _priced(
        home, _in_units(given.work, cap), given.size, len(stays), max(0, fresh), given.nodes, cost, rounds
    )
    return int(np.ceil(bound * (1 - 1e-9) - 1e-6))


def _in_units(work: Ints, cap: int) -> Ints:
    """Work in thousandths of the cap, rounded down; above 53 bits a little further, for the product's sake."""
    if int(work.max()) < (1 << 62) // _UNITS:
        return work * _UNITS // cap
    return np.floor(work / cap * _UNITS * (1 - 1e-12)).astype(np.int64)


@jit
def _priced(
    home: Ints, units: Ints, size: Ints, olds: int, fresh: int, nodes: int, cost: int, rounds: int
) -> float:
    """Raise the prices round by round; return the best bound. New nodes share one knapsack, taken `fresh` times."""
    m = len(home)
    price = size.astype(np.float64) * 0.5
    best, stuck, pace = 0.0, 0, 1.0
    worth = np.zeros(olds + 1)
    chosen = np.zeros((olds + 1, m), np.bool_)
    profit = np.zeros(m)
    for _ in range(rounds):
        for place in range(olds + 1):
            for t in range(m):
                profit[t] = price[t] - (0.0 if home[t] == place else size[t])
            worth[place] = _knapsack(profit, units, chosen[place])
        order = np.argsort(-worth[:olds])
        bound = price.sum()
        times = np.zeros(m)
        used, old, new = 0, 0, 0
        while used < nodes:
            take_new = new < fresh and (old >= olds or worth[olds] > worth[order[old]])
            if not take_new and old >= olds:
                break
            place = olds if take_new else order[old]
            new += take_new
            old += not take_new
            used += 1
            bound -= worth[place]
            times += chosen[place]
        stuck += 1
        if bound > best:
            best, stuck = bound, 0
        if stuck >= 10:
            pace, stuck = pace / 2, 0
        miss = 1.0 - times
        norm = (miss * miss).sum()
        if norm == 0.0 or best >= cost:
            return min(best, float(cost))
        price += pace * (cost - bound) / norm * miss
    return best


@jit
def _knapsack(profit: Floats, units: Ints, chosen: NDArray[np.bool_]) -> float:
    """The most profit of tasks of at most 1,000 units in all; mark the tasks."""
    m = len(profit)
    most = np.zeros(_UNITS + 1)
    took = np.zeros((m, _UNITS + 1), np.bool_)
    for t in range(m):
        if profit[t] <= 0.0:
            continue
        w = units[t]
        for room in range(_UNITS, w - 1, -1):
            value = most[room - w] + profit[t]
            if value > most[room]:
                most[room] = value
                took[t, room] = True
    room = _UNITS
    for t in range(m - 1, -1, -1):
        chosen[t] = took[t, room]
        if took[t, room]:
            room -= units[t]
    return most[_UNITS]
