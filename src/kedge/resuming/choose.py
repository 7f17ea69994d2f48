"""Which data to save under a budget: the one public function of this room.

`goal="worst"`: the smallest worst case that the budget can buy; among equal ones the fewest bytes.
With unlimited workers by bisection over targets of `kedge.resuming.cuts`: exact up to `EXACT_DATA_MAX` candidates
(with scipy), primal-dual beyond. With finite workers, groups, or `goal="expected"`: greedy, the most gain per byte,
started from nothing and from the choice for unlimited workers. Every answer carries a proven bound.
"""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from kedge.errors import UsageError
from kedge.resuming.cost import expected_floor_us, expected_us, floor_us, mean_us, worst_us
from kedge.resuming.cuts import Cut, Paths, exact, primal_dual
from kedge.resuming.dag import Dag, as_dag
from kedge.resuming.one_worker import fewest_bytes_of_one
from kedge.resuming.schedule import Speeds, schedule

EXACT_DATA_MAX = 250
SUBSETS_MAX = 64

Goal = Literal["worst", "expected"]
Method = Literal["auto", "exact", "primal-dual", "greedy"]
Groups = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Selection:
    """What to save, what it costs and what it protects, beside what no choice could beat.

    `mean_us` is the mean total time with one failure, equally likely at every moment; `expected_us` that with failures
    at the given rate. `bound_us` is a proven lower bound of the goal under the budget, `floor_us` of the worst case
    under any budget; `exact` says that the goal reached is the best possible one.
    """

    saved: tuple[str, ...]
    bytes: int
    end_us: int
    worst_us: int
    mean_us: float
    expected_us: float | None
    floor_us: int
    bound_us: float
    exact: bool

    @property
    def reduction(self) -> float:
        """How much of the worst case without checkpoints, 2T, is gone."""
        return 1 - self.worst_us / (2 * self.end_us) if self.end_us else 0.0

    @property
    def ceiling(self) -> float:
        """The reduction that no choice of any size can exceed."""
        return 1 - self.floor_us / (2 * self.end_us) if self.end_us else 0.0


def select_checkpoints(
    dag: Any,
    *,
    budget_bytes: int | None = None,
    overhead: float | None = None,
    goal: Goal = "worst",
    failures_per_hour: float | None = None,
    speeds: Speeds | None = None,
    method: Method = "auto",
    groups: Groups | None = None,
) -> Selection:
    """Choose what to save of a task graph (a dictionary, a networkx DiGraph or a Dag), under a budget.

    >>> build = {
    ...     "fetch": {"seconds": 60, "bytes": 8_000_000},
    ...     "clean": {"seconds": 30, "bytes": 2_000_000, "inputs": ["fetch"]},
    ...     "train": {"seconds": 90, "bytes": 50_000, "inputs": ["clean"]},
    ... }
    >>> chosen = select_checkpoints(build, budget_bytes=3_000_000)
    >>> chosen.saved, chosen.worst_us // 1_000_000
    (('clean',), 270)
    """
    graph, speeds = as_dag(dag), speeds or Speeds()
    _check(goal, failures_per_hour, overhead, budget_bytes, speeds)
    end = schedule(graph, speeds=speeds).end_us
    budget = budget_bytes
    if overhead is not None and speeds.write_bytes_per_second is not None:
        room = int(overhead * end / 1e6 * speeds.write_bytes_per_second)
        budget = room if budget is None else min(budget, room)
    floor = floor_us(graph, speeds)
    rate = None if failures_per_hour is None else failures_per_hour / 3600
    if goal == "worst" and speeds.workers is None and groups is None and method != "greedy":
        chosen, bound, proven = _bisect(graph, speeds, budget, floor, 2 * end, method)
    else:
        chosen, bound, proven = _search(graph, speeds, budget, floor, rate if goal == "expected" else None, groups)
    return Selection(
        saved=graph.names(chosen),
        bytes=graph.bytes_of(chosen),
        end_us=end,
        worst_us=worst_us(graph, chosen, speeds),
        mean_us=mean_us(graph, chosen, speeds),
        expected_us=None if rate is None else expected_us(graph, chosen, rate, speeds),
        floor_us=floor,
        bound_us=bound,
        exact=proven,
    )


def _check(goal: str, rate: float | None, overhead: float | None, budget: int | None, speeds: Speeds) -> None:
    if goal not in ("worst", "expected"):
        raise UsageError(f"goal={goal!r} is not known; choose 'worst' or 'expected'.")
    if goal == "expected" and not rate:
        raise UsageError("goal='expected' needs failures_per_hour= above zero.")
    if rate is not None and rate < 0:
        raise UsageError(f"failures_per_hour={rate} can't be negative.")
    if budget is not None and budget < 0:
        raise UsageError(f"budget_bytes={budget} can't be negative.")
    if overhead is not None and (overhead < 0 or speeds.write_bytes_per_second is None):
        raise UsageError(
            "overhead= is a share of the run, zero or more, and needs speeds=Speeds(write_bytes_per_second=)."
        )


