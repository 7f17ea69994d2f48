"""Progressive moves: at most k tasks a step, so that few wait at a time, and every step leaves a load that can run.

A step is a matching of senders and receivers: a node gives at most `ports` tasks and takes at most `ports`. No
plan can have fewer steps than max(ceil(most tasks of one node / ports), ceil(tasks / k)); an equitable edge
colouring of the moves has exactly that many. The order of the steps is free, and so are exchanges between two
steps: both are used to keep every node, after every step, within the limit of the plan or the load that it has
before or after the move. Where that was not reached, more steps are tried; the result says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kedge.errors import UsageError
from kedge.move import page
from kedge.move.colouring import Colouring
from kedge.move.limits import Ints, share
from kedge.move.plans import Plan

Move = tuple[int, int, int]
_EXCHANGES_MAX = 300
_SHUFFLES = 6


@dataclass(frozen=True)
class Steps:
    """Moves (task, from, to) by step. `excess` is the worst load above its limit, as a share of the mean load."""

    steps: tuple[tuple[Move, ...], ...]
    steps_min: int
    excess: float

    @property
    def balanced(self) -> bool:
        """Whether no node is ever above its limit."""
        return self.excess <= 0

    def __iter__(self) -> Iterator[tuple[Move, ...]]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    def routes(self, before: Ints) -> list[Ints]:
        """The route after each step."""
        routes: list[Ints] = []
        route = before
        for step in self.steps:
            route = route.copy()
            for task, _, target in step:
                route[task] = target
            routes.append(route)
        return routes

    def to_json(self) -> dict[str, Any]:
        """The steps as plain values."""
        steps = [[{"task": t, "from": a, "to": b} for t, a, b in step] for step in self.steps]
        return {"steps": steps, "steps_min": self.steps_min, "balanced": self.balanced, "excess": self.excess}

    def _repr_html_(self) -> str:
        return page.of_steps(self)


def progressive(plan: Plan, per_step: int, *, ports: int | None = 1, more: float = 1.5) -> Steps:
    """Cut a plan into steps of at most `per_step` tasks and, per node, `ports` in and out (None: any number).

    The fewest steps possible, unless only more (up to `more` times as many) keep every node within its limit.

    >>> from kedge.move import single
    >>> progressive(single([0] * 8, work=[1] * 8, size=[1] * 8, nodes=2, tau=0.0), 2).steps_min
    4
    """
    if not _is_count(per_step) or not (ports is None or _is_count(ports)):
        raise UsageError("A step has at least one task, and a node at least one port.")
    moves = plan.moves
    if not moves:
        return Steps((), 0, 0.0)
    fewest = -(-len(moves) // per_step)
    if ports is not None:
        for side in (1, 2):
            busiest = int(np.bincount([move[side] for move in moves]).max())
            fewest = max(fewest, -(-busiest // ports))
    best: Steps | None = None
    for count in range(fewest, max(fewest, int(fewest * more)) + 1):
        for again in range(_SHUFFLES):
            found = _ordered(plan, _shuffled(moves, again), count, per_step, fewest)
            if best is None or found.excess < best.excess:
                best = found
            if best.balanced:
                return best
    assert best is not None
    return best


def _is_count(value: Any) -> bool:
    return isinstance(value, int | np.integer) and bool(value >= 1)


def _shuffled(moves: list[Move], again: int) -> list[Move]:
    """The moves in another order: another colouring comes of it."""
    if again == 0:
        return moves
    return [moves[i] for i in np.random.default_rng(again).permutation(len(moves))]


def _ordered(plan: Plan, moves: list[Move], count: int, per_step: int, fewest: int) -> Steps:
    colouring = Colouring(_split(moves, count), count)
    colouring.even_out()
    loads = _Loads(plan, moves)
    order = loads.order(np.array(colouring.colour), count)
    place = np.empty(count, np.int64)
    place[order] = np.arange(count)
    _exchanged(colouring, loads, place, per_step)
    step_of = place[np.array(colouring.colour)]
    steps = tuple(tuple(sorted(moves[i] for i in np.flatnonzero(step_of == s))) for s in range(count))
    return Steps(
        tuple(step for step in steps if step), fewest, max(0.0, loads.excess(step_of, count)[0] / loads.mean)
    )


def _split(moves: list[Move], count: int) -> list[tuple[int, int]]:
    """Each node as often as its ports need: every copy has at most `count` tasks to give or take."""
    edges: list[list[int]] = [[], []]
    for side in (1, 2):
        copies: dict[tuple[int, int], int] = {}
        given: dict[int, int] = {}
        for move in moves:
            node = move[side]
            copy = given.get(node, 0) // count
            given[node] = given.get(node, 0) + 1
            edges[side - 1].append(copies.setdefault((node, copy), len(copies)))
    return list(zip(edges[0], edges[1], strict=True))


class _Loads:
    """Work of every node after every step, and how far it is above what the node may have."""

    def __init__(self, plan: Plan, moves: list[Move]) -> None:
        nodes = sorted({*plan.nodes, *(int(n) for n in np.unique(plan.before))})
        number = {node: i for i, node in enumerate(nodes)}
        self.before = np.zeros(len(nodes), np.int64)
        after = np.zeros(len(nodes), np.int64)
        for task, (a, b) in enumerate(zip(plan.before, plan.after, strict=True)):
            self.before[number[int(a)]] += plan.work[task]
            after[number[int(b)]] += plan.work[task]
        total = int(plan.work.sum())
        self.limit = np.maximum(np.maximum(self.before, after), share(total, len(plan.nodes), plan.tau_effective))
        self.mean = max(1.0, total / len(plan.nodes))
        self.source = np.array([number[a] for _, a, _ in moves])
        self.target = np.array([number[b] for _, _, b in moves])
        self.work = plan.work[[task for task, _, _ in moves]]

    def changes(self, step_of: NDArray[np.int64], count: int) -> Ints:
        """change[s, node] of step s."""
        change = np.zeros((count, len(self.before)), np.int64)
        np.add.at(change, (step_of, self.source), -self.work)
        np.add.at(change, (step_of, self.target), self.work)
        return change

    def order(self, colour: NDArray[np.int64], count: int) -> list[int]:
        """Greedy: always the step that leaves the least load above limits, then the least load on the fullest."""
        change = self.changes(colour, count)
        left = list(range(count))
        order: list[int] = []
        load = self.before.copy()
        while left:
            over = load[None, :] + change[left] - self.limit[None, :]
            worst = np.maximum(over, 0).sum(axis=1) + over.max(axis=1) / (1 + abs(self.limit.max()))
            chosen = left.pop(int(np.argmin(worst)))
            load = load + change[chosen]
            order.append(chosen)
        return order

    def excess(self, step_of: NDArray[np.int64], count: int) -> tuple[int, int, int, int]:
        """The worst load above its limit, the sum of all such, and where the worst is (step, node)."""
        over = self.before + np.cumsum(self.changes(step_of, count), axis=0) - self.limit
        step, node = np.unravel_index(int(np.argmax(over)), over.shape)
        return int(over[step, node]), int(np.maximum(over, 0).sum()), int(step), int(node)


def _exchanged(colouring: Colouring, loads: _Loads, place: NDArray[np.int64], per_step: int) -> None:
    """Exchange tasks between two steps while that takes load off the worst node at its worst step."""
    count = len(place)
    tried = 0
    now = loads.excess(place[np.array(colouring.colour)], count)
    while now[0] > 0 and tried < _EXCHANGES_MAX:
        step_of = place[np.array(colouring.colour)]
        early = np.flatnonzero((loads.target == now[3]) & (step_of <= now[2]))
        late = np.flatnonzero((loads.source == now[3]) & (step_of > now[2]))
        options = [(int(e), c) for e in early for c in range(count) if place[c] > now[2]]
        options += [(int(e), c) for e in late for c in range(count) if place[c] <= now[2]]
        better = False
        for edge, other in options:
            tried += 1
            own = colouring.colour[edge]
            chain = colouring.component(edge, other)
            colouring.exchange(chain, own, other)
            then = loads.excess(place[np.array(colouring.colour)], count)
            if max(colouring.sizes) <= per_step and then[:2] < now[:2]:
                now, better = then, True
                break
            colouring.exchange(chain, own, other)
            if tried >= _EXCHANGES_MAX:
                break
        if not better:
            return
