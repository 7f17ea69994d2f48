"""Runs of consecutive migrations for the benchmark: one policy, one path of node counts, one load after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from kedge import move
from kedge.bench import _move_loads as loads
from kedge.bench._move_loads import Hour, Ints

# (route, hour, node count) -> plan
Policy = Callable[[Ints, Hour, int], move.Plan]
RING_SEEDS = 100
TRAIN_HOURS, HOURS = 30 * 24, 90 * 24


@dataclass(frozen=True)
class Run:
    """The mean share of state that a migration moves, its bound where known, and the worst load above the mean."""

    share: float
    bound: float
    above: float
    plans: tuple[move.Plan, ...] = ()


@dataclass(frozen=True)
class Scene:
    """An application's loads hour by hour, the node counts to follow, and the matrix learned from the month before."""

    name: str
    hours: Sequence[Hour]
    path: Ints
    chances: move.Transitions

    @property
    def tasks(self) -> int:
        """How many tasks there are."""
        return len(self.hours[0].work)


def node_counts(seed: int, moves: int) -> tuple[Ints, move.Transitions]:
    """A path of so many migrations, and the transition matrix of the month before it."""
    rates = loads.rate(HOURS, seed)
    counts = loads.nodes_for(rates)
    month = loads.nodes_for(rates[:TRAIN_HOURS])
    cut = len(month)
    chances = move.learned(month.tolist(), prior=0.01)
    later = [int(n) for n in counts[cut:] if n in chances.counts]
    return np.array(later[: moves + 1]), chances


def follow(scene: Scene, start: move.Plan, policy: Policy) -> Run:
    """Carry out one migration after the other, each planned from the route that the last one left."""
    route, plans = start.after, []
    for step, nodes in enumerate(scene.path[1:]):
        hour = scene.hours[min(step, len(scene.hours) - 1)]
        plans.append(policy(route, hour, int(nodes)))
        route = plans[-1].after
    return Run(
        float(np.mean([plan.share_moved for plan in plans])),
        float(np.mean([plan.bound_bytes / max(1, int(plan.size.sum())) for plan in plans])),
        max(plan.tau_reached for plan in plans),
        tuple(plans),
    )


def _start(scene: Scene, policy: Policy) -> move.Plan:
    """A first route of the policy's own kind."""
    return policy(np.zeros(scene.tasks, np.int64), scene.hours[0], int(scene.path[0]))


def ssm(scene: Scene, tau: float, least: float = 0.0) -> Run:
    """The fewest bytes for each move alone, by intervals."""

    def policy(route: Ints, hour: Hour, nodes: int) -> move.Plan:
        return move.single(route, hour.work, hour.size, nodes, tau, least=least)

    return follow(scene, _start(scene, policy), policy)


def anyhow(scene: Scene, tau: float) -> Run:
    """Arbitrary maps, each move alone."""

    def policy(route: Ints, hour: Hour, nodes: int) -> move.Plan:
        return move.single(route, hour.work, hour.size, nodes, tau, assign="any")

    first = move.single([0] * scene.tasks, scene.hours[0].work, scene.hours[0].size, int(scene.path[0]), tau)
    return follow(scene, first, policy)


def aware(scene: Scene, tau: float, forecast: move.Forecast, least: float = 0.0) -> Run:
    """In view of the future."""

    def policy(route: Ints, hour: Hour, nodes: int) -> move.Plan:
        return move.aware(route, hour.work, hour.size, nodes, tau, forecast, least=least)

    return follow(scene, _start(scene, policy), policy)


def storm(scene: Scene) -> Run:
    """Equal counts of consecutive tasks."""

    def policy(route: Ints, hour: Hour, nodes: int) -> move.Plan:
        return move.equal_counts(route, hour.work, hour.size, nodes)

    return follow(scene, _start(scene, policy), policy)


