"""Inputs made exact, and the balance limits: no node above `cap`, and none below `floor` where one is asked for.

All planning is in integers, so that a limit is met or it is not. Work that is given as whole numbers is taken as it
is, and decimals of up to six places are exact too. Other work, and a total beyond 2^61, is scaled to a total of about
2^52 and rounded, which moves a limit by less than one part in 10^12.
The threshold is read as the decimal it is written as: tau = 0.1 is a tenth, not the nearest binary fraction.
"""

from __future__ import annotations

from collections.abc import Collection, Set
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kedge.errors import UsageError

Ints = NDArray[np.int64]
Nodes = int | Collection[int]

_WORK_TOTAL = 2.0**52
_TOTAL_MAX = 2.0**61
_WEIGHT_MAX = 1 << 61
_DECIMALS = (10.0, 100.0, 1_000.0, 1e4, 1e5, 1e6)
_NODES_MAX = 1 << 16
_NODE_MAX = (1 << 31) - 1


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
    owner = _route(route)
    exact_work, scale = _whole("work", work, len(owner))
    exact_size, size_scale = _whole("size", size, len(owner))
    if size_scale != 1.0:
        raise UsageError("Sizes are whole bytes; round them first.")
    if (int(exact_size.sum()) + 1) * (len(owner) + 1) >= _WEIGHT_MAX:
        raise UsageError("The state is too large to plan in bytes; give the sizes in kilobytes.")
    count, allowed = _nodes(nodes)
    return Problem(owner, exact_work, exact_size, count, allowed, scale)


def _array(values: Any) -> NDArray[Any]:
    """The values as an array, or one of no dimension where they are no numbers at all."""
    try:
        return np.asarray(values)
    except (ValueError, TypeError, OverflowError):  # ragged lists, or no list
        return np.asarray(None)


def _route(route: ArrayLike) -> Ints:
    owner = _array(route)
    good = owner.ndim == 1 and len(owner) > 0 and owner.dtype.kind in "iuf"
    if not good or (
        owner.dtype.kind == "f" and not (np.isfinite(owner).all() and (owner == np.floor(owner)).all())
    ):
        raise UsageError("A route is a non-empty list of node numbers (0 or more), one for each task.")
    if owner.min() < 0 or owner.max() > _NODE_MAX:
        raise UsageError(f"A route has node numbers from 0 to {_NODE_MAX}; give each node a smaller one.")
    return owner.astype(np.int64)


def _nodes(nodes: Nodes) -> tuple[int, tuple[int, ...] | None]:
    if isinstance(nodes, int | np.integer) and not isinstance(nodes, bool):
        if not 1 <= nodes <= _NODES_MAX:
            raise UsageError(f"{nodes} nodes can't serve; ask for 1 to {_NODES_MAX:,}.")
        return int(nodes), None
    named = _array(sorted(nodes) if isinstance(nodes, Set) else nodes)
    if named.ndim != 1 or len(named) == 0 or named.dtype.kind not in "iu" or len(named) > _NODES_MAX:
        raise UsageError(f"Say how many nodes will serve, or name each by its number; {nodes!r} is neither.")
    allowed = tuple(sorted({int(node) for node in named}))
    if len(allowed) != len(named) or allowed[0] < 0 or allowed[-1] > _NODE_MAX:
        raise UsageError(f"Name each node that will serve once, by a number from 0 to {_NODE_MAX}.")
    return len(allowed), allowed


def _whole(name: str, values: ArrayLike, tasks: int) -> tuple[Ints, float]:
    """The values as whole numbers, and by what they were multiplied."""
    array = _array(values)
    if array.dtype.kind == "O" and array.shape == (tasks,) and _all_whole(array):
        array = array.astype(np.float64)  # whole numbers beyond 64 bits
    if array.shape != (tasks,) or array.dtype.kind not in "iuf":
        raise UsageError(f"Give one number of {name} for each of the {tasks} tasks.")
    plain = array.dtype.kind != "f"
    if not (plain or np.isfinite(array).all()) or array.min() < 0:
        raise UsageError(f"The {name} of a task is a finite number of 0 or more.")
    largest = float(array.max())
    if plain or (array == np.floor(array)).all():
        if largest * tasks < _TOTAL_MAX or float(array.astype(np.float64).sum()) < _TOTAL_MAX:
            return array.astype(np.int64), 1.0
        if name == "size":
            raise UsageError("The state is too large to plan in bytes; give the sizes in kilobytes.")
        array = array.astype(np.float64)  # too large to add up exactly
    for scale in _DECIMALS:
        if largest * scale * tasks < _WORK_TOTAL and (np.rint(array * scale) / scale == array).all():
            return np.rint(array * scale).astype(np.int64), scale
    total = float((array / largest).sum())
    scale = _WORK_TOTAL / total / largest
    return np.rint(array / largest * (_WORK_TOTAL / total)).astype(np.int64), scale


def _all_whole(array: NDArray[Any]) -> bool:
    return all(isinstance(value, int) and not isinstance(value, bool) for value in array.tolist())


@lru_cache(maxsize=256)
def _decimal(value: float) -> Fraction:
    return Fraction(str(value))


def _fraction(name: str, value: Any) -> Fraction:
    """A limit as the decimal that it is written as."""
    try:
        if isinstance(value, np.floating) and not isinstance(value, float):
            return Fraction(str(value))
        return _decimal(value) if isinstance(value, float) else Fraction(value)
    except (ValueError, TypeError, OverflowError):
        raise UsageError(f"{name} is {value!r}; it has to be a finite number.") from None


def as_float(tau: Any) -> float:
    """A threshold, however it was given, as a plan reports it."""
    return tau if type(tau) is float else float(_fraction("tau", tau))


def share(total: int, nodes: int, tau: float) -> int:
    """The most whole work that is within (1 + tau) * total / nodes, computed exactly; never more than all."""
    exact = _fraction("tau", tau)
    if exact < 0:
        raise UsageError(f"tau is {tau}; it says how far above the mean a node may go, so it is 0 or more.")
    return min(total, (exact.numerator + exact.denominator) * total // (exact.denominator * nodes))


def least_share(total: int, nodes: int, least: float) -> int:
    """The smallest whole work that is at least `least` * total / nodes, computed exactly."""
    exact = _fraction("least", least)
    if not 0 <= exact <= 1:
        raise UsageError(f"least is {least}; it is the share of the mean that every node gets, from 0 to 1.")
    return -(-exact.numerator * total // (exact.denominator * nodes))


def tau_of(load: int, total: int, nodes: int) -> float:
    """The threshold at which `load` is just allowed, rounded up so that asking for it is enough."""
    if total == 0:
        return 0.0
    exact = Fraction(load * nodes, total) - 1
    tau = max(0.0, float(exact))
    while Fraction(str(tau)) < exact:
        tau = float(np.nextafter(tau, np.inf))
    return tau
