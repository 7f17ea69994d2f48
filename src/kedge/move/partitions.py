"""All partitions that keep the limits: counting them is cheap, listing them is only for small instances."""

from __future__ import annotations

import numpy as np

from kedge.errors import UsageError
from kedge.move import intervals
from kedge.move.limits import Ints, least_share, share


def cap_and_floor(sums: Ints, nodes: int, tau: float, least: float) -> tuple[int, int]:
    """The limits for `nodes` nodes; where tau is infeasible, the smallest cap that can be kept."""
    total = int(sums[-1])
    cap = max(share(total, nodes, tau), int(intervals.bottleneck(sums, nodes)))
    floor = least_share(total, nodes, least)
    if floor and not intervals.fits(sums, nodes, cap, floor):
        raise UsageError(
            f"No assignment of intervals to {nodes} nodes keeps both limits. Ask for a smaller least, or a larger tau.",
            code="least-infeasible",
        )
    return cap, floor


def count(sums: Ints, nodes: int, cap: int, floor: int) -> int:
    """How many partitions have work in [floor, cap] everywhere: at most `nodes` intervals, all of them if floor."""
    m = len(sums) - 1
    ways = [1] + [0] * m
    total = 0
    for k in range(1, min(nodes, m) + 1 if floor == 0 else nodes + 1):
        after = [0] * (m + 1)
        for b in range(1, m + 1):
            low = int(np.searchsorted(sums, sums[b] - cap))
            high = min(int(np.searchsorted(sums, sums[b] - floor, side="right")), b)
            after[b] = sum(ways[low:high])
        ways = after
        if floor == 0 or k == nodes:
            total += ways[m]
    return total


def listed(sums: Ints, nodes: int, cap: int, floor: int, most: int) -> Ints:
    """Their bounds, one row each, filled up with m on the right; refuses more than `most`."""
    m = len(sums) - 1
    number = count(sums, nodes, cap, floor)
    if number > most:
        raise UsageError(
            f"{number} partitions of {m} tasks over {nodes} nodes keep the limits; at most {most} can be listed. "
            'Leave the choice of the method to "auto".'
        )
    nodes = min(nodes, m)  # a floor that needs more was refused above: no partition keeps it
    front = np.zeros((1, 1), np.int64)
    rows: list[Ints] = []
    for k in range(1, nodes + 1):
        ends = front[:, -1]
        low = np.maximum(np.searchsorted(sums, sums[ends] + floor), ends + 1)
        high = np.searchsorted(sums, sums[ends] + cap, side="right")
        width = np.maximum(high - low, 0)
        parent = np.repeat(np.arange(len(front)), width)
        offset = np.arange(len(parent)) - np.repeat(np.cumsum(width) - width, width)
        front = np.column_stack((front[parent], low[parent] + offset))
        done = front[:, -1] == m
        if floor == 0 or k == nodes:
            pad = np.full((int(done.sum()), nodes - k), m, np.int64)
            rows.append(np.hstack((front[done], pad)))
        front = front[~done & (sums[m] - sums[front[:, -1]] <= cap * (nodes - k))]
    return np.vstack(rows)
