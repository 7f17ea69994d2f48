"""Net changes, and their algebra: `Delta` is {cell: (old, new)} of one structure between two moments.

Invariants:
- A delta is minimal: no cell has old == new, and each cell appears once.
- `chain(a, b)` is "a, then b": (old of a, new of b), equal pairs dropped. It is associative, so any combination of
  versions gives the same result; a union of adds and of removes would not (a member removed and added again).
- `inverse` swaps old and new; it needs every old value. `UNKNOWN` stands for an old value that was not read
  (log mode on Redis writes blindly); `complete` fills it in.

Two forms: `CellDelta` is a dict of bytes, for every structure; `IntDelta` is two columns, for sets of integers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InternalError

UNKNOWN: Final = object()
PRESENT: Final = b""  # the value of a set's member; None is absent
Old: TypeAlias = object  # bytes, None (absent) or UNKNOWN
Ints: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.uint8]  # 0 absent, 1 present, 2 unknown


@dataclass
class CellDelta:
    """Net changes of any structure: {cell: (old, new)}, None for absent."""

    changes: dict[bytes, tuple[Old, bytes | None]] = field(default_factory=dict[bytes, tuple[Old, bytes | None]])

    def __len__(self) -> int:
        return len(self.changes)

    @property
    def nbytes(self) -> int:
        """About how much memory it takes."""
        return sum(len(cell) + _size(old) + _size(new) for cell, (old, new) in self.changes.items())

    def inverse(self) -> CellDelta:
        """The way back."""
        return CellDelta({cell: (new, known(old)) for cell, (old, new) in self.changes.items()})

    def unknown(self) -> list[bytes]:
        """The cells whose old value was not read."""
        return [cell for cell, (old, _) in self.changes.items() if old is UNKNOWN]

    def complete(self, olds: dict[bytes, bytes | None]) -> CellDelta:
        """With the old values of the unknown cells filled in, and what did not change dropped."""
        filled = {cell: (olds[cell] if old is UNKNOWN else old, new) for cell, (old, new) in self.changes.items()}
        return CellDelta({cell: pair for cell, pair in filled.items() if pair[0] != pair[1]})

    def news(self) -> dict[bytes, bytes | None]:
        """What each cell holds afterwards."""
        return {cell: new for cell, (_, new) in self.changes.items()}


@dataclass
class IntDelta:
    """Net changes of a set of integers: its members with the flags before and after, in no order."""

    keys: Ints
    old: Flags
    new: Flags

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def nbytes(self) -> int:
        """How much memory it takes."""
        return self.keys.nbytes + self.old.nbytes + self.new.nbytes

    def inverse(self) -> IntDelta:
        """The way back."""
        if (self.old == 2).any():
            raise InternalError("A delta with unread old values was inverted; complete it first.")
        return IntDelta(self.keys, self.new, self.old)

    def unknown(self) -> Ints:
        """The members that nobody looked up."""
        return self.keys[self.old == 2]

    def complete(self, olds: Flags) -> IntDelta:
        """With the flags of `unknown()` filled in, in its order; what did not change is dropped."""
        old = self.old.copy()
        old[old == 2] = olds
        keep = old != self.new
        return IntDelta(self.keys[keep], old[keep], self.new[keep])

    def where(self, new: int) -> Ints:
        """The members that end up present (1) or absent (0)."""
        return self.keys[self.new == new]

    def to_cells(self) -> CellDelta:
        """The same changes, cell by cell."""
        values: list[Old] = [None, PRESENT, UNKNOWN]
        rows = zip(self.keys.tolist(), self.old.tolist(), self.new.tolist(), strict=True)
        return CellDelta({b"%d" % key: (values[old], PRESENT if new else None) for key, old, new in rows})


def _size(value: Old) -> int:
    return len(value) if isinstance(value, bytes) else 0


Delta: TypeAlias = CellDelta | IntDelta


def known(old: Old) -> bytes | None:
    """An old value that must have been read."""
    if old is UNKNOWN:
        raise InternalError("A delta with unread old values was inverted; complete it first.")
    return old  # type: ignore[return-value]


def cells_of(delta: Delta) -> CellDelta:
    """The general form."""
    return delta.to_cells() if isinstance(delta, IntDelta) else delta


def distinct(keys: Ints) -> Ints:
    """Sorted, each once. (`np.unique` goes through a hash table, at ten times the time of this sort.)"""
    keys = np.sort(keys)
    if len(keys) > 1:
        first = np.ones(len(keys), np.bool_)
        np.not_equal(keys[1:], keys[:-1], out=first[1:])
        if not first.all():
            keys = keys[first]
    return keys


def chain(deltas: Iterable[Delta]) -> Delta:
    """One delta for several in a row; the newest value wins, the oldest before-image stays."""
    parts = [delta for delta in deltas if len(delta)]
    if not parts:
        return CellDelta()
    if len(parts) == 1:
        return parts[0]
    ints = [part for part in parts if isinstance(part, IntDelta)]
    if len(ints) == len(parts):
        return _chain_ints(ints)
    merged: dict[bytes, tuple[Old, bytes | None]] = {}
    for part in parts:
        for cell, (old, new) in cells_of(part).changes.items():
            first = merged.get(cell)
            merged[cell] = (old if first is None else first[0], new)
    return CellDelta({cell: pair for cell, pair in merged.items() if pair[0] is UNKNOWN or pair[0] != pair[1]})


def _chain_ints(parts: list[IntDelta]) -> IntDelta:
    keys = np.concatenate([part.keys for part in parts])
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    old = np.concatenate([part.old for part in parts])[order]
    new = np.concatenate([part.new for part in parts])[order]
    starts = np.ones(len(keys), np.bool_)
    starts[1:] = keys[1:] != keys[:-1]
    first = np.flatnonzero(starts)
    last = np.append(first[1:], len(keys)) - 1
    old, new, keys = old[first], new[last], keys[first]
    keep = old != new
    return IntDelta(keys[keep], old[keep], new[keep])


def completed(delta: Delta, fetch: Callable[[list[bytes]], list[bytes | None]]) -> Delta:
    """`delta` with every old value read by `fetch`, which answers for a list of cells."""
    if isinstance(delta, IntDelta):
        asked = [b"%d" % key for key in delta.unknown().tolist()]
        if not asked:
            return delta
        return delta.complete(np.array([value is not None for value in fetch(asked)], np.uint8))
    asked = delta.unknown()
    return delta.complete(dict(zip(asked, fetch(asked), strict=True))) if asked else delta
