"""Counters: one integer, which other clients read as plain text."""

from __future__ import annotations

from threading import RLock

from kedge.state.collection import View, Writes
from kedge.state.readers import Live

_CELL = b""


class CounterView(View):
    """A counter at some version."""

    @property
    def value(self) -> int:
        """What it stands at; 0 when nothing was ever counted."""
        return int(self._one(_CELL) or 0)

    def __int__(self) -> int:
        return self.value

    def __index__(self) -> int:
        return self.value

    def __repr__(self) -> str:
        return f"<counter {self.spec.name!r}: {self.value}>"


class Counter(CounterView, Writes):
    """A versioned counter.

    >>> rides.incr(); rides.incr(5); rides.value
    6
    """

    def __init__(self, live: Live, lock: RLock) -> None:
        super().__init__(live, lock)
        self._live = live

    def incr(self, amount: int = 1) -> int:
        """Count, and return the new value."""
        with self._lock:
            total = self.value + amount
            self._live.write("incr", [b"%d" % amount], {_CELL: b"%d" % total if total else None})
        return total

    def decr(self, amount: int = 1) -> int:
        """Count down, and return the new value."""
        return self.incr(-amount)
