"""Inputs made exact, and the balance limits: no node above `cap`, and none below `floor` where one is asked for.

All planning is in integers, so that a limit is met or it is not. Work that is given as whole numbers is taken as it
is; other work is scaled to a total of about 2^52 and rounded, which moves a limit by less than one part in 10^12.
The threshold is read as the decimal it is written as: tau = 0.1 is a tenth, not the nearest binary fraction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kedge.errors import UsageError

Ints = NDArray[np.int64]
Nodes = int | Sequence[int]

_WORK_TOTAL = 2.0**52
_WEIGHT_MAX = 1 << 61


@dataclass(frozen=True)
class Problem:
    """A checked instance: who has which task now, what each weighs, and which nodes there will be.

    `allowed` is None when any nodes may stay, and otherwise the node ids that will serve.
    """

    route: Ints
    work: Ints
    size: Ints
    nodes: int
    allowed: tuple[int, ...] | None
    work_scale: float

    @property
    def tasks(self) -> int:
        """How many tasks there are (m)."""
        return len(self.route)

    def weights(self) -> Ints:
        """What keeping a task is worth: its bytes first, and among equal bytes every task counts one."""
        weights = self.size * (self.tasks + 1) + 1
        if self.allowed is not None:
            weights = np.where(np.isin(self.route, self.allowed), weights, 0)
        return weights


def problem(route: ArrayLike, work: ArrayLike, size: ArrayLike, nodes: Nodes) -> Problem:
    """Check one instance and make it exact."""
    owner = np.asarray(route)
    if owner.ndim != 1 or len(owner) == 0 or owner.dtype.kind not in "iu" or int(owner.min()) < 0:
        raise UsageError("A route is a non-empty list of node numbers (0 or more), one for each task.")
    exact_work, scale = _whole("work", work, len(owner))
    exact_size, size_scale = _whole("size", size, len(owner))
    if size_scale != 1.0:
        raise UsageError("Sizes are whole bytes; round them first.")
    if (int(exact_size.sum()) + 1) * (len(owner) + 1) >= _WEIGHT_MAX:
        raise UsageError("The state is too large to plan in bytes; give the sizes in kilobytes.")
    count, allowed = _nodes(nodes)
    return Problem(owner.astype(np.int64), exact_work, exact_size, count, allowed, scale)


def _nodes(nodes: Nodes) -> tuple[int, tuple[int, ...] | None]:
    if isinstance(nodes, int | np.integer):
        if nodes < 1:
            raise UsageError(f"{nodes} nodes can't serve; ask for one or more.")
        return int(nodes), None
    allowed = tuple(sorted({int(node) for node in nodes}))
    if not allowed or len(allowed) != len(nodes) or allowed[0] < 0:
        raise UsageError("Name each node that will serve once, by a number of 0 or more.")
    return len(allowed), allowed


def _whole(name: str, values: ArrayLike, tasks: int) -> tuple[Ints, float]:
    array: NDArray[Any] = np.asarray(values)
    if array.shape != (tasks,) or array.dtype.kind not in "iuf":
        raise UsageError(f"Give one number of {name} for each of the {tasks} tasks.")
    if not np.isfinite(array).all() or array.min() < 0:
        raise UsageError(f"The {name} of a task is a finite number of 0 or more.")
    if float(array.sum()) >= 2.0**61:
        raise UsageError(f"The {name} is too large to add up exactly; give it in a larger unit.")
    if array.dtype.kind != "f" or (array == np.floor(array)).all():
        return array.astype(np.int64), 1.0
    scale = _WORK_TOTAL / float(array.sum())
    return np.rint(array * scale).astype(np.int64), scale


def share(total: int, nodes: int, tau: float) -> int:
    """The most whole work that is within (1 + tau) * total / nodes, computed exactly."""
    exact = Fraction(str(tau)) if isinstance(tau, float) else Fraction(tau)
    if exact < 0:
        raise UsageError(f"tau is {tau}; it says how far above the mean a node may go, so it is 0 or more.")
    return int((1 + exact) * total / nodes)


def least_share(total: int, nodes: int, least: float) -> int:
    """The smallest whole work that is at least `least` * total / nodes, computed exactly."""
    exact = Fraction(str(least)) if isinstance(least, float) else Fraction(least)
    if not 0 <= exact <= 1:
        raise UsageError(f"least is {least}; it is the share of the mean that every node gets, from 0 to 1.")
    return -int(-exact * total // nodes)


def tau_of(load: int, total: int, nodes: int) -> float:
    """The threshold at which `load` is just allowed, rounded up so that asking for it is enough."""
    if total == 0:
        return 0.0
    exact = Fraction(load * nodes, total) - 1
    tau = max(0.0, float(exact))
    while Fraction(str(tau)) < exact:
        tau = float(np.nextafter(tau, np.inf))
    return tau
