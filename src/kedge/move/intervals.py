"""Routes whose nodes each hold one interval of tasks: cutting, feasibility, and what two partitions have in common.

A partition is its bounds: 0 = b[0] <= b[1] <= ... <= b[n] = m. Two partitions overlap along a staircase, so the
best matching of their intervals is a walk of at most n + n' steps and needs no general matching algorithm.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kedge.errors import UsageError
from kedge.jit import jit
from kedge.move.limits import Ints


def runs(route: Ints) -> tuple[Ints, Ints]:
    """The bounds and the owners of a route of intervals; a node with two intervals is refused."""
    cuts = np.flatnonzero(np.diff(route)) + 1
    bounds = np.concatenate((np.zeros(1, np.int64), cuts, np.array([len(route)], np.int64)))
    owners = route[bounds[:-1]]
    if len(np.unique(owners)) != len(owners):
        names, times = np.unique(owners, return_counts=True)
        twice = int(names[times > 1][0])
        raise UsageError(
            f"Node {twice} has more than one interval of tasks, so the interval planners do not apply. "
            'Use assign="any".'
        )
    return bounds, owners


def prefix(values: Ints) -> Ints:
    """Sums of all beginnings: prefix[b] - prefix[a] is the sum of [a, b)."""
    sums = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=sums[1:])
    return sums


@jit
def furthest(sums: Ints, nodes: int, cap: int, reach: Ints) -> bool:
    """Fill reach[k] with the furthest end that k intervals of at most `cap` cover; whether `nodes` reach all."""
    m = len(sums) - 1
    reach[0] = 0
    for k in range(nodes):
        reach[k + 1] = np.searchsorted(sums, sums[reach[k]] + cap, side="right") - 1
    return reach[nodes] == m


def band(sums: Ints, nodes: int, cap: int) -> Ints:
    """band[k]: the first and last end that k intervals may have if `nodes` are to cover all tasks; k <= tasks."""
    m = len(sums) - 1
    nodes = min(nodes, m)
    reach = np.zeros(nodes + 1, np.int64)
    back = np.zeros(nodes + 1, np.int64)
    furthest(sums, nodes, cap, reach)
    furthest(sums[-1] - sums[::-1], nodes, cap, back)
    ends = np.empty((nodes + 1, 2), np.int64)
    ends[:, 0] = np.maximum(m - back[::-1], np.arange(nodes + 1))
    ends[:, 1] = reach
    ends[0] = 0
    return ends


@jit
def bottleneck(sums: Ints, nodes: int) -> Any:
    """The smallest cap under which `nodes` intervals cover all tasks."""
    m = len(sums) - 1
    nodes = min(nodes, m)
    low = sums[m] // nodes
    high = sums[m]
    for j in range(m):
        low = max(low, sums[j + 1] - sums[j])
    while low < high:
        cap = (low + high) // 2
        end = 0
        for _ in range(nodes):
            end = np.searchsorted(sums, sums[end] + cap, side="right") - 1
        if end == m:
            high = cap
        else:
            low = cap + 1
    return high


@jit
def fits(sums: Ints, nodes: int, cap: int, floor: int) -> bool:
    """Whether exactly `nodes` non-empty intervals can have work in [floor, cap] each."""
    m = len(sums) - 1
    if nodes > m:
        return False
    now = np.zeros(m + 1, np.bool_)
    now[0] = True
    for _ in range(nodes):
        after = np.zeros(m + 1, np.bool_)
        low, high, open_ends = 0, 0, 0
        for b in range(1, m + 1):
            while high < b and sums[b] - sums[high] >= floor:
                open_ends += now[high]
                high += 1
            while sums[b] - sums[low] > cap:
                if low < high:
                    open_ends -= now[low]
                low += 1
                high = max(high, low)
            after[b] = open_ends > 0
        now = after
    return bool(now[m])


@jit
def kept(sums: Ints, old: Ints, new: Ints) -> Any:
    """The most weight that stays in place when partition `old` becomes `new`: a matching along the staircase."""
    i, j = 0, 0
    never = np.int64(-(1 << 62))
    # best by (is old interval i matched, is new interval j matched)
    none, only_old, only_new, both = np.int64(0), never, never, never
    while i < len(old) - 1 and j < len(new) - 1:
        low = max(old[i], new[j])
        high = min(old[i + 1], new[j + 1])
        if high > low:
            both = max(both, none + sums[high] - sums[low])
        ends_old = old[i + 1] <= new[j + 1]
        ends_new = new[j + 1] <= old[i + 1]
        if ends_old:
            i += 1
            none, only_new = max(none, only_old), max(only_new, both)
            only_old, both = never, never
        if ends_new:
            j += 1
            none, only_old = max(none, only_new), max(only_old, both)
            only_new, both = never, never
    return max(max(none, only_old), max(only_new, both))


def route_of(bounds: Ints, owners: Ints) -> NDArray[np.int64]:
    """The route that gives interval i to owners[i]."""
    return np.repeat(owners, np.diff(bounds))


@jit
def cost_rows(sums: Ints, olds: Ints, news: Ints, out: NDArray[np.float32]) -> None:
    """out[i, j]: the share of all weight that moves from partition olds[i] to news[j]."""
    total = max(1, sums[-1])
    for i in range(len(olds)):
        for j in range(len(news)):
            out[i, j] = 1.0 - kept(sums, olds[i], news[j]) / total


@jit
def moved_rows(sums: Ints, old: Ints, news: Ints, out: Ints) -> None:
    """out[j]: the weight that moves from partition `old` to news[j]."""
    for j in range(len(news)):
        out[j] = sums[-1] - kept(sums, old, news[j])


@jit
def matching(sums: Ints, old: Ints, new: Ints) -> Ints:
    """The old interval that each new one keeps (-1: none) in the best matching."""
    cells = len(old) + len(new)
    never = np.int64(-(1 << 62))
    best = np.full((cells, 4), never, np.int64)
    came = np.zeros((cells, 4), np.int64)
    olds, news = np.zeros(cells, np.int64), np.zeros(cells, np.int64)
    i, j, c = 0, 0, 0
    best[0, 0] = 0
    while True:
        olds[c], news[c] = i, j
        low, high = max(old[i], new[j]), min(old[i + 1], new[j + 1])
        # states are old matched * 2 + new matched; +4 in `came` means that the pair (i, j) was matched here
        if high > low and best[c, 0] != never and best[c, 0] + sums[high] - sums[low] > best[c, 3]:
            best[c, 3] = best[c, 0] + sums[high] - sums[low]
            came[c, 3] = came[c, 0] + 4
        ends_old, ends_new = old[i + 1] <= new[j + 1], new[j + 1] <= old[i + 1]
        i += ends_old
        j += ends_new
        if i == len(old) - 1 or j == len(new) - 1:
            break
        for state in range(4):
            value = best[c, state]
            if value != never:
                after = (state & 2) * (not ends_old) + (state & 1) * (not ends_new)
                if value > best[c + 1, after]:
                    best[c + 1, after] = value
                    came[c + 1, after] = state
        c += 1
    match = np.full(len(new) - 1, -1, np.int64)
    state = np.argmax(best[c])
    while c >= 0:
        step = came[c, state]
        if step >= 4:
            match[news[c]] = olds[c]
        state = step & 3
        c -= 1
    return match
