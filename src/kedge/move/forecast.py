"""What a route will cost later: the interface of the two forecasts, and how their precomputation is spread out.

`Table` (pmc.py) knows the projected cost of every partition; `Learned` (learn.py) prices intervals. Both choose the
assignment that is cheapest now plus later; `aware` in future.py calls them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kedge.move.limits import Ints, Problem

Floats = NDArray[np.float64]
Block = tuple[int, int]
Job = Callable[[int, int], Floats]
# Runs a job on every block of rows and returns the results in the order of the blocks.
Map = Callable[[Job, Sequence[Block]], list[Floats]]


class Forecast(Protocol):
    """Chooses a partition in view of the moves to come."""

    @property
    def error(self) -> float | None:
        """The stated error: of a table certified, as a share of all state; of a learned forecast measured on a
        replica, relative to the optimum's cost."""
        ...

    def choose(self, given: Problem, sums: Ints, old: Ints, cap: int, floor: int) -> Ints | None:
        """The bounds of the best partition from the current one; None if it knows none that keeps the limits."""
        ...


def here(job: Job, blocks: Sequence[Block]) -> list[Floats]:
    """Run the blocks one after the other in this thread."""
    return [job(start, stop) for start, stop in blocks]


def threads(workers: int) -> Map:
    """A map that runs blocks on threads of this process; kernels release the interpreter's lock."""

    def run(job: Job, blocks: Sequence[Block]) -> list[Floats]:
        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(lambda block: job(*block), blocks))

    return run


def blocks(rows: int, most: int) -> list[Block]:
    """Cut `rows` rows into at most `most` blocks of nearly equal length."""
    edges = np.linspace(0, rows, min(rows, most) + 1).astype(int)
    return [(int(a), int(b)) for a, b in pairwise(edges)]
