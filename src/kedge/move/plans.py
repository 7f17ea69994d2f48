"""What a planner returns: the route before and after, its cost, and what is known about the optimum."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kedge.move import page
from kedge.move.limits import Ints, Problem, as_float, tau_of


@dataclass(frozen=True)
class Plan:
    """A change of route; it unpacks into the new assignment and its cost.

    `work` is in planning units (work * work_scale, whole numbers); `loads()` is in the caller's.
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

    def __iter__(self) -> Iterator[Any]:
        return iter((self.after, self.cost_bytes))

    @property
    def assignment(self) -> Ints:
        """The route after the move: task -> node."""
        return self.after

    @property
    def cost(self) -> int:
        """The bytes that move."""
        return self.cost_bytes

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
        return tau_of(max(self._whole(self.after).values()), int(self.work.sum()), len(self.nodes))

    def loads(self) -> Mapping[int, float]:
        """Work per node after the move, idle nodes too."""
        return self._given(self._whole(self.after))

    def loads_before(self) -> Mapping[int, float]:
        """Work per node before the move, of the nodes that serve before or after it."""
        return self._given(self._whole(self.before))

    def _given(self, loads: Mapping[int, int]) -> Mapping[int, float]:
        """Loads in the unit of the caller's work."""
        return loads if self.work_scale == 1.0 else {node: load / self.work_scale for node, load in loads.items()}

    def _whole(self, route: Ints) -> dict[int, int]:
        owners, place = np.unique(route, return_inverse=True)
        sums = np.zeros(len(owners), np.int64)
        np.add.at(sums, place, self.work)
        loads = dict.fromkeys(sorted({*self.nodes, *(int(n) for n in owners)}), 0)
        loads.update({int(node): int(load) for node, load in zip(owners, sums, strict=True)})
        return loads

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
            "before": [int(node) for node in self.before],
            "route": [int(node) for node in self.after],
            "nodes": list(self.nodes),
            "cost_bytes": self.cost_bytes,
            "bound_bytes": self.bound_bytes,
            "exact": self.exact,
            "share_moved": self.share_moved,
            "tau": self.tau,
            "tau_effective": self.tau_effective,
            "tau_reached": self.tau_reached,
            "widened": self.widened,
            "loads": {str(node): load for node, load in self.loads().items()},
            "moves": [{"task": t, "from": a, "to": b, "bytes": int(self.size[t])} for t, a, b in self.moves],
        }

    def _repr_html_(self) -> str:
        return page.of_plan(self)


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
        given.route,
        after,
        given.work,
        given.size,
        nodes,
        planner,
        cost,
        known,
        as_float(tau[0]),
        as_float(tau[1]),
        given.work_scale,
    )
