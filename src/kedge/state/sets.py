"""Sets: Python's names (`add`, `discard`, `in`, `len`, iteration), and arrays wherever members go."""

from __future__ import annotations

from collections.abc import Iterator
from threading import RLock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kedge.state.collection import View, Writes, as_ints, as_list, encoded
from kedge.state.delta import PRESENT
from kedge.state.readers import Live
from kedge.state.values import Value


class SetView(View):
    """A set at some version."""

    def __contains__(self, member: Any) -> bool:
        return self._one(self._encode(member)) is not None

    def contains(self, members: Any) -> NDArray[np.bool_]:
        """Membership of many at once, as an array of booleans in their order."""
        keys = as_ints(members) if self._type in ("any", "int") else None
        with self._lock:
            if keys is not None:
                return self._reader.get_ints(keys) == 1
            found = self._reader.get(encoded(as_list(members), self._type))
        return np.array([value is not None for value in found], np.bool_)

    def __iter__(self) -> Iterator[Value]:
        return iter(self.members())

    def members(self) -> set[Value]:
        """All members."""
        with self._lock:
            keys = self._reader.ints()
        if keys is not None:
            return set(keys.tolist())
        return {self._decode(cell) for cell, _ in self._items()}

    def __repr__(self) -> str:
        return f"<set {self.spec.name!r}: {len(self)} members>"


class Set(SetView, Writes):
    """A versioned set.

    >>> buses.add("b1", "b2"); buses.discard("b2"); "b1" in buses
    True
    """

    def __init__(self, live: Live, lock: RLock) -> None:
        super().__init__(live, lock)
        self._live = live

    def add(self, *members: Value) -> None:
        """Add members; those that are there already change nothing."""
        self._write("add", members)

    def discard(self, *members: Value) -> None:
        """Remove members; those that are not there change nothing."""
        self._write("discard", members)

    def update(self, members: Any) -> None:
        """Add all members of an array or iterable."""
        self._write("add", members)

    def difference_update(self, members: Any) -> None:
        """Remove all members of an array or iterable."""
        self._write("discard", members)

    def remove(self, member: Value) -> None:
        """Remove a member that must be there."""
        with self._lock:
            if member not in self:
                raise KeyError(member)
            self.discard(member)

    def clear(self) -> None:
        """Remove all members."""
        with self._lock:
            keys = self._live.ints()
            if keys is not None:
                self._live.write_ints("discard", keys)
                return
            cells: list[bytes] = [cell for cell, _ in self._items()]
            self._live.write("discard", cells, dict.fromkeys(cells))

    def _write(self, verb: str, members: Any) -> None:
        if isinstance(members, Iterator):
            members = list(members)
        keys = as_ints(members) if self._type in ("any", "int") else None
        if keys is not None:
            if len(keys):
                with self._lock:
                    self._live.write_ints(verb, keys)
            return
        cells = encoded(as_list(members), self._type)
        if cells:
            with self._lock:
                self._live.write(verb, cells, dict.fromkeys(cells, PRESENT if verb == "add" else None))
