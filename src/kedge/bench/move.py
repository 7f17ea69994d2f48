"""`kedge bench move`: the migration paper's figures 12 to 17 again, and the aims of the planners.

Quick: fewer thresholds, shorter paths, less training, the same code. Every rival runs in the same process on the
same loads and path of node counts. All numbers behind the pictures go to move-figures.json.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from kedge import move
from kedge.bench import Figure, note
from kedge.bench import _move_runs as runs
from kedge.bench._move_plots import Axes, Lines, Panel, draw

WORKERS = 2
SHARES = [0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]
STORM_AIM = "<= 0.167"


def run(quick: bool, out: Path) -> list[Figure]:
    """Measure everything."""
    bench = _Bench(quick, out)
    figures: list[Figure] = []
    for part in (bench.times, bench.costs, bench.gains, bench.any_maps, bench.exact, bench.sizes, bench.windows):
        note(f"bench move: {part.__name__}")
        figures += part()
    for part in (bench.discounts, bench.samples, bench.schedules):
        note(f"bench move: {part.__name__}")
        figures += part()
    (out / "move-figures.json").write_text(json.dumps(bench.numbers, indent=1) + "\n")
    return [*figures, Figure("pictures of the paper's figures 12 to 17", bench.pictures, "pictures")]


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
        self.moves = 20 if quick else 100
        self.effort = 0.125 if quick else 1.0
        self.taus = [0.1, 0.2, 0.4, 0.8] if quick else [0.1, 0.2, 0.4, 0.8, 1.2, 1.6]
        self.numbers: dict[str, Any] = {}
        self.pictures = 0
        self.fixed = runs.word_scene(100, drift=False)
        self.words = runs.word_scene(self.moves)
        self.patterns = runs.pattern_scene(self.moves, 4 if quick else 40)
        self.forecasts: dict[tuple[str, float, float], move.Forecast] = {}
        self.train_s: dict[tuple[str, float, float], float] = {}
        self.tight: runs.Run | None = None

    def forecast(self, scene: runs.Scene, tau: float, gamma: float = 0.8) -> move.Forecast:
        """Train on the scene's first load, once."""
        key = _key(scene, tau, gamma)
        if key not in self.forecasts:
            hour = scene.hours[0]
            start = time.perf_counter()
            self.forecasts[key] = move.precompute(
                hour.work, hour.size, scene.chances, tau, gamma=gamma, method="learned", run=move.threads(WORKERS),
                effort=max(0.5, self.effort) if scene is self.fixed else self.effort, replica=False,
            )  # fmt: skip
            self.train_s[key] = time.perf_counter() - start
        return self.forecasts[key]

    def picture(self, name: str, title: str, panels: list[Panel]) -> None:
        """Keep the numbers of a picture, and draw it."""
        self.numbers[name] = {"title": title, "panels": [asdict(panel) for panel in panels]}
        self.pictures += draw(self.out, name, title, panels)

    def times(self) -> list[Figure]:
        """Aim: SSM in 0.1, 3 and 25 ms. Worst of thresholds and of growing and shrinking; the whole call is timed."""
        rng = np.random.default_rng(0)
        figures: list[Figure] = []
        for tasks, counts, aim_ms in ((64, (15, 16), 0.1), (1024, (60, 64), 3.0), (4096, (60, 64), 25.0)):
            work, size = rng.integers(20, 200, tasks), rng.integers(20, 2000, tasks)
            worst = 0.0
            for tau in (0.1, 0.4, 1.2):
                for before, after in (counts, counts[::-1]):
                    route = move.single([0] * tasks, work, size, before, tau).after
                    call = _single(route, work, size, after, tau)
                    worst = max(worst, 1000 * best_s(call, 200 if tasks == 64 else 20))
            name = f"SSM, {tasks} tasks, {max(counts)} nodes, worst of tau 0.1 to 1.2"
            figures.append(Figure(name, worst, "ms", f"<= {aim_ms:g}", worst <= aim_ms))
        lines: Lines = {}
        for scene in (self.words, self.patterns):
            hour, counts = scene.hours[0], scene.path[:2]
            took: list[float] = []
            for tau in self.taus:
                route = move.single([0] * scene.tasks, hour.work, hour.size, int(counts[0]), tau).after
                took.append(1000 * best_s(_single(route, hour.work, hour.size, int(counts[1]), tau), 50))
            lines[scene.name] = (self.taus, took)
        panel = Panel("64 tasks, 8 to 16 nodes; the paper: up to 2 ms", Axes("tau", "ms for a plan"), lines)
        self.picture("fig13-ssm-time", "Figure 13: time of SSM", [panel])
        return figures

    def costs(self) -> list[Figure]:
        """Figures 12 and 14: cost against the threshold for all strategies, loads drifting; time of the training."""
        lines: dict[str, Lines] = {}
        rows: list[dict[str, Any]] = []
        for scene in (self.words, self.patterns):
            ring, storm = runs.ring(scene, 3 if self.quick else runs.RING_SEEDS), runs.storm(scene)
            for tau in self.taus:
                strategies = {
                    "single step": runs.ssm(scene, tau),
                    "MTM-aware": runs.aware(scene, tau, self.forecast(scene, tau)),
                    "any map": runs.anyhow(scene, tau),
                    "Redist": runs.redist(scene, tau),
                    "consistent hashing": ring,
                    "Storm": storm,
                }
                if scene is self.words and tau == 0.1:
                    self.tight = strategies["any map"]
                for who, one in strategies.items():
                    x, y = lines.setdefault(scene.name, {}).setdefault(who, ([], []))
                    x.append(tau)
                    y.append(100 * one.share)
                    rows.append({"app": scene.name, "tau": tau, "who": who, "moved": one.share,
                                 "bound": one.bound, "load above mean": one.above})  # fmt: skip
        self.numbers["loads"] = rows
        axes = Axes("tau", "% of all state, mean of the moves", y_kind="share", y_ticks=SHARES)
        self.picture("fig12-cost-tau", "Figure 12: state that a migration moves",
                     [Panel(app, axes, found) for app, found in lines.items()])  # fmt: skip
        trained: Lines = {
            scene.name: (self.taus, [self.train_s[_key(scene, tau, 0.8)] for tau in self.taus])
            for scene in (self.words, self.patterns)
        }
        panel = Panel("64 tasks, 8 to 16 nodes; the paper: hundreds of minutes", Axes("tau", "s"), trained)
        self.picture("fig14-precompute-time", "Figure 14: time of the precomputation", [panel])
        worst_s = max(max(took) for _, took in trained.values())
        name = "training for 64 tasks, 8 to 16 nodes, worst of tau"
        if self.quick:
            name += " (an eighth of the full effort)"
        return [
            *self._against_storm(rows),
            Figure(name, worst_s, "s", "seconds: <= 60", worst_s <= 60),
            *(_beside(row) for row in rows if row["tau"] == self.taus[0]),
        ]

    def _against_storm(self, rows: list[dict[str, Any]]) -> list[Figure]:
        """Aim: at most a sixth of Storm's default everywhere."""
        storm = {row["app"]: row for row in rows if row["who"] == "Storm"}

        def worst(who: str, taus: list[float], what: str = "moved") -> float:
            return max(
                row[what] / storm[row["app"]]["moved"] for row in rows if row["who"] == who and row["tau"] in taus
            )

        loose, tight = self.taus[1:], self.taus[:1]
        own = max(
            runs.ssm(scene, round(storm[scene.name]["load above mean"], 3)).share / storm[scene.name]["moved"]
            for scene in (self.words, self.patterns)
        )
        wide = runs.word_scene(self.moves // 2, tasks=256)
        default = runs.anyhow(wide, 0.1).share / runs.storm(wide).share
        alone, free, bound = worst("single step", tight), worst("any map", tight), worst("any map", tight, "bound")
        optimum = "single step is the proven optimum of intervals: the limit itself makes that much move"
        certified = f"no map along this path moves less than {bound:.3f} of Storm's; 256 tasks reach the aim"
        return [
            _sixth(f"single step, 64 tasks, worst of tau {loose[0]} to {loose[-1]}", worst("single step", loose)),
            _sixth("single step, 64 tasks, at the load that Storm's own plans reach", own),
            _sixth("any map, 256 tasks (the default of a run), tau 0.1", default),
            replace(_sixth("any map, 64 tasks, tau 0.1", free), why=certified if free > 1 / 6 else None),
            replace(_sixth("single step, 64 tasks, tau 0.1", alone), why=optimum if alone > 1 / 6 else None),
        ]

    def gains(self) -> list[Figure]:
        """Aim: MTM-aware at least 9% below SSM at tau = 0.4, and 22% at 0.8, over 100 moves."""
        figures: list[Figure] = []
        for tau, aim in ((0.4, 0.09), (0.8, 0.22)):
            plain = runs.ssm(self.fixed, tau)
            ours = runs.aware(self.fixed, tau, self.forecast(self.fixed, tau))
            gain = 1 - ours.share / plain.share
            name = f"MTM-aware below SSM, tau {tau}, 100 moves, word count, loads of one hour"
            figures.append(Figure(name, 100 * gain, "%", f">= {100 * aim:g}", gain >= aim))
        if not self.quick:
            figures += [self._loaded(tau) for tau in (0.4, 0.8)]
        return figures

    def _loaded(self, tau: float) -> Figure:
        """The same gain where no node may idle: without a least load fewer nodes than there are do all the work."""
        hour, least = self.fixed.hours[0], 0.5
        forecast = move.precompute(hour.work, hour.size, self.fixed.chances, tau, least=least, method="learned",
                                   run=move.threads(WORKERS), replica=False)  # fmt: skip
        gain = 1 - runs.aware(self.fixed, tau, forecast, least).share / runs.ssm(self.fixed, tau, least).share
        name = f"MTM-aware below SSM, tau {tau}, the same, every node with half the mean at least"
        return Figure(name, 100 * gain, "%")

    def any_maps(self) -> list[Figure]:
        """Aim: arbitrary maps at most 2/3 of the interval optimum at tau = 0.1, within 15% of their lower bound."""
        plain = runs.ssm(replace(self.fixed, path=self.fixed.path[: self.moves + 1]), 0.1)
        same = _same_start(plain.plans, 0.1)
        cost = sum(plan.cost_bytes for plan in same)
        ratio = cost / max(1, sum(plan.cost_bytes for plan in plain.plans))
        over = cost / max(1, sum(plan.bound_bytes for plan in same))
        figures = [
            Figure(
                f"any map / interval optimum, tau 0.1, {len(same)} moves",
                ratio,
                "ratio",
                "<= 0.667",
                ratio <= 2 / 3,
            ),
            Figure(
                f"any map / its lower bound, tau 0.1, {len(same)} moves", over, "ratio", "<= 1.15", over <= 1.15
            ),
        ]
        assert self.tight is not None
        chain = self.tight.share / max(1e-12, self.tight.bound)
        name = "any map / its lower bound, tau 0.1, own path, loads drifting"
        return [*figures, Figure(name, chain, "ratio", "<= 1.15", chain <= 1.15)]

    def exact(self) -> list[Figure]:
        """Aim: MTM-aware within 3% of the exact solution wherever that is computable.

        Where it is computable the default computes it. The learned prices are held against it too: that is their
        error, not an aim.
        """
        ratios: list[float] = []
        default: list[float] = []
        known: list[int] = []
        for seed in range(1 if self.quick else 4):
            rng = np.random.default_rng(seed)
            chances = rng.random((3, 3)) * (1 - np.eye(3))
            matrix = move.transitions(chances / chances.sum(axis=1, keepdims=True), 2)
            work, size = rng.integers(5, 40, 18), rng.integers(5, 40, 18)
            path = matrix.path(2, 300 if self.quick else 1500, seed)
            for tau in (0.4, 0.8):
                tables = [
                    move.precompute(work, size, matrix, tau, method=method, run=move.threads(WORKERS))
                    for method in ("exact", "auto")
                ]
                assert isinstance(tables[0], move.Table)
                known.append(sum(len(rows) for rows in tables[0].states.values()))
                learned = move.precompute(work, size, matrix, tau, method="learned", run=move.threads(WORKERS),
                                          replica=False)  # fmt: skip
                best, usual, ours = (
                    move.mean_cost(work, size, path, tau, 0.0, forecast) for forecast in (*tables, learned)
                )
                ratios.append(ours / best)
                default.append(usual / best)
        self.numbers["learned / exact"] = {"ratios": ratios, "default": default, "partitions": known}
        mean, worst, usual = float(np.mean(ratios)), max(ratios), max(default)
        some = f"{len(ratios)} instances of up to {max(known):,} partitions"
        return [
            Figure(f"MTM-aware by default / exact, worst of {some}", usual, "ratio", "<= 1.03", usual <= 1.03),
            Figure(
                f"learned prices, which serve only where no table can be made / exact, mean of {some}",
                mean,
                "ratio",
            ),
            Figure(f"learned prices / exact, worst of {some}", worst, "ratio"),
        ]

    def sizes(self) -> list[Figure]:
        """Figure 15: tasks against cost and time."""
        counts = [64, 256] if self.quick else [32, 64, 128, 256, 512, 1024]
        cost: Lines = {}
        took: Lines = {}
        for tau in (0.2, 0.8):
            scenes = [runs.word_scene(max(10, self.moves // 2), tasks=tasks) for tasks in counts]
            found = [runs.ssm(scene, tau) for scene in scenes]
            cost[f"tau {tau}"] = ([float(c) for c in counts], [100 * one.share for one in found])
            times = [1000 * best_s(_again(one.plans[0], tau), 20) for one in found]
            took[f"tau {tau}"] = ([float(c) for c in counts], times)
        panels = [
            Panel("cost", Axes("tasks", "% of all state", x_log=True), cost),
            Panel("time", Axes("tasks", "ms for a plan", x_log=True, y_kind="log"), took),
        ]
        self.picture("fig15-tasks", "Figure 15: more tasks cost less, and little time (word count)", panels)
        return []

    def windows(self) -> list[Figure]:
        """Figure 16: the window against the modelled delay of a row."""
        delays: Lines = {}
        tau, speed = 0.8, int(self.patterns.hours[0].size.sum()) / 100  # a 90 s window crosses one link in 100 s
        forecast = self.forecast(self.patterns, tau)
        for window in [30, 90] if self.quick else [30, 60, 90, 120, 180]:
            scene = runs.pattern_scene(10 if self.quick else 40, 2 if self.quick else 8, window_s=window)
            ours = runs.aware(scene, tau, forecast)
            kinds = {
                "single step": (runs.ssm(scene, tau), None),
                "MTM-aware": (ours, None),
                "MTM-aware, 4 tasks a step": (ours, 4),
                "consistent hashing": (runs.ring(scene, 2 if self.quick else 10), None),
                "Storm": (runs.storm(scene), None),
            }
            rows = max(1.0, sum(hour.rows for hour in scene.hours) / len(scene.hours) / 30)
            for name, (one, per_step) in kinds.items():
                value = float(np.mean([runs.delay_ms(plan, speed, rows, per_step) for plan in one.plans]))
                delays.setdefault(name, ([], []))[0].append(window)
                delays[name][1].append(value)
        axes = Axes("window, s", "mean delay, ms", y_kind="log")
        panel = Panel("frequent patterns; two minutes from the start, modelled", axes, delays)
        self.picture("fig16-window-delay", "Figure 16: how long a row waits for a move", [panel])
        return []

    def discounts(self) -> list[Figure]:
        """Figure 17: the discount against cost and precomputation."""
        gammas = [0.0, 0.8] if self.quick else [0.0, 0.2, 0.4, 0.6, 0.8, 0.9]
        cost: list[float] = []
        took: list[float] = []
        for gamma in gammas:
            if gamma == 0.0:
                one = runs.ssm(self.fixed, 0.8)
                took.append(0.0)
            else:
                one = runs.aware(self.fixed, 0.8, self.forecast(self.fixed, 0.8, gamma))
                took.append(self.train_s[_key(self.fixed, 0.8, gamma)])
            cost.append(100 * one.share)
        panels = [
            Panel("cost", Axes("gamma", "% of all state"), {"MTM-aware": (gammas, cost)}),
            Panel("precomputation", Axes("gamma", "s"), {"MTM-aware": (gammas, took)}),
        ]
        self.picture("fig17-gamma", "Figure 17: the discount factor (word count, tau 0.8)", panels)
        return []

    def samples(self) -> list[Figure]:
        """The sample data, its keys as the state: cost against Storm's, where the sample can be balanced at all."""
        worst, rows = 0.0, []
        for name, key in (("linear-road", 1), ("smart-grid", 3), ("cluster", 1)):
            scene = runs.sample_scene(name, key, 20 if self.quick else 60)
            storm = runs.storm(scene)
            for tau in (0.4, 0.8):
                one = runs.ssm(scene, tau)
                effective = max(plan.tau_effective for plan in one.plans)
                rows.append(
                    {"sample": name, "tau": tau, "widened to": effective, "moved": one.share, "Storm": storm.share}
                )
                worst = max(worst, one.share / storm.share)
        self.numbers["samples"] = rows
        return [_sixth("single step, 64 tasks, tau 0.4 and 0.8, worst of three samples of real data", worst)]

    def schedules(self) -> list[Figure]:
        """Progressive plans: the fewest steps, and loads that can run."""
        assert self.tight is not None
        plans = [plan for plan in self.tight.plans if plan.moves]
        steps = [move.progressive(plan, 4) for plan in plans]
        few = sum(len(s.steps) == s.steps_min and s.balanced for s in steps) / max(1, len(steps))
        moves = [move.transfer(plan) for plan in plans]
        longest = max(sum(p.length_bytes for p in t.phases) / t.bound_bytes for t in moves)
        return [
            Figure("plans in the fewest steps with every step within its limits, 4 tasks a step", 100 * few, "%"),
            Figure("length of the transfer / its bound, worst", longest, "ratio"),
        ]


def _sixth(who: str, ratio: float) -> Figure:
    return Figure(f"cost / Storm's default: {who}", ratio, "ratio", STORM_AIM, ratio <= 1 / 6)


def _beside(row: dict[str, Any]) -> Figure:
    """A strategy's cost with the load that it leads to: one that keeps no limit may move less."""
    load = f"fullest node {row['load above mean']:.0%} above the mean"
    return Figure(f"moved at tau {row['tau']}, {row['app']}: {row['who']} ({load})", 100 * row["moved"], "%")


def _key(scene: runs.Scene, tau: float, gamma: float) -> tuple[str, float, float]:
    """Forecasts are shared by scenes that begin with the same load."""
    return scene.hours[0].work.tobytes().hex(), tau, gamma


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
