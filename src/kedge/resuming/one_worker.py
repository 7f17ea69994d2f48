"""The fewest bytes for a target on one worker: exact, by one integer program (HiGHS through scipy).

On one worker a recovery takes the sum of the operations that it repeats, not the longest path. For each moment of
failure, just before an operation ends, a 0-1 variable says whether each operation is repeated: an output that is
needed and was not saved by then makes its operation repeat. Transfers are instant here, as in the paper's model.
"""

from __future__ import annotations

from typing import Any, cast

from kedge.errors import UsageError
from kedge.resuming.cuts import Cut
from kedge.resuming.dag import Dag
from kedge.resuming.schedule import Speeds, schedule

_ONE = Speeds(workers=1)


def fewest_bytes_of_one(dag: Dag, target_us: int, seconds_max: float = 10.0) -> Cut | None:
    """The smallest choice that keeps every failure within the target; None if nothing does.

    Where the solver runs out of time its best choice is given, with its proven bound; UsageError when it has none.
    """
    import numpy as np
    from scipy.optimize import Bounds, LinearConstraint, milp

    program = _Program(dag, target_us)
    if not program.moments:
        return Cut(frozenset(), 0, 0.0, exact=True)
    sizes = np.zeros(program.columns)
    sizes[: len(program.candidates)] = [dag.data[d].bytes for d in program.candidates]
    whole = np.zeros(program.columns)
    whole[: len(program.candidates)] = 1  # an operation is repeated wholly as soon as the choice is whole
    scale = max(float(sizes.max()), 1.0) / 1000
    answer: Any = milp(
        sizes / scale,
        constraints=LinearConstraint(program.matrix(), lb=cast(Any, np.array(program.low))),
        integrality=whole,
        bounds=Bounds(0, 1),
        options={"mip_rel_gap": 1e-6, "time_limit": seconds_max},
    )
    if answer.x is None:
        if answer.status == 2:
            return None
        raise UsageError(f"No choice was found in {seconds_max} s: give it more time, or a smaller graph.")
    chosen = frozenset(d for at, d in enumerate(program.candidates) if answer.x[at] > 0.5)
    bound = max(0.0, float(answer.mip_dual_bound) * scale)
    return Cut(chosen, dag.bytes_of(chosen), bound, exact=answer.status == 0)


class _Program:
    """Rows of `row . x >= low`: the choice first, then each moment's operations."""

    def __init__(self, dag: Dag, target_us: int) -> None:
        run = schedule(dag, speeds=_ONE)
        self._dag, self._ready = dag, run.ready_us
        self.candidates = [d for d in dag.candidates if run.ready_us[d] < run.end_us]
        ends = {max(run.ready_us[d] for d in op.outputs) for op in dag.operations}
        self.moments = [at for at in sorted(ends) if at + run.end_us > target_us]
        self.columns = len(self.candidates)
        self.low: list[float] = []
        self._entries: list[tuple[int, int, float]] = []
        self._column = {d: at for at, d in enumerate(self.candidates)}
        self._readers: dict[int, list[int]] = {}
        for index, op in enumerate(dag.operations):
            for datum in set(op.inputs):
                self._readers.setdefault(datum, []).append(index)
        for at in self.moments:
            self._moment(at, target_us)

    def matrix(self) -> Any:
        """All rows."""
        from scipy import sparse

        y, x, value = zip(*self._entries, strict=True)
        return sparse.csr_matrix((value, (y, x)), shape=(len(self.low), self.columns))

    def _moment(self, at_us: int, target_us: int) -> None:
        first = self.columns
        self.columns += len(self._dag.operations)
        for index, op in enumerate(self._dag.operations):
            for datum in op.outputs:
                saved = self._column.get(datum) if self._ready[datum] < at_us else None
                for reader in self._readers.get(datum, ()):
                    self._row({first + index: 1.0, first + reader: -1.0}, saved, 0.0)
                if datum in self._dag.results:
                    self._row({first + index: 1.0}, saved, 1.0)
        times = {first + i: -op.time_us / 1000 for i, op in enumerate(self._dag.operations) if op.time_us}
        self._row(times, None, (at_us - target_us) / 1000)

    def _row(self, entries: dict[int, float], saved: int | None, low: float) -> None:
        row = len(self.low)
        self._entries += [(row, column, value) for column, value in entries.items()]
        if saved is not None:
            self._entries.append((row, saved, 1.0))
        self.low.append(low)
