"""What a structure reads from and writes to: the seam between the collections and the backends.

`Reader` answers for cells; `Live` also writes them, as part of the open layer. `Overlay` is a reader of another
moment: a base reader with the net change between the two laid over it, so that its cost is what changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

import numpy as np

from kedge.state.commands import Spec
from kedge.state.delta import CellDelta, Delta, Flags, IntDelta, Ints, cells_of
from kedge.state.listplan import HEAD, TAIL


class Reader(Protocol):
    """One structure at one moment."""

    spec: Spec

    def get(self, cells: list[bytes]) -> list[bytes | None]:
        """What each cell holds."""
        ...

    def get_ints(self, keys: Ints) -> Flags:
        """For a set of integers: 1 for each member that is there."""
        ...

    def count(self) -> int:
        """How many cells hold something (a list's bounds included)."""
        ...

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """The cells that hold something, in no order."""
        ...

    def ints(self) -> Ints | None:
        """All members, when this is a set of integers kept as such."""
        ...


class Live(Reader, Protocol):
    """One structure now."""

    def write(self, verb: str, args: list[bytes], news: Mapping[bytes, bytes | None]) -> None:
        """Make a call that leaves `news` in its cells."""
        ...

    def write_ints(self, verb: str, keys: Ints) -> None:
        """`add` or `discard` integer members."""
        ...

    @property
    def scheme(self) -> str:
        """How changes are logged."""
        ...

    def switch(self, scheme: str) -> None:
        """Log changes another way from now on."""
        ...


class Overlay:
    """A reader of another moment: `delta` leads from the moment of `base` to this one."""

    def __init__(self, base: Reader, delta: Delta) -> None:
        self.spec, self._base = base.spec, base
        self._ints = delta if isinstance(delta, IntDelta) else None
        if self._ints is not None:
            order = np.argsort(self._ints.keys)
            self._keys, self._flags = self._ints.keys[order], self._ints.new[order]
        self._delta = delta
        self._cells: CellDelta | None = None

    @property
    def _changes(self) -> CellDelta:
        if self._cells is None:
            self._cells = cells_of(self._delta)
        return self._cells

    def get(self, cells: list[bytes]) -> list[bytes | None]:
        """From the overlay, else from the base."""
        changes = self._changes.changes
        rest = [cell for cell in cells if cell not in changes]
        found = dict(zip(rest, self._base.get(rest), strict=True)) if rest else {}
        return [changes[cell][1] if cell in changes else found[cell] for cell in cells]

    def get_ints(self, keys: Ints) -> Flags:
        """From the overlay, else from the base, in bulk."""
        flags = self._base.get_ints(keys)
        if self._ints is None:
            for at, key in enumerate(keys.tolist()):
                pair = self._changes.changes.get(b"%d" % key)
                if pair is not None:
                    flags[at] = pair[1] is not None
        elif len(self._keys):
            where = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
            hit = self._keys[where] == keys
            flags[hit] = self._flags[where[hit]]
        return flags

    def count(self) -> int:
        """The base's count and what the overlay adds to it."""
        changes = self._changes.changes
        olds = self._base.get(list(changes))
        gained = sum(
            (new is not None) - (old is not None) for old, (_, new) in zip(olds, changes.values(), strict=True)
        )
        return self._base.count() + gained

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """The base's cells, with the overlay's in their place."""
        changes = self._changes.changes
        for cell, value in self._base.items():
            if cell not in changes:
                yield cell, value
        for cell, (_, new) in changes.items():
            if new is not None:
                yield cell, new

    def ints(self) -> Ints | None:
        """All members, in bulk."""
        base = self._base.ints()
        if base is None or self._ints is None:
            return None if len(self._delta) else base
        return np.union1d(np.setdiff1d(base, self._ints.where(0)), self._ints.where(1))


def bounds(reader: Reader) -> tuple[int, int]:
    """A list's head and tail; 0, 0 for anything else."""
    if reader.spec.kind != "list":
        return 0, 0
    head, tail = reader.get([HEAD, TAIL])
    return int(head or 0), int(tail or 0)
