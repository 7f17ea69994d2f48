"""Sets: the names of Python's `set`, and arrays wherever members go.

What combines two sets (`|`, `&`, `-`, `^`, `<=`, `==`) reads all of this one and gives a plain Python set.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kedge.state.collection import Gate, View, Writes, as_ints, as_list, encoded, spread
from kedge.state.delta import PRESENT
from kedge.state.readers import Live
from kedge.state.values import Value


class SetView(View, AbstractSet[Value]):
    """A set at some version."""

    __hash__ = None  # type: ignore[assignment]  (it changes, like any set)

    def __contains__(self, member: Any) -> bool:
        return self._has(member)

    def contains(self, members: Any) -> NDArray[np.bool_]:
        """Membership of many at once, as an array of booleans in their order."""
        keys = as_ints(members) if self._type in ("any", "int") else None
        with self._lock:
            if keys is not None:
                return self._reader.get_ints(keys) == 1
            found = self._reader.get(encoded(as_list(members), self._type))
        return np.array([value is not None for value in found], np.bool_)

    def __len__(self) -> int:
        return self._size()

    def __iter__(self) -> Iterator[Value]:
        return iter(self.members())

    def members(self) -> set[Value]:
        """All members, as a plain copy."""
        with self._lock:
            keys = self._reader.ints()
        if keys is not None:
            return set(keys.tolist())
        return {self._decode(cell) for cell, _ in self._items()}

    # --- algebra: the operators, and Python's names for them ------------------------------------------------------

    @classmethod
    def _from_iterable(cls, it: Any) -> Any:
        return set(it)

    def __eq__(self, other: object) -> bool:
        return self.members() == _plain(other) if isinstance(other, AbstractSet) else NotImplemented

    def __le__(self, other: Any) -> bool:
        return self.members() <= _plain(other) if isinstance(other, AbstractSet) else NotImplemented

    def __ge__(self, other: Any) -> bool:
        return self.members() >= _plain(other) if isinstance(other, AbstractSet) else NotImplemented

    def __and__(self, other: Any) -> Any:
        return self.members() & _plain(other) if isinstance(other, AbstractSet) else NotImplemented

    __rand__ = __and__

    def union(self, *others: Any) -> set[Value]:
        """All members, and those of the others."""
        return self.members().union(*others)

    def intersection(self, *others: Any) -> set[Value]:
        """The members that are in all the others too."""
        return self.members().intersection(*others)

    def difference(self, *others: Any) -> set[Value]:
        """The members that are in none of the others."""
        return self.members().difference(*others)

    def symmetric_difference(self, other: Any) -> set[Value]:
        """What is in one of the two only."""
        return self.members().symmetric_difference(other)

    def issubset(self, other: Any) -> bool:
        """Whether all members are in the other."""
        return self.members().issubset(other)

    def issuperset(self, other: Any) -> bool:
        """Whether all of the other's members are here."""
        return self.members().issuperset(other)

    def _preview(self) -> list[Value]:
        return sorted(self.members(), key=str)

    def __repr__(self) -> str:
        return f"<set {self.spec.name!r}: {len(self)} members>"


class Set(SetView, Writes):
    """A versioned set.

    >>> buses.add("b1", "b2"); buses.discard("b2"); "b1" in buses
    True
    """

    def __init__(self, live: Live, lock: Gate) -> None:
        super().__init__(live, lock)
        self._live = live

    def add(self, *members: Any) -> None:
        """Add members, or one array of members; those that are there already change nothing."""
        self._write("add", spread(members))

    def discard(self, *members: Any) -> None:
        """Remove members, or one array of members; those that are not there change nothing."""
        self._write("discard", spread(members))

    def update(self, *columns: Any) -> None:
        """Add all members of arrays or iterables."""
        self._write("add", _together(columns))

    def difference_update(self, *columns: Any) -> None:
        """Remove all members of arrays or iterables."""
        self._write("discard", _together(columns))

    def intersection_update(self, *columns: Any) -> None:
        """Keep only the members that are in all of the others."""
        with self._lock:
            self._write("discard", self.members().difference(set[Value].intersection(*map(_plain, columns))))

    def symmetric_difference_update(self, members: Any) -> None:
        """Remove what is in both, add what is only in the other: two calls, one after the other."""
        with self._lock:
            here, others = self.members(), _plain(members)
            self._write("discard", here & others)
            self._write("add", others - here)

    def remove(self, member: Any) -> None:
        """Remove a member that must be there."""
        with self._lock:
            if member not in self:
                raise KeyError(member)
            self.discard(member)

    def pop(self) -> Value:
        """Remove some member and return it. It reads the whole set."""
        with self._lock:
            for member in self:
                self.discard(member)
                return member
        raise KeyError(f"pop from set {self.spec.name!r}, which is empty")

    def clear(self) -> None:
        """Remove all members."""
        with self._lock:
            keys = self._live.ints()
            if keys is not None:
                self._live.write_ints("discard", keys)
                return
            cells: list[bytes] = [cell for cell, _ in self._items()]
            if cells:
                self._live.write("discard", cells, dict.fromkeys(cells))

    def __ior__(self, members: Any) -> Set:
        self.update(members)
        return self

    def __isub__(self, members: Any) -> Set:
        self.difference_update(members)
        return self

    def __iand__(self, members: Any) -> Set:
        self.intersection_update(members)
        return self

    def __ixor__(self, members: Any) -> Set:
        self.symmetric_difference_update(members)
        return self

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


def _plain(other: Any) -> set[Any]:
    return other.members() if isinstance(other, SetView) else set(as_list(other))


def _together(columns: tuple[Any, ...]) -> Any:
    return columns[0] if len(columns) == 1 else [member for column in columns for member in as_list(column)]
