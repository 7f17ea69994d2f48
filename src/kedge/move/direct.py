"""The programme that looks both ways: intervals near the route before, near a route after, and cheap.

It maximises (kept from `before`) + (kept into `after`) - (the sum of a price for each interval), over all
partitions whose intervals have work within the windows. With a price alone beside `before` it chooses one move in
view of the future (learn.py); with a route after it improves one step of a known sequence (sequences.py).

The same states as in ssm.py, once for each side: (old node straddling b matched?) x (next node straddling b
matched?) x intervals used. Prices are arbitrary, so every pair (a, b) is looked at: O(n' m window), the innermost
loop running over the number of intervals. `rollout` stands here because a kernel's helpers share its file.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kedge.jit import jit
from kedge.move.limits import Ints

Floats = NDArray[np.float64]

NEVER = -1e300


@jit
def _gains(kept: Floats, old: Ints, a: int, b: int, run: int, inner: Any, gains: Floats) -> None:
    """gains[was, now]: the best that [a, b) keeps, by whether the node straddling a was, and b is then, matched.

    `run` is the old interval with old[run] < b <= old[run + 1]; `inner` the best one that lies wholly in [a, b).
    """
    start, end = old[run], old[run + 1]
    gains[:] = NEVER
    if a >= start:
        if b == end:
            gains[0, 0] = kept[b] - kept[a]
            gains[1, 0] = 0.0
        else:
            gains[0, 0] = 0.0
            gains[0, 1] = kept[b] - kept[a]
            gains[1, 1] = 0.0
        return
    left = np.searchsorted(old, a, side="right")
    free = max(0.0, inner)
    gains[1, 0] = free
    gains[0, 0] = max(free, kept[old[left]] - kept[a])
    if b == end:
        whole = kept[b] - kept[start]
        gains[0, 0] = max(gains[0, 0], whole)
        gains[1, 0] = max(gains[1, 0], whole)
    else:
        gains[0, 1] = kept[b] - kept[start]
        gains[1, 1] = gains[0, 1]


@jit
def best_bounds(
    kept: Floats,
    old: Ints,
    kept_next: Floats,
    new: Ints,
    first: Ints,
    last: Ints,
    price: Floats,
    at: Ints,
    band: Ints,
) -> tuple[Ints, float, float]:
    """The bounds of the best partition, what it keeps from before and into after, and its price.

    price[at[b] + a] prices [a, b); band[k] are the ends that k intervals may have, its length the most intervals
    plus one. Without a next partition `kept_next` is empty. An empty result means that no partition fits.
    """
    m = len(kept) - 1
    most = len(band) - 1
    two = len(kept_next) > 0
    states = 4 if two else 3
    alive = np.zeros((m + 1, 4), np.bool_)
    alive[0, 0] = True
    value = np.full((m + 1, 4, most + 1), NEVER, np.float64)
    choice = np.full((m + 1, 4, most + 1), -1, np.int32)
    value[0, 0, 0] = 0.0
    gain = np.empty((2, 2), np.float64)
    gain_next = np.full((2, 2), NEVER, np.float64)
    gain_next[0, 0] = 0.0
    run, run_next, low_k, high_k = 0, 0, 0, 0
    for b in range(1, m + 1):
        while old[run + 1] < b:
            run += 1
        while two and new[run_next + 1] < b:
            run_next += 1
        while high_k < most and band[high_k + 1, 0] <= b:
            high_k += 1
        while low_k <= most and band[low_k, 1] < b:
            low_k += 1
        inner, inner_next = 0.0, 0.0
        at_run, at_next = run, run_next
        if old[run + 1] > b:
            at_run -= 1
        if two and new[run_next + 1] > b:
            at_next -= 1
        for a in range(b - 1, first[b] - 1, -1):
            while at_run >= 0 and old[at_run] >= a:
                inner = max(inner, kept[old[at_run + 1]] - kept[old[at_run]])
                at_run -= 1
            while two and at_next >= 0 and new[at_next] >= a:
                inner_next = max(inner_next, kept_next[new[at_next + 1]] - kept_next[new[at_next]])
                at_next -= 1
            if a > last[b]:
                continue
            _gains(kept, old, a, b, run, inner, gain)
            if two:
                _gains(kept_next, new, a, b, run_next, inner_next, gain_next)
            cost = price[at[b] + a]
            for now in range(states):
                for was in range(states):
                    if not alive[a, was]:
                        continue
                    left, right = gain[was >> 1, now >> 1], gain_next[was & 1, now & 1]
                    if left == NEVER or right == NEVER:
                        continue
                    step = left + right - cost
                    alive[b, now] = True
                    for k in range(max(low_k, 1), high_k + 1):
                        total = value[a, was, k - 1] + step
                        if total > value[b, now, k]:
                            value[b, now, k] = total
                            choice[b, now, k] = a * 4 + was
    count = int(np.argmax(value[m, 0]))
    if value[m, 0, count] <= NEVER / 2:
        return np.zeros(0, np.int64), 0.0, 0.0
    bounds = np.zeros(count + 1, np.int64)
    bounds[count] = m
    state, b, paid = 0, m, 0.0
    for k in range(count, 0, -1):
        back = choice[b, state, k]
        a = back >> 2
        paid += price[at[b] + a]
        state = back & 3
        b = a
        bounds[k - 1] = b
    return bounds, float(value[m, 0, count] + paid), float(paid)


@jit
def rollout(
    kept: Floats,
    start: Ints,
    path: Ints,
    lowest: int,
    first: Ints,
    last: Ints,
    bands: Ints,
    prices: Floats,
    at: Ints,
    costs: Floats,
) -> Ints:
    """Follow the policy of `prices` along the node counts in `path`; fill costs[t]; return the last partition.

    Tables of each node count n stand at row n - lowest; kept[-1] is all state.
    """
    m = len(kept) - 1
    nothing = np.zeros(0, np.float64)
    nowhere = np.zeros(0, np.int64)
    now = start
    for t in range(len(path)):
        row = path[t] - lowest
        band = bands[row, : path[t] + 1]
        bounds, stays, _ = best_bounds(kept, now, nothing, nowhere, first[row], last[row], prices[row], at, band)
        costs[t] = kept[m] - stays
        now = bounds
    return now
