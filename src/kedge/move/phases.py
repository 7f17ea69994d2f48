"""Phases of transfer that keep the busiest link busy all the time, so that the last byte arrives early.

Each node has one uplink and one downlink of equal speed. No schedule is shorter than the most bytes that any one
link has to carry; preemptive open shop reaches that bound exactly. The demand is padded until every link carries
as much as the busiest, and such a matrix is a sum of matchings (Birkhoff, von Neumann): each matching is a phase
in which every node sends to at most one node and receives from at most one. A task's state may be split between
phases.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kedge.jit import jit
from kedge.move import page
from kedge.move.limits import Ints
from kedge.move.plans import Plan


@dataclass(frozen=True)
class Phase:
    """For as long as `length_bytes` take on one link, each pair (from, to) transfers up to that much."""

    length_bytes: int
    pairs: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Transfer:
    """The phases of a move, and `bound_bytes`, which is both the length of the schedule and the least possible."""

    phases: tuple[Phase, ...]
    bound_bytes: int
    total_bytes: int

    def seconds(self, bytes_per_second: float) -> float:
        """How long the whole transfer takes on links of this speed."""
        return self.bound_bytes / bytes_per_second

    def to_json(self) -> dict[str, Any]:
        """The schedule as plain values."""
        rows = [
            {"length_bytes": p.length_bytes, "pairs": [{"from": a, "to": b, "bytes": n} for a, b, n in p.pairs]}
            for p in self.phases
        ]
        return {"bound_bytes": self.bound_bytes, "total_bytes": self.total_bytes, "phases": rows}

    def _repr_html_(self) -> str:
        return page.of_transfer(self)


def transfer(plan: Plan) -> Transfer:
    """Schedule the bytes of a plan.

    >>> from kedge.move import single
    >>> transfer(single([0, 0, 1, 1], work=[1] * 4, size=[8] * 4, nodes=[2, 3], tau=0.0)).bound_bytes
    16
    """
    flows = plan.flows()
    nodes = sorted({node for pair in flows for node in pair})
    number = {node: i for i, node in enumerate(nodes)}
    demand = np.zeros((len(nodes), len(nodes)), np.int64)
    for (source, target), size in flows.items():
        demand[number[source], number[target]] = size
    total = int(demand.sum())
    if total == 0:
        return Transfer((), 0, 0)
    busiest = int(max(demand.sum(axis=0).max(), demand.sum(axis=1).max()))
    padded = np.block(
        [
            [demand, np.diag(busiest - demand.sum(axis=1))],
            [np.diag(busiest - demand.sum(axis=0)), demand.T],
        ]
    ).astype(np.int64)
    phases: list[Phase] = []
    n = len(nodes)
    match = np.full(2 * n, -1, np.int64)
    while busiest - sum(phase.length_bytes for phase in phases) > 0:
        length = int(_matched(padded, match))
        pairs: list[tuple[int, int, int]] = []
        for i in range(n):
            if match[i] < n:
                pairs.append((nodes[i], nodes[int(match[i])], length))
        padded[np.arange(2 * n), match] -= length
        phases.append(Phase(length, tuple(pairs)))
    return Transfer(tuple(phases), busiest, total)


@jit
def _matched(weights: Ints, match: Ints) -> int:
    """Fill match[row] with a perfect matching whose smallest entry is as large as can be; return that entry.

    Rows and columns of `weights` all have one sum, so a perfect matching of positive entries exists.
    """
    n = len(weights)
    levels = np.unique(weights.ravel())
    low, high = 0, len(levels) - 1
    while levels[low] <= 0:
        low += 1
    best = np.full(n, -1, np.int64)
    while low <= high:
        middle = (low + high) // 2
        column = _perfect(weights, levels[middle])
        if len(column) > 0:
            for j in range(n):
                best[column[j]] = j
            low = middle + 1
        else:
            high = middle - 1
    smallest = weights[0, best[0]]
    for i in range(n):
        match[i] = best[i]
        smallest = min(smallest, weights[i, best[i]])
    return smallest


@jit
def _perfect(weights: Ints, least: int) -> Ints:
    """owner[column] of a perfect matching over entries of at least `least`; empty if there is none."""
    n = len(weights)
    owner = np.full(n, -1, np.int64)
    came = np.empty(n, np.int64)
    row_of = np.empty(n, np.int64)
    queue = np.empty(n, np.int64)
    for root in range(n):
        seen = np.zeros(n, np.bool_)
        queue[0] = root
        head, tail, final = 0, 1, -1
        back = np.full(n, -1, np.int64)
        while head < tail and final < 0:
            i = queue[head]
            head += 1
            for j in range(n):
                if weights[i, j] >= least and not seen[j]:
                    seen[j] = True
                    row_of[j] = i
                    came[j] = back[i]
                    if owner[j] < 0:
                        final = j
                        break
                    back[owner[j]] = j
                    queue[tail] = owner[j]
                    tail += 1
        if final < 0:
            return np.empty(0, np.int64)
        j = final
        while j >= 0:
            owner[j] = row_of[j]
            j = came[j]
    return owner
