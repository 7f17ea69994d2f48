"""What a planner returns: the route before and after, its cost, and what is known about the optimum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kedge.move.limits import Ints, Problem, tau_of


@dataclass(frozen=True)
class Plan:
    """A change of route.

    `cost_bytes` moves; no assignment of the same kind and limits can move less than `bound_bytes`. The limit that
    was kept is `tau_effective`: the one asked for, or, where no assignment meets that, the smallest that can be
    met by this kind of assignment (for arbitrary maps: the smallest that was found).
    """

    before: Ints
    after: Ints
    work: Ints
    size: Ints
    nodes: tuple[int, ...]
    planner: str
    cost_bytes: int
    bound_bytes: int
    tau: float
    tau_effective: float
    work_scale: float = 1.0

    @property
    def exact(self) -> bool:
        """Whether the cost is proven to be the smallest."""
        return self.cost_bytes == self.bound_bytes

    @property
    def widened(self) -> bool:
        """Whether the threshold asked for could not be met."""
        return self.tau_effective > self.tau

    @property
    def moves(self) -> list[tuple[int, int, int]]:
        """(task, from node, to node) of every task that moves, by task."""
        tasks = np.flatnonzero(self.before != self.after)
        return [(int(t), int(self.before[t]), int(self.after[t])) for t in tasks]

    @property
    def share_moved(self) -> float:
        """The cost as a share of all state."""
        total = int(self.size.sum())
        return self.cost_bytes / total if total else 0.0

    @property
    def tau_reached(self) -> float:
        """How far the most loaded node really is above the mean."""
        return tau_of(max(self.loads().values()), int(self.work.sum()), len(self.nodes))

    def loads(self) -> dict[int, int]:
        """Work per node after the move, idle nodes too (in planning units: work * work_scale)."""
        sums = np.zeros(max(int(self.after.max()), *self.nodes, 0) + 1, np.int64)
        np.add.at(sums, self.after, self.work)
        return {node: int(sums[node]) for node in self.nodes}

    def flows(self) -> dict[tuple[int, int], int]:
        """Bytes from node to node."""
        flows: dict[tuple[int, int], int] = {}
        for task, source, target in self.moves:
            flows[source, target] = flows.get((source, target), 0) + int(self.size[task])
        return flows

    def to_json(self) -> dict[str, Any]:
        """The plan as plain values."""
        return {
            "planner": self.planner,
            "route": [int(node) for node in self.after],
            "nodes": list(self.nodes),
            "cost_bytes": self.cost_bytes,
            "bound_bytes": self.bound_bytes,
            "exact": self.exact,
            "share_moved": self.share_moved,
            "tau": self.tau,
            "tau_effective": self.tau_effective,
            "tau_reached": self.tau_reached,
            "moves": [{"task": t, "from": a, "to": b, "bytes": int(self.size[t])} for t, a, b in self.moves],
        }


def moved_bytes(before: Ints, after: Ints, size: Ints) -> int:
    """The bytes of the tasks whose node changes."""
    return int(size[before != after].sum())


def finish(
    given: Problem, after: Ints, nodes: tuple[int, ...], planner: str, tau: tuple[float, float], bound: int | None
) -> Plan:
    """Make the plan of a route that was found; without a bound the cost itself is one (an exact planner)."""
    cost = moved_bytes(given.route, after, given.size)
    known = cost if bound is None else bound
    return Plan(
        given.route, after, given.work, given.size, nodes, planner, cost, known, tau[0], tau[1], given.work_scale
    )
