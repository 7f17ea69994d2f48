"""`kedge bench move`: the migration paper's figures 12 to 17 again, and the aims of the planners.

Quick: fewer thresholds, shorter paths, less training, the same code. Every rival runs in the same process on the
same loads and path of node counts. All numbers behind the pictures go to move-figures.json.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from kedge import move
from kedge.bench import Figure, note
from kedge.bench import _move_runs as runs
from kedge.bench._move_plots import Lines, draw

WORKERS = 2


def run(quick: bool, out: Path) -> list[Figure]:
    """Measure everything."""
    bench = _Bench(quick, out)
    figures = [*bench.times(), *bench.costs(), *bench.any_maps(), *bench.exact(), *bench.sizes_and_windows()]
    figures += [*bench.discounts(), *bench.samples(), *bench.schedules()]
    (out / "move-figures.json").write_text(json.dumps(bench.numbers, indent=1) + "\n")
    figures.append(
        Figure("pictures of the paper's figures 12-17", bench.pictures, "pictures", "6", bench.pictures == 6)
    )
    return figures


def best_s(call: Callable[[], object], repeats: int) -> float:
    """The best of some repetitions, in seconds, after one that compiles."""
    call()
    best = np.inf
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return float(best)


class _Bench:
    """The measurements, in order; later ones reuse the forecasts of earlier ones."""

    def __init__(self, quick: bool, out: Path) -> None:
        self.quick, self.out = quick, out
        self.moves = 40 if quick else 100
        self.effort = 0.25 if quick else 1.0
        self.taus = [0.1, 0.4, 0.8] if quick else [0.1, 0.2, 0.4, 0.8, 1.2, 1.6]
        self.numbers: dict[str, Any] = {}
        self.pictures = 0
        self.fixed = runs.word_scene(self.moves, drift=False)
        self.words = runs.word_scene(self.moves)
        slices = 4 if quick else 40
        self.patterns = runs.pattern_scene(self.moves, slices)
        self.forecasts: dict[tuple[str, float, float], move.Forecast] = {}
        self.train_s: dict[tuple[str, float, float], float] = {}
        self.found: dict[tuple[str, float], runs.Run] = {}

    def forecast(self, scene: runs.Scene, tau: float, gamma: float = 0.8) -> move.Forecast:
        """Train on the scene's first load, once."""
        key = (scene.hours[0].work.tobytes().hex()[:32] + str(scene.tasks), tau, gamma)
        if key not in self.forecasts:
            hour = scene.hours[0]
            start = time.perf_counter()
            self.forecasts[key] = move.precompute(
                hour.work, hour.size, scene.chances, tau, gamma=gamma, method="learned", run=move.threads(WORKERS),
                effort=self.effort, replica=False,
            )  # fmt: skip
            self.train_s["" if scene is self.fixed else scene.name, tau, gamma] = time.perf_counter() - start
        return self.forecasts[key]

    def picture(self, name: str, title: str, axes: tuple[str, str], panels: dict[str, Lines], **scale: Any) -> None:
        """Keep the numbers of a picture, and draw it."""
        self.numbers[name] = {"title": title, "axes": axes, "panels": panels}
        self.pictures += draw(self.out, name, title, axes, panels, **scale)

    def times(self) -> list[Figure]:
        """Aim: SSM in 0.1, 3 and 25 ms. Worst of thresholds and of growing and shrinking; the whole call is timed."""
        rng = np.random.default_rng(0)
        figures: list[Figure] = []
        for tasks, counts, aim_ms in ((64, (8, 9), 0.1), (1024, (16, 18), 3.0), (4096, (60, 64), 25.0)):
            work, size = rng.integers(20, 200, tasks), rng.integers(20, 2000, tasks)
            worst = 0.0
            for tau in (0.1, 0.4, 1.2):
                for before, after in (counts, counts[::-1]):
                    route = move.single([0] * tasks, work, size, before, tau).after
                    call = _single(route, work, size, after, tau)
                    worst = max(worst, 1000 * best_s(call, 30 if self.quick else 200))
            name = f"SSM, {tasks} tasks, {max(counts)} nodes, worst of tau 0.1 to 1.2"
            figures.append(Figure(name, worst, "ms", f"<= {aim_ms:g}", worst <= aim_ms))
        lines: Lines = {}
        for scene in (self.words, self.patterns):
            hour, counts = scene.hours[0], scene.path[:2]
            took: list[float] = []
            for tau in self.taus:
                route = move.single([0] * scene.tasks, hour.work, hour.size, int(counts[0]), tau).after
                took.append(1000 * best_s(_single(route, hour.work, hour.size, int(counts[1]), tau), 30))
            lines[scene.name] = (self.taus, took)
        self.picture("fig13-ssm-time", "Figure 13: time of SSM", ("tau", "ms"), {"64 tasks": lines})
        return figures

    def costs(self) -> list[Figure]:
        """Figure 12: cost against the threshold for all strategies, loads drifting; and the aims on fixed loads."""
        panels: dict[str, Lines] = {}
        table: list[dict[str, Any]] = []
        for scene in (self.words, self.patterns):
            note(f"figure 12: {scene.name}")
            lines: Lines = {}
            ring, storm = runs.ring(scene, 3 if self.quick else runs.RING_SEEDS), runs.storm(scene)
            for tau in self.taus:
                row = {
                    "single step": runs.ssm(scene, tau),
                    "MTM-aware": runs.aware(scene, tau, self.forecast(scene, tau)),
                    "any map": runs.anyhow(scene, tau),
                    "Redist": runs.redist(scene, tau),
                    "consistent hashing": ring,
                    "Storm": storm,
                }
                for name, one in row.items():
                    lines.setdefault(name, ([], []))[0].append(tau)
                    lines[name][1].append(100 * one.share)
                    table.append(
                        {
                            "app": scene.name,
                            "tau": tau,
                            "who": name,
                            "moved": one.share,
                            "load above mean": one.above,
                        }
                    )
            panels[scene.name] = lines
        self.numbers["loads"] = table
        self.picture("fig12-cost-tau", "Figure 12: state moved by a migration", ("tau", "% of all state"), panels)
        times = {
            name: [s for (who, _, gamma), s in self.train_s.items() if who == name and gamma == 0.8]
            for name in panels
        }
        self.picture(
            "fig14-precompute-time",
            "Figure 14: time of the precomputation",
            ("tau", "s"),
            {"64 tasks, 8 to 16 nodes": {name: (self.taus, took) for name, took in times.items()}},
        )
        worst_s = max(max(took) for took in times.values())
        return [
            *self._against_storm(panels),
            *self._gains(),
            Figure("training, 64 tasks, 8 to 16 nodes, worst of tau", worst_s, "s", "<= 60", worst_s <= 60),
        ]

    def _against_storm(self, panels: dict[str, Lines]) -> list[Figure]:
        figures: list[Figure] = []
        ratios = [
            (lines[who][1][i] / lines["Storm"][1][i], tau, who, app)
            for app, lines in panels.items()
            for who in ("single step", "any map")
            for i, tau in enumerate(self.taus)
        ]
        for who, low in (("single step", 0.2), ("single step", 0.0), ("any map", 0.0)):
            worst = max(r for r in ratios if r[2] == who and r[1] >= low)
            where = f"worst of tau >= {max(low, self.taus[0])} ({worst[3]}, tau {worst[1]})"
            name = f"{who}, cost / Storm's default, {where}"
            figures.append(Figure(name, worst[0], "ratio", "<= 0.167", worst[0] <= 1 / 6))
        app, lines = next(iter(panels.items()))
        ring, alone = lines["consistent hashing"][1][0], lines["single step"][1][0]
        above = next(r for r in self.numbers["loads"] if r["who"] == "consistent hashing")["load above mean"]
        name = (
            f"consistent hashing / single step at tau {self.taus[0]} ({app}): its fullest node is {above:.0%} above "
            f"the mean"
        )
        return [
            *figures,
            Figure(name, ring / alone, "ratio", "shown with its load", None, "no limit is kept by it"),
        ]

    def _gains(self) -> list[Figure]:
        figures: list[Figure] = []
        for tau, aim in ((0.4, 0.09), (0.8, 0.22)):
            plain = runs.ssm(self.fixed, tau)
            ours = runs.aware(self.fixed, tau, self.forecast(self.fixed, tau))
            gain = 1 - ours.share / plain.share
            name = f"MTM-aware below SSM, tau {tau}, {self.moves} moves, fixed loads"
            figures.append(Figure(name, 100 * gain, "%", f">= {100 * aim:g}", gain >= aim))
        return figures

    def any_maps(self) -> list[Figure]:
        """Aim: arbitrary maps at most 2/3 of the interval optimum at tau = 0.1, within 15% of their lower bound."""
        plain, free = runs.ssm(self.fixed, 0.1), runs.anyhow(self.fixed, 0.1)
        same = _same_start(plain.plans, 0.1)
        cost = sum(plan.cost_bytes for plan in same)
        ratio = cost / max(1, sum(plan.cost_bytes for plan in plain.plans))
        over = cost / max(1, sum(plan.bound_bytes for plan in same))
        chain = free.share / max(1e-12, free.bound)
        return [
            Figure("any map / interval optimum, tau 0.1, same moves", ratio, "ratio", "<= 0.667", ratio <= 2 / 3),
            Figure("any map / its lower bound, tau 0.1, same moves", over, "ratio", "<= 1.15", over <= 1.15),
            Figure("any map / its lower bound, tau 0.1, own path", chain, "ratio", "<= 1.15", chain <= 1.15),
        ]

    def exact(self) -> list[Figure]:
        """Aim: MTM-aware within 3% of the exact solution wherever that is computable."""
        ratios: list[float] = []
        known: list[int] = []
        for seed in range(2 if self.quick else 8):
            rng = np.random.default_rng(seed)
            chances = rng.random((3, 3)) * (1 - np.eye(3))
            matrix = move.transitions(chances / chances.sum(axis=1, keepdims=True), 2)
            work, size = rng.integers(5, 40, 18), rng.integers(5, 40, 18)
            path = matrix.path(2, 300 if self.quick else 1500, seed)
            for tau in (0.4, 0.8):
                table = move.precompute(work, size, matrix, tau, method="exact")
                assert isinstance(table, move.Table)
                known.append(sum(len(rows) for rows in table.states.values()))
                learned = move.precompute(work, size, matrix, tau, method="learned", run=move.threads(WORKERS),
                                          replica=False)  # fmt: skip
                ours, best = (move.mean_cost(work, size, path, tau, 0.0, f) for f in (learned, table))
                ratios.append(ours / best)
        self.numbers["learned / exact"] = {"ratios": ratios, "partitions": known}
        mean, worst = float(np.mean(ratios)), max(ratios)
        largest, error = self._default()
        return [
            Figure(
                f"MTM-aware / exact by default, {largest} partitions: error",
                1 + error,
                "ratio",
                "<= 1.03",
                error <= 0.03,
            ),
            Figure(f"learned / exact, mean of {len(ratios)} instances", mean, "ratio", "<= 1.03", mean <= 1.03),
            Figure(f"learned / exact, worst of {len(ratios)} instances", worst, "ratio", "<= 1.03", worst <= 1.03),
        ]

    def _default(self) -> tuple[int, float]:
        """Where a table is possible the default makes it: its certified error, relative to the mean projected cost."""
        chances = move.transitions([[0.0, 0.6, 0.4], [0.5, 0.0, 0.5], [0.4, 0.6, 0.0]], 3)
        rng = np.random.default_rng(1)
        work, size = rng.integers(5, 40, 20), rng.integers(5, 40, 20)
        table = move.precompute(work, size, chances, 0.4, run=move.threads(WORKERS))
        assert isinstance(table, move.Table)
        values = np.concatenate(list(table.costs.values()))
        return len(values), table.error / float(values.mean())

    def sizes_and_windows(self) -> list[Figure]:
        """Figure 15: tasks against cost and time. Figure 16: window against the modelled delay of a row."""
        counts = [64, 256] if self.quick else [32, 64, 128, 256, 512, 1024]
        cost: Lines = {}
        took: Lines = {}
        for tau in (0.2, 0.8):
            scenes = [runs.word_scene(self.moves // 2, tasks=tasks) for tasks in counts]
            found = [runs.ssm(scene, tau) for scene in scenes]
            cost[f"tau {tau}"] = ([float(c) for c in counts], [100 * one.share for one in found])
            times = [1000 * best_s(_again(one.plans[0], tau), 20) for one in found]
            took[f"tau {tau}"] = ([float(c) for c in counts], times)
        self.picture(
            "fig15-tasks", "Figure 15: number of tasks (word count)", ("tasks", ""),
            {"% of state moved": cost, "ms to plan": took}, xscale="log",
        )  # fmt: skip
        self._windows()
        return []

    def _windows(self) -> None:
        delays: Lines = {}
        windows = [30, 90] if self.quick else [30, 60, 90, 120, 180]
        for window in windows:
            scene = runs.pattern_scene(10 if self.quick else 40, 2 if self.quick else 8, window_s=window)
            state = int(scene.hours[0].size.sum())
            speed = int(self.patterns.hours[0].size.sum()) / 100  # a 90 s window crosses one link in 100 s
            tau = 0.8
            kinds = {
                "single step": (runs.ssm(scene, tau), None),
                "MTM-aware": (runs.aware(scene, tau, self.forecast(self.patterns, tau)), None),
                "MTM-aware, 4 tasks a step": (runs.aware(scene, tau, self.forecast(self.patterns, tau)), 4),
                "consistent hashing": (runs.ring(scene, 2 if self.quick else 10), None),
            }
            for name, (one, per_step) in kinds.items():
                rows = max(1.0, sum(hour.rows for hour in scene.hours) / len(scene.hours) / 30)
                value = float(np.mean([runs.delay_ms(plan, speed, rows, per_step) for plan in one.plans]))
                delays.setdefault(name, ([], []))[0].append(window)
                delays[name][1].append(value)
            note(f"figure 16: window {window} s, {state} bytes")
        self.picture(
            "fig16-window-delay",
            "Figure 16: delay of a row (modelled)",
            ("window, s", "ms, mean of the two minutes from the start"),
            {"frequent patterns": delays},
        )

    def discounts(self) -> list[Figure]:
        """Figure 17: the discount against cost and precomputation."""
        gammas = [0.0, 0.8] if self.quick else [0.0, 0.2, 0.4, 0.6, 0.8, 0.9]
        cost: list[float] = []
        took: list[float] = []
        for gamma in gammas:
            start = time.perf_counter()
            if gamma == 0.0:
                one = runs.ssm(self.fixed, 0.8)
                took.append(0.0)
            else:
                forecast = self.forecast(self.fixed, 0.8, gamma)
                took.append(self.train_s.get(("", 0.8, gamma), time.perf_counter() - start))
                one = runs.aware(self.fixed, 0.8, forecast)
            cost.append(100 * one.share)
        lines = {
            "% of state moved": {"MTM-aware": (gammas, cost)},
            "s to precompute": {"MTM-aware": (gammas, took)},
        }
        self.picture("fig17-gamma", "Figure 17: discount factor (word count, tau 0.8)", ("gamma", ""), lines)
        return []

    def samples(self) -> list[Figure]:
        """The sample data, its keys as the state: cost against Storm's, where the sample can be balanced at all."""
        worst, rows = (0.0, ""), []
        for name, key in (("linear-road", 1), ("smart-grid", 3), ("cluster", 1)):
            scene = runs.sample_scene(name, key, 20 if self.quick else 60)
            storm = runs.storm(scene)
            for tau in (0.4, 0.8):
                one = runs.ssm(scene, tau)
                effective = max(plan.tau_effective for plan in one.plans)
                rows.append(
                    {"sample": name, "tau": tau, "widened to": effective, "moved": one.share, "Storm": storm.share}
                )
                worst = max(worst, (one.share / storm.share, f"{name}, tau {tau}"))
        self.numbers["samples"] = rows
        name = f"single step, cost / Storm's default, sample data ({worst[1]})"
        return [Figure(name, worst[0], "ratio", "<= 0.167", worst[0] <= 1 / 6)]

    def schedules(self) -> list[Figure]:
        """Progressive plans: the fewest steps, and loads that can run."""
        plans = runs.anyhow(self.words, 0.1).plans
        steps = [move.progressive(plan, 4) for plan in plans if plan.moves]
        few = sum(len(s.steps) == s.steps_min and s.balanced for s in steps) / max(1, len(steps))
        moves = [move.transfer(plan) for plan in plans if plan.moves]
        longest = max(sum(p.length_bytes for p in t.phases) / t.bound_bytes for t in moves)
        return [
            Figure(
                "plans in the fewest steps with every step in its limits, 4 tasks a step",
                100 * few,
                "%",
                "100",
                few == 1,
            ),
            Figure("length of the transfer / its bound, worst", longest, "ratio", "1", longest == 1.0),
        ]


def _single(route: Any, work: Any, size: Any, nodes: int, tau: float) -> Callable[[], move.Plan]:
    return lambda: move.single(route, work, size, nodes, tau)


def _again(plan: move.Plan, tau: float) -> Callable[[], move.Plan]:
    return _single(plan.before, plan.work, plan.size, len(plan.nodes), tau)


def _same_start(plans: tuple[move.Plan, ...], tau: float) -> list[move.Plan]:
    """The arbitrary map for each move of a path of intervals."""
    return [
        move.single(plan.before, plan.work, plan.size, len(plan.nodes), max(tau, plan.tau_effective), assign="any")
        for plan in plans
    ]
