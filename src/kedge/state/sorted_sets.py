"""Sorted sets: maps of members to scores, ordered by (score, member's bytes) as Redis does."""

from __future__ import annotations

import math
from typing import Any

from kedge.errors import UsageError
from kedge.state.collection import Gate, encoded
from kedge.state.maps import Map, MapView
from kedge.state.readers import Live, Reader
from kedge.state.values import Value


class SortedSetView(MapView):
    """A sorted set at some version. It iterates in order."""

    def __init__(self, reader: Reader, lock: Gate) -> None:
        super().__init__(reader, lock)
        self._values = "float"

    def score(self, member: Any) -> float | None:
        """The score of a member, or None."""
        return self.get(member)

    def rank(self, member: Any) -> int | None:
        """How many members stand before this one, or None when it is not there."""
        cell = self._encode(member)
        ordered = [cell for _, cell in self._ordered()]
        return ordered.index(cell) if cell in ordered else None

    def range(self, start: int = 0, stop: int | None = None, *, reverse: bool = False) -> list[tuple[Value, float]]:
        """Members with scores by rank, from `start` up to but not including `stop`, as a slice would."""
        ordered = self._ordered()
        if reverse:
            ordered.reverse()
        return [(self._decode(cell), score) for score, cell in ordered[start:stop]]

    def range_by_score(self, low: float, high: float) -> list[tuple[Value, float]]:
        """Members whose score is from `low` to `high`, both included."""
        return [(self._decode(cell), score) for score, cell in self._ordered() if low <= score <= high]

    def _ordered(self) -> list[tuple[float, bytes]]:
        return sorted((float(value), cell) for cell, value in self._items())

    def pairs(self) -> list[tuple[Value, Any]]:
        """Everything, in order."""
        return list(self.range())

    _preview = pairs

    def __repr__(self) -> str:
        return f"<sorted set {self.spec.name!r}: {len(self)} members>"


class SortedSet(SortedSetView, Map):
    """A versioned sorted set: all that a map does, in order.

    >>> delays.update({"b1": 3.0, "b2": 1.0}); delays.range()[0]
    ('b2', 1.0)
    """

    def __init__(self, live: Live, lock: Gate) -> None:
        super().__init__(live, lock)
        self._live = live

    def add(self, member: Any, score: float | None = None) -> None:
        """Add a member or give it another score; a mapping adds many."""
        self.update(member if score is None else {member: score})

    def remove(self, member: Any) -> None:
        """Remove a member that must be there."""
        self.pop(member)

    def incr(self, field: Any, amount: Any = 1.0) -> float:
        """Add to a score (a missing one is 0) and return the sum."""
        return super().incr(field, amount)

    def pop_min(self) -> tuple[Value, float]:
        """Remove the first member and return it with its score."""
        return self._pop_at(0)

    def pop_max(self) -> tuple[Value, float]:
        """Remove the last member and return it with its score."""
        return self._pop_at(-1)

    def _pop_at(self, rank: int) -> tuple[Value, float]:
        with self._lock:
            ordered = self.range()
            if not ordered:
                raise KeyError(f"{self!r} is empty")
            self.discard(ordered[rank][0])
        return ordered[rank]

    def _contents(self, values: list[Any]) -> list[bytes]:
        encoded(values, "float")
        if any(math.isnan(value) for value in values):
            raise UsageError("A score can't be NaN: it has no place in an order.")
        return [repr(float(value) + 0.0).encode() for value in values]  # -0.0 becomes 0.0
