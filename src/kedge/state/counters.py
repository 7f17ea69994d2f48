"""Counters: one integer, which other clients read as plain text."""

from __future__ import annotations

from functools import total_ordering
from typing import Any

import numpy as np

from kedge.errors import UsageError
from kedge.state.collection import Gate, View, Writes
from kedge.state.readers import Live

_CELL = b""


@total_ordering
class CounterView(View):
    """A counter at some version. It compares with numbers, and `int()` gives its value."""

    __hash__ = None  # type: ignore[assignment]  (it changes)

    @property
    def value(self) -> int:
        """What it stands at; 0 when nothing was ever counted."""
        return int(self._one(_CELL) or 0)

    def __int__(self) -> int:
        return self.value

    def __index__(self) -> int:
        return self.value

    def __bool__(self) -> bool:
        return self.value != 0

    def __eq__(self, other: object) -> bool:
        return self.value == _number(other)

    def __lt__(self, other: Any) -> bool:
        return self.value < _number(other)

    def _preview(self) -> list[int]:
        return [self.value]

    def __repr__(self) -> str:
        return f"<counter {self.spec.name!r}: {self.value}>"


class Counter(CounterView, Writes):
    """A versioned counter.

    >>> rides.incr(); rides.incr(5); rides.value
    6
    """

    def __init__(self, live: Live, lock: Gate) -> None:
        super().__init__(live, lock)
        self._live = live

    def incr(self, amount: Any = 1) -> int:
        """Count, and return the new value."""
        if isinstance(amount, bool) or not isinstance(amount, int | np.integer):
            raise UsageError(
                f"{amount!r} can't be counted: a counter holds an integer. A map has incr() for floats."
            )
        with self._lock:
            total = self.value + int(amount)
            self._live.write("incr", [b"%d" % amount], {_CELL: b"%d" % total if total else None})
        return total

    def decr(self, amount: Any = 1) -> int:
        """Count down, and return the new value."""
        return self.incr(-amount)

    def clear(self) -> None:
        """Back to 0."""
        with self._lock:
            self.incr(-self.value)

    def __iadd__(self, amount: int) -> Counter:
        self.incr(amount)
        return self

    def __isub__(self, amount: int) -> Counter:
        self.decr(amount)
        return self


def _number(other: Any) -> Any:
    return other.value if isinstance(other, CounterView) else other