def fewest_bytes(
    dag: Dag, target_us: int, speeds: Speeds | None = None, method: Method = "auto", seconds_max: float = 10.0
) -> Cut | None:
    """The fewest bytes that keep every failure within `target_us`; None if nothing does.

    Workers are unlimited, or one with instant transfers: then the answer is exact and needs scipy.
    """
    speeds = speeds or Speeds()
    if speeds.workers is None:
        return _solver(dag, method)(Paths(dag, speeds), target_us)
    if speeds != Speeds(workers=1):
        raise UsageError("fewest_bytes is for unlimited workers, or for one worker with instant transfers.")
    return fewest_bytes_of_one(dag, target_us, seconds_max)


def _solver(dag: Dag, method: Method) -> Callable[[Paths, int], Cut | None]:
    scipy = importlib.util.find_spec("scipy") is not None
    if method == "exact" and not scipy:
        raise UsageError("method='exact' needs scipy; install kedge[resume] or use method='primal-dual'.")
    use_exact = method == "exact" or (method == "auto" and scipy and len(dag.candidates) <= EXACT_DATA_MAX)
    return exact if use_exact else primal_dual


def _bisect(
    dag: Dag, speeds: Speeds, budget: int | None, floor: int, nothing: int, method: Method
) -> tuple[frozenset[int], float, bool]:
    """The smallest target whose cut fits; also the largest target proven to be out of reach."""
    solve, paths = _solver(dag, method), Paths(dag, speeds)
    best: frozenset[int] = frozenset()
    low, high, bound = floor, nothing, floor
    while low < high:
        target = (low + high) // 2 if high < nothing or low > floor else low
        cut = solve(paths, target)
        if cut is not None and (budget is None or cut.bytes <= budget):
            best, high = cut.chosen, min(target, worst_us(dag, cut.chosen, speeds))
        else:
            low = target + 1
            if cut is None or (budget is not None and cut.bytes_bound > budget):
                bound = max(bound, low)
    return best, float(bound), bound >= high


def _search(
    dag: Dag, speeds: Speeds, budget: int | None, floor: int, rate: float | None, groups: Groups | None
) -> tuple[frozenset[int], float, bool]:
    """Greedy over single data or groups; all subsets when there are few."""
    sets = [frozenset(group) for group in groups.values()] if groups else [frozenset((d,)) for d in dag.candidates]
    limit = dag.bytes_of(dag.candidates) if budget is None else budget

    def value(chosen: frozenset[int]) -> tuple[float, float]:
        if rate is not None:
            return (expected_us(dag, chosen, rate, speeds), 0.0)
        return (float(worst_us(dag, chosen, speeds)), mean_us(dag, chosen, speeds))

    bound = float(floor) if rate is None else expected_floor_us(dag, rate, speeds)
    if 1 << len(sets) <= SUBSETS_MAX:
        best = min(_subsets(dag, sets, limit), key=lambda chosen: (value(chosen)[0], dag.bytes_of(chosen)))
        return best, value(best)[0], True
    starts = [frozenset[int]()]
    if groups is None and rate is None:
        starts.append(_bisect(dag, Speeds(), limit, floor_us(dag), 2 * schedule(dag).end_us, "primal-dual")[0])
    found = [_greedy(dag, sets, limit, value, start) for start in starts]
    best = min(found, key=lambda chosen: (value(chosen)[0], dag.bytes_of(chosen)))
    return best, bound, value(best)[0] <= bound


def _subsets(dag: Dag, sets: list[frozenset[int]], limit: int) -> Iterable[frozenset[int]]:
    for count in range(len(sets) + 1):
        for some in itertools.combinations(sets, count):
            chosen = frozenset[int]().union(*some)
            if dag.bytes_of(chosen) <= limit:
                yield chosen


def _greedy(
    dag: Dag,
    sets: list[frozenset[int]],
    limit: int,
    value: Callable[[frozenset[int]], tuple[float, float]],
    start: frozenset[int],
) -> frozenset[int]:
    chosen, now = start, value(start)
    while True:
        tried: list[tuple[float, float, int, frozenset[int], tuple[float, float]]] = []
        for at, group in enumerate(sets):
            more = chosen | group
            size = dag.bytes_of(more) - dag.bytes_of(chosen)
            if more == chosen or dag.bytes_of(more) > limit:
                continue
            then = value(more)
            if then < now:
                tried.append(((now[0] - then[0]) / (size + 1), (now[1] - then[1]) / (size + 1), -at, more, then))
        if not tried:
            break
        *_, chosen, now = max(tried, key=lambda option: option[:3])
    for group in sorted(sets, key=lambda group: -dag.bytes_of(group)):  # what a later choice made needless
        fewer = chosen - group
        if group <= chosen and value(fewer)[0] <= now[0]:
            chosen, now = fewer, value(fewer)
    return chosen