def redist(scene: Scene, tau: float) -> Run:
    """Gedik's Redist."""

    def policy(route: Ints, hour: Hour, nodes: int) -> move.Plan:
        return move.redist(route, hour.work, hour.size, nodes, tau)

    return follow(scene, _start(scene, policy), policy)


def ring(scene: Scene, seeds: int = RING_SEEDS) -> Run:
    """Consistent hashing, the mean of many rings."""

    def policy_of(seed: int) -> Policy:
        def policy(route: Ints, hour: Hour, nodes: int) -> move.Plan:
            return move.consistent_hashing(route, hour.work, hour.size, nodes, seed=seed)

        return policy

    runs = [follow(scene, _start(scene, policy_of(seed)), policy_of(seed)) for seed in range(seeds)]
    return Run(float(np.mean([r.share for r in runs])), 0.0, float(np.mean([r.above for r in runs])), runs[0].plans)


def word_scene(moves: int, tasks: int = 64, seed: int = 1, drift: bool = True) -> Scene:
    """Word count; without drift the loads of one hour stay (the paper's model)."""
    path, chances = node_counts(seed, moves)
    hours = loads.words(120 + moves, tasks, seed=seed)[120:]
    return Scene("word count", hours if drift else hours[:1], path, chances)


def pattern_scene(moves: int, slices: int, tasks: int = 64, window_s: int = 90, seed: int = 1) -> Scene:
    """Frequent patterns; the slices are gone through as often as needed."""
    path, chances = node_counts(seed, moves)
    found = [hour for hour, _ in loads.Patterns(window_s, tasks, seed).hours(slices)]
    return Scene("frequent patterns", [found[i % len(found)] for i in range(moves)], path, chances)


def sample_scene(name: str, key: int, moves: int, tasks: int = 64) -> Scene:
    """Sample data; node counts still follow the made rhythm, since a sample lasts ten minutes."""
    path, chances = node_counts(2, moves)
    slices = loads.sample(name, key, tasks, 24)
    held = [hour for hour in slices[4:] if hour.work.sum() > 0]
    return Scene(name, [held[i % len(held)] for i in range(moves)], path, chances)


def delay_ms(plan: move.Plan, bytes_per_s: float, rows_per_s: float, per_step: int | None = None) -> float:
    """The modelled mean delay of a row in the two minutes from the start of a move.

    A task's rows wait from the moment its state leaves until it has arrived. All at once, every moving task waits
    from the start and arrives as the phases carry it; in steps, only the tasks of a step wait, each for its own bytes.
    """
    pauses: dict[int, float] = {}
    if per_step is not None:
        for step in move.progressive(plan, per_step).steps:
            pauses.update({task: plan.size[task] / bytes_per_s for task, _, _ in step})
    else:
        pauses = _arrivals(plan, bytes_per_s)
    total = max(1, int(plan.work.sum()))
    # rows of a task come evenly: one that comes t seconds into a pause of p waits p - t
    waited = sum(plan.work[task] / total * rows_per_s * min(p, 120.0) ** 2 / 2 for task, p in pauses.items())
    return float(1000 * waited / (rows_per_s * 120))


def _arrivals(plan: move.Plan, bytes_per_s: float) -> dict[int, float]:
    """When each moved task has arrived, if the phases run one after the other and small tasks go first."""
    waiting: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for task, source, target in plan.moves:
        waiting.setdefault((source, target), []).append((int(plan.size[task]), task))
    for queue in waiting.values():
        queue.sort()
    arrived: dict[int, float] = {task: 0.0 for task, _, _ in plan.moves if plan.size[task] == 0}
    clock, sent = 0, dict.fromkeys(waiting, 0)
    for phase in move.transfer(plan).phases:
        for source, target, count in phase.pairs:
            done = sent[source, target]
            edge = 0
            for size, task in waiting[source, target]:
                edge += size
                if done < edge <= done + count:
                    arrived[task] = (clock + edge - done) / bytes_per_s
            sent[source, target] = done + count
        clock += phase.length_bytes
    return arrived
