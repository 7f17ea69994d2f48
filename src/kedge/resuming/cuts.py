"""Several checkpoints for the fewest bytes, so that no failure costs more than a target: a cut problem.

With unlimited workers a recovery takes as long as the longest path of unsaved data to a result. For a target W, a
path of length l must hold a saved datum that was durable by W - l: otherwise the failure just after that moment
makes the total longer than W. So the choice is a smallest set that hits every such path. Two ways to it, both over
paths found one by one as the current choice violates them:
- `exact`: integer programming (HiGHS through scipy) on all paths found so far, until none is violated.
- `primal_dual`: each violated path raises a price on its data until one of them is paid for; then data are dropped
  again, largest first. The prices raised are a proven lower bound of the bytes.

With restore times a path may also start at a saved datum: then it binds only if that datum is saved.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

from kedge.resuming.cost import moments, saved_us
from kedge.resuming.dag import Dag
from kedge.resuming.schedule import Schedule, Speeds, needed, schedule

SOLVER_SECONDS_MAX = 3.0
ROUNDS_MAX = 100


@dataclass(frozen=True, slots=True)
class Path:
    """A way to a result that a recovery has to walk: unsaved data, perhaps from one that is restored."""

    length_us: int
    data: tuple[int, ...]
    restored: int | None


@dataclass(frozen=True, slots=True)
class Cut:
    """A choice that keeps every failure within the target, and a proof of how few bytes could do it."""

    chosen: frozenset[int]
    bytes: int
    bytes_bound: float
    exact: bool


class Paths:
    """The paths of one graph found so far; shared by all targets that are tried."""

    def __init__(self, dag: Dag, speeds: Speeds) -> None:
        self.dag, self.speeds = dag, speeds
        self.run: Schedule = schedule(dag, speeds=speeds)
        self.saved_us = saved_us(dag, self.run, speeds)
        self.candidates = [d for d in dag.candidates if self.saved_us[d] < self.run.end_us]
        self.may = frozenset(self.candidates)
        self.found: dict[Path, None] = {}
        self.too_hard = False  # HiGHS ran out of time once

    def hits(self, path: Path, target_us: int) -> frozenset[int] | None:
        """The data of which one must be saved; None when the path is short enough for the target."""
        latest = target_us - path.length_us
        if path.restored is not None:
            latest = max(latest, self.saved_us[path.restored])
        if latest >= self.run.end_us:
            return None
        return frozenset(d for d in path.data if d in self.may and self.saved_us[d] <= latest)

    def violated(self, chosen: Iterable[int], target_us: int) -> list[Path]:
        """For each moment of failure that costs too much with this choice, the longest path of its recovery."""
        have: set[int] = set()
        new: list[Path] = []
        for at, made in [*moments(self.dag, self.run, self.speeds, chosen), (self.run.end_us, [])]:
            path = self._longest(have)
            if at + path.length_us > target_us:
                new.append(path)
            have.update(made)
        for path in new:
            self.found.setdefault(path)
        return new

    def _longest(self, saved: set[int]) -> Path:
        dag = self.dag
        ready = [0] * len(dag.data)
        before: list[int] = [-1] * len(dag.data)  # the input that an output waited for
        for datum in saved:
            ready[datum] = self.speeds.restore_us(dag.data[datum].bytes)
        for operation, runs in zip(dag.operations, needed(dag, saved), strict=True):
            if not runs:
                continue
            last = max(operation.inputs, key=ready.__getitem__, default=-1)
            done = operation.time_us + (ready[last] if last >= 0 else 0)
            for datum in operation.outputs:
                if datum not in saved:
                    ready[datum], before[datum] = done, last
        end = max(dag.results, key=ready.__getitem__)
        way: list[int] = []
        datum = end
        while datum >= 0 and datum not in saved:
            way.append(datum)
            datum = before[datum]
        return Path(ready[end], tuple(reversed(way)), datum if datum >= 0 else None)


def exact(paths: Paths, target_us: int) -> Cut | None:
    """The fewest bytes for a target, proven; None when no choice reaches it. Needs scipy.

    Where HiGHS does not end in time, the answer of `primal_dual` with its own bound.
    """
    quick = primal_dual(paths, target_us)  # finds most of the paths that bind, at no cost
    if quick is None or quick.exact:
        return quick
    if not paths.too_hard:
        try:
            return _exact(paths, target_us)
        except TimeoutError:
            paths.too_hard = True
    return quick


def _exact(paths: Paths, target_us: int) -> Cut | None:
    dag = paths.dag
    chosen: frozenset[int] = frozenset()
    bound = 0.0
    rows: dict[tuple[frozenset[int], int | None], None] = {}
    for path in paths.found:
        if not _add_row(rows, paths, path, target_us):
            return None
    for _ in range(ROUNDS_MAX):
        if rows:
            solved = _solve(paths, list(rows))
            if solved is None:
                return None
            chosen, bound = solved
        new = paths.violated(chosen, target_us)
        if not new:
            kept = _dropped(paths, chosen, target_us)
            return Cut(kept, dag.bytes_of(kept), bound, exact=True)
        for path in new:
            if not _add_row(rows, paths, path, target_us):
                return None
    raise TimeoutError


def _add_row(rows: dict[tuple[frozenset[int], int | None], None], paths: Paths, path: Path, target_us: int) -> bool:
    hits = paths.hits(path, target_us)
    if hits is not None:
        if not hits and path.restored is None:
            return False
        rows.setdefault((hits, path.restored))
    return True


def _solve(paths: Paths, rows: list[tuple[frozenset[int], int | None]]) -> tuple[frozenset[int], float] | None:
    import numpy as np
    from scipy import sparse
    from scipy.optimize import Bounds, LinearConstraint, milp

    used = sorted({d for hits, restored in rows for d in (hits if restored is None else hits | {restored})})
    column = {datum: at for at, datum in enumerate(used)}
    entries: list[tuple[int, int, float]] = []
    low: list[float] = []
    for at, (hits, restored) in enumerate(rows):
        entries += [(at, column[d], 1.0) for d in hits]
        if restored is not None:
            entries.append((at, column[restored], -1.0))
        low.append(1.0 if restored is None else 0.0)
    y, x, value = zip(*entries, strict=True)
    matrix: Any = sparse.csr_matrix((value, (y, x)), shape=(len(rows), len(used)))
    size = np.array([paths.dag.data[d].bytes for d in used], dtype=float)
    scale = max(float(size.max()), 1.0) / 1000  # sizes over many orders of magnitude make HiGHS stumble
    answer: Any = milp(
        size / scale,
        constraints=LinearConstraint(matrix, lb=cast(Any, np.array(low))),
        integrality=np.ones(len(used)),
        bounds=Bounds(0, 1),
        options={"mip_rel_gap": 0.0, "time_limit": SOLVER_SECONDS_MAX},
    )
    if answer.status == 1:
        raise TimeoutError
    if answer.x is None:
        return None
    bound = max(0.0, float(answer.mip_dual_bound) * scale)
    return frozenset(d for d, on in zip(used, answer.x, strict=True) if on > 0.5), bound


def primal_dual(paths: Paths, target_us: int) -> Cut | None:
    """Few bytes for a target, with a proven bound; None when no choice reaches it."""
    dag = paths.dag
    left = {d: float(dag.data[d].bytes) for d in paths.candidates}
    chosen = {d for d, price in left.items() if price == 0 and not paths.speeds.restore_us(0)}
    bound = 0.0
    while True:
        new = paths.violated(chosen, target_us)
        if not new:
            break
        for path in new:
            hits = paths.hits(path, target_us) or frozenset()
            if hits & chosen:
                continue  # an earlier path of this round already led here
            if not hits:
                if path.restored is None:
                    return None
                chosen.discard(path.restored)
                left.pop(path.restored, None)
                paths = _without(paths, path.restored)
                break
            price = min(left[d] for d in hits)
            if path.restored is None:
                bound += price
            for datum in hits:
                left[datum] -= price
            chosen.add(min((d for d in hits if left[d] <= 0), key=lambda d: (dag.data[d].bytes, d)))
    kept = _dropped(paths, chosen, target_us)
    return Cut(kept, dag.bytes_of(kept), bound, exact=dag.bytes_of(kept) <= bound)


def _dropped(paths: Paths, chosen: Iterable[int], target_us: int) -> frozenset[int]:
    """Without what the target does not need, largest first."""
    kept = frozenset(chosen)
    for datum in sorted(kept, key=lambda d: (-paths.dag.data[d].bytes, d)):
        if not paths.violated(kept - {datum}, target_us):
            kept -= {datum}
    return kept


def _without(paths: Paths, datum: int) -> Paths:
    """The same graph with one datum that may not be chosen: restoring it takes longer than it saves."""
    smaller = Paths(paths.dag, paths.speeds)
    smaller.candidates = [d for d in paths.candidates if d != datum]
    smaller.may = frozenset(smaller.candidates)
    return smaller
