"""SSM: the assignment of intervals that moves the least, exactly (the paper's section 4.3, in a corrected form).

The printed Figure 7 is not optimal (docs/move.md names its three faults). This is a forward dynamic programme over
prefixes. A state is (k intervals used, end b, is the old node that straddles b already matched) and its value the
most weight that the first b tasks keep in place. Old and new intervals overlap along a staircase, so an interval
[a, b) is matched with the node that straddles a, one that lies wholly inside, the node that straddles b, or none.

Every maximum over a is one over a sliding window, kept in a monotone queue: O(n' (m + the old intervals that lie
wholly inside windows)). Values alone are stored; `trace` finds the choices again from exact equality.

It does not look beyond one move (direct.py does), and it makes no arbitrary maps (anymap.py does).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kedge.jit import jit
from kedge.move.limits import Ints

NEVER = -(1 << 62)


@jit
def windows(sums: Ints, cap: int, floor: int) -> tuple[Ints, Ints]:
    """For each end b the first and last start a < b with floor <= work of [a, b) <= cap; last < first if none."""
    m = len(sums) - 1
    first = np.zeros(m + 1, np.int64)
    last = np.zeros(m + 1, np.int64)
    low, high = 0, -1
    for b in range(1, m + 1):
        while low < b and sums[b] - sums[low] > cap:
            low += 1
        while high + 1 < b and sums[b] - sums[high + 1] >= floor:
            high += 1
        first[b] = low
        last[b] = high
    return first, last


@jit
def _push(queue: Ints, values: Ints, ends: Ints, row: int, index: int, value: Any) -> None:
    tail = ends[row, 1]
    while tail > ends[row, 0] and values[row, tail - 1] <= value:
        tail -= 1
    queue[row, tail] = index
    values[row, tail] = value
    ends[row, 1] = tail + 1


@jit
def _top(queue: Ints, values: Ints, ends: Ints, row: int, low: int) -> int:
    head = ends[row, 0]
    while head < ends[row, 1] and queue[row, head] < low:
        head += 1
    ends[row, 0] = head
    if head < ends[row, 1]:
        return values[row, head]
    return NEVER


@jit
def _whole(
    best: Ints, old: Ints, kept: Ints, first: Ints, last: Ints, lows: tuple[int, int], out: Ints, q: Ints
) -> None:
    """out[b]: the best at b if its last interval is matched with an old node that lies wholly inside it."""
    low_b, high_b = lows
    values = np.empty_like(q)
    for b in range(low_b, high_b + 1):
        out[b] = NEVER
    for i in range(len(old) - 1):
        start, end = old[i], old[i + 1]
        head, tail, a = 0, 0, first[end]
        b = max(end, low_b)
        if b <= high_b:
            a = max(a, first[b])
        gain = kept[end] - kept[start]
        while b <= high_b and first[b] <= start:
            while a <= min(start, last[b]):
                if best[a] != NEVER:
                    while tail > head and values[tail - 1] <= best[a]:
                        tail -= 1
                    q[tail] = a
                    values[tail] = best[a]
                    tail += 1
                a += 1
            while head < tail and q[head] < first[b]:
                head += 1
            if head < tail:
                out[b] = max(out[b], values[head] + gain)
            b += 1


@jit
def layers(kept: Ints, old: Ints, first: Ints, last: Ints, band: Ints) -> tuple[Ints, Ints]:
    """The values free[k, b] (straddling node not matched yet) and used[k, b] (matched) for k intervals.

    `kept` are prefix sums of weights, `old` the bounds of the current intervals, and band[k] the ends that k
    intervals can have in an assignment of all tasks; its length is the most intervals plus one.
    """
    m = len(kept) - 1
    nodes = len(band) - 1
    free = np.full((nodes + 1, m + 1), NEVER, np.int64)
    used = np.full((nodes + 1, m + 1), NEVER, np.int64)
    free[0, 0] = 0
    end_of = np.empty(m + 1, np.int64)
    for i in range(len(old) - 1):
        end_of[old[i] : old[i + 1]] = old[i + 1]
    end_of[m] = m
    best = np.full(m + 1, NEVER, np.int64)
    whole = np.empty(m + 1, np.int64)
    queue = np.empty((5, m + 1), np.int64)
    values = np.empty((5, m + 1), np.int64)
    scratch = np.empty(m + 1, np.int64)
    ends = np.zeros((5, 2), np.int64)
    for k in range(nodes):
        low_a, high_a = band[k, 0], band[k, 1]
        low_b, high_b = band[k + 1, 0], band[k + 1, 1]
        was_free, was_used = free[k], used[k]
        for a in range(low_a, high_a + 1):
            best[a] = max(was_free[a], was_used[a])
        _whole(best, old, kept, first, last, (low_b, high_b), whole, scratch)
        ends[:] = 0
        before = low_a
        run = 0
        start, end, inside = 0, 0, 0
        for b in range(low_b, high_b + 1):
            if b > end:
                while old[run + 1] < b:
                    run += 1
                start, end = old[run], old[run + 1]
                ends[2:] = 0
                inside = max(start, low_a)
            top = min(last[b], high_a)
            while before < start and before <= top:
                if best[before] != NEVER:
                    _push(queue, values, ends, 0, before, best[before])
                    if was_free[before] != NEVER:
                        gain = kept[end_of[before]] - kept[before]
                        _push(queue, values, ends, 1, before, was_free[before] + gain)
                before += 1
            while inside <= top:
                if was_free[inside] != NEVER:
                    _push(queue, values, ends, 2, inside, was_free[inside] - kept[inside])
                    _push(queue, values, ends, 3, inside, was_free[inside])
                if was_used[inside] != NEVER:
                    _push(queue, values, ends, 4, inside, was_used[inside])
                inside += 1
            low = first[b]
            outside = _top(queue, values, ends, 0, low)
            left = _top(queue, values, ends, 1, low)
            own = _top(queue, values, ends, 2, low)
            spare = _top(queue, values, ends, 3, low)
            taken = _top(queue, values, ends, 4, low)
            to_used = taken
            if own != NEVER:
                to_used = max(to_used, own + kept[b])
            if outside != NEVER:
                to_used = max(to_used, outside + kept[b] - kept[start])
            to_free = max(max(spare, outside), max(left, whole[b]))
            if b == end:
                free[k + 1, b] = max(to_free, to_used)
            else:
                free[k + 1, b] = to_free
                used[k + 1, b] = to_used
        for a in range(low_a, high_a + 1):
            best[a] = NEVER
    return free, used


@jit
def trace(
    free: Ints, used: Ints, kept: Ints, sums: Ints, old: Ints, first: Ints, last: Ints, count: int
) -> tuple[Ints, Ints]:
    """The bounds of `count` new intervals and the old interval each is matched with (-1: none).

    Among equal values it takes the cut that brings the last interval nearest to its equal share of the work, then
    the leftmost cut, then a match before none, then the leftmost old interval.
    """
    bounds = np.zeros(count + 1, np.int64)
    match = np.full(count, -1, np.int64)
    b = len(kept) - 1
    state = 0
    bounds[count] = b
    for k in range(count, 0, -1):
        want = used[k, b] if state == 1 else free[k, b]
        y = np.searchsorted(old, b, side="left") - 1
        start, end = old[y], old[y + 1]
        found_far, found_a, found_state, found_match = -1.0, -1, 0, -1
        for a in range(first[b], last[b] + 1):
            far = abs(float(sums[b] - sums[a]) - float(sums[b]) / k)
            if found_a >= 0 and far >= found_far:
                continue
            for was in range(2):
                value = used[k - 1, a] if was == 1 else free[k - 1, a]
                if value == NEVER:
                    continue
                hit = False
                who = -1
                if a >= start:
                    if was == 0 and (state == 1 or b == end):
                        hit = value + kept[b] - kept[a] == want
                        who = y
                    if not hit and (was == state or b == end):
                        hit = value == want
                        who = -1
                else:
                    x = np.searchsorted(old, a, side="right") - 1
                    if state == 1 or b == end:
                        hit = value + kept[b] - kept[start] == want
                        who = y
                    if not hit and state == 0:
                        if was == 0:
                            hit = value + kept[old[x + 1]] - kept[a] == want
                            who = x
                        i = x if old[x] == a else x + 1
                        while not hit and old[i + 1] <= b:
                            hit = value + kept[old[i + 1]] - kept[old[i]] == want
                            who = i
                            i += 1
                            if i == len(old) - 1:
                                break
                        if not hit:
                            hit = value == want
                            who = -1
                if hit:
                    found_far, found_a, found_state, found_match = far, a, was, who
                    break
        b = found_a
        state = found_state
        bounds[k - 1] = b
        match[k - 1] = found_match
    return bounds, match
