"""The migration transition matrix: how likely n nodes are followed by n', learned from history or given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kedge.errors import UsageError
from kedge.move.limits import Ints


@dataclass(frozen=True)
class Transitions:
    """matrix[n - lowest, n' - lowest] is the probability that n nodes are followed by n'."""

    lowest: int
    matrix: NDArray[np.float64]

    def __post_init__(self) -> None:
        matrix = self.matrix
        square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] and len(matrix) > 0
        if self.lowest < 1 or not square or (matrix < 0).any() or not np.allclose(matrix.sum(axis=1), 1.0):
            raise UsageError(
                "A transition matrix is square, its rows add up to 1, and it starts at one node or more."
            )

    @property
    def counts(self) -> range:
        """The node counts that it knows."""
        return range(self.lowest, self.lowest + len(self.matrix))

    def path(self, start: int, steps: int, seed: int) -> Ints:
        """A random sequence of node counts after `start`."""
        rng = np.random.default_rng(seed)
        sums = np.cumsum(self.matrix, axis=1)
        path = np.empty(steps, np.int64)
        now = start - self.lowest
        for t, u in enumerate(rng.random(steps)):
            now = min(int(np.searchsorted(sums[now], u, side="right")), len(sums) - 1)
            path[t] = now + self.lowest
        return path

    def often(self) -> NDArray[np.float64]:
        """How often each node count occurs in the long run."""
        size = len(self.matrix)
        lazy = 0.5 * (self.matrix + np.eye(size))
        return np.full(size, 1.0 / size) @ np.linalg.matrix_power(lazy, 4096)


def transitions(matrix: ArrayLike, lowest: int) -> Transitions:
    """The matrix itself, for `lowest` nodes and up."""
    try:
        return Transitions(lowest, np.asarray(matrix, np.float64))
    except (ValueError, TypeError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError("A transition matrix is a square of probabilities, a row for each node count.") from None


def learned(history: Sequence[int], *, prior: float = 0.0) -> Transitions:
    """Count what followed what in a history of node counts; `prior` is added to every pair within its range.

    Leave out repeats if a plan is made only when the count changes. A count that was only seen last is taken to
    stay as it is.

    >>> learned([2, 3, 2, 3, 4, 3]).matrix.round(2).tolist()
    [[0.0, 1.0, 0.0], [0.5, 0.0, 0.5], [0.0, 1.0, 0.0]]
    """
    seen = np.asarray(history)
    if seen.ndim != 1 or len(seen) < 2 or seen.dtype.kind not in "iu" or seen.min() < 1:
        raise UsageError("A history has two or more node counts of one or more.")
    if not 0 <= prior < np.inf:
        raise UsageError(f"prior is {prior}; it is added to the counts, so it is 0 or more.")
    lowest, size = int(seen.min()), int(seen.max() - seen.min()) + 1
    counts = np.full((size, size), float(prior))
    np.add.at(counts, (seen[:-1] - lowest, seen[1:] - lowest), 1.0)
    rows = counts.sum(axis=1)
    counts[rows == 0, rows == 0] = 1.0
    return Transitions(lowest, counts / counts.sum(axis=1, keepdims=True))
