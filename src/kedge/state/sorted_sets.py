"""Sorted sets: members with scores, ordered by (score, member's bytes) as Redis does."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from threading import RLock
from typing import Any

from kedge.errors import UsageError
from kedge.state.collection import View, Writes, as_list, encoded
from kedge.state.readers import Live
from kedge.state.values import Value


class SortedSetView(View):
    """A sorted set at some version."""

    def __contains__(self, member: Any) -> bool:
        return self._one(self._encode(member)) is not None

    def score(self, member: Any) -> float | None:
        """The score of a member, or None."""
        value = self._one(self._encode(member))
        return None if value is None else float(value)

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

    def __iter__(self) -> Iterator[Value]:
        return iter([member for member, _ in self.range()])

    def to_dict(self) -> dict[Value, float]:
        """A plain copy, in order."""
        return dict(self.range())

    def _ordered(self) -> list[tuple[float, bytes]]:
        return sorted((float(value), cell) for cell, value in self._items())

    def __repr__(self) -> str:
        return f"<sorted set {self.spec.name!r}: {len(self)} members>"


class SortedSet(SortedSetView, Writes):
    """A versioned sorted set.

    >>> delays.update({"b1": 3.0, "b2": 1.0}); delays.range()[0]
    ('b2', 1.0)
    """

    def __init__(self, live: Live, lock: RLock) -> None:
        super().__init__(live, lock)
        self._live = live

    def add(self, member: Value, score: float) -> None:
        """Add a member, or give it another score."""
        self.update({member: score})

    def update(self, members: Any, scores: Any = None) -> None:
        """Add many: from a mapping, or from two columns of members and scores."""
        if scores is None:
            if not isinstance(members, Mapping):
                raise UsageError("update() takes a mapping, or a column of members and one of scores.")
            members, scores = list(members.keys()), list(members.values())
        cells = encoded(as_list(members), self._type)
        values = [_score(score) for score in as_list(scores)]
        if len(cells) != len(values):
            raise UsageError(f"update() got {len(cells)} members and {len(values)} scores.")
        if cells:
            args = [part for pair in zip(cells, values, strict=True) for part in pair]
            with self._lock:
                self._live.write("update", args, dict(zip(cells, values, strict=True)))

    def incr(self, member: Value, amount: float = 1.0) -> float:
        """Add to a score (a missing one is 0) and return the sum."""
        with self._lock:
            total = (self.score(member) or 0.0) + amount
            self.update({member: total})
        return total

    def discard(self, *members: Value) -> None:
        """Remove members; those that are not there change nothing."""
        cells = encoded(members, self._type)
        if cells:
            with self._lock:
                self._live.write("discard", cells, dict.fromkeys(cells))

    def clear(self) -> None:
        """Remove all members."""
        with self._lock:
            self.discard(*self)


def _score(score: Any) -> bytes:
    number = float(score)
    if math.isnan(number):
        raise UsageError("A score can't be NaN: it has no place in an order.")
    return repr(number + 0.0).encode()  # -0.0 becomes 0.0
