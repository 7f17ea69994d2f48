"""One structure in memory: what each cell holds now, and what the open layer changed. No history, no I/O.

Two kinds with one surface: `DictCells` for every structure, `IntCells` (Numba slot tables) for sets of integers.
`missing` says what a cell without an entry is: absent (the table is the truth) or UNKNOWN (it caches a remote one).

Invariants: `open()` is the minimal net change since the last `seal()`; `load()` states facts and logs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from kedge.state import table_ints
from kedge.state.delta import PRESENT, UNKNOWN, CellDelta, Delta, Flags, IntDelta, Ints, Old, cells_of

_CHUNK = 1 << 16
_SMALLEST = 1 << 10
_PAGE = 512  # words


class DictCells:
    """Cells as a dict, and the before-images of the open layer beside it."""

    def __init__(self, missing: Old = None) -> None:
        self.missing = missing
        self.now: dict[bytes, bytes | None] = {}
        self.before: dict[bytes, Old] = {}
        self.size = 0

    def get(self, cell: bytes) -> Old:
        """What the cell holds: bytes, None, or UNKNOWN."""
        return self.now.get(cell, self.missing)

    def put(self, news: Mapping[bytes, bytes | None]) -> CellDelta:
        """Write cells; returns what really changed."""
        done: dict[bytes, tuple[Old, bytes | None]] = {}
        now, before, missing, drops, gained = self.now, self.before, self.missing, self.missing is None, 0
        for cell, new in news.items():
            old = now.get(cell, missing)
            if old == new:  # UNKNOWN equals nothing
                continue
            done[cell] = (old, new)
            gained += (new is not None) - (old is not None and old is not UNKNOWN)
            if new is None and drops:
                del now[cell]
            else:
                now[cell] = new
        for cell in done.keys() - before.keys():
            before[cell] = done[cell][0]
        self.size += gained
        return CellDelta(done)

    def load(self, facts: Mapping[bytes, bytes | None]) -> None:
        """State what cells hold, outside the open layer."""
        for cell, new in facts.items():
            self._set(cell, self.get(cell), new)

    def open(self) -> CellDelta:
        """The net change of the open layer."""
        pairs = {cell: (old, self.now.get(cell)) for cell, old in self.before.items()}
        return CellDelta({cell: pair for cell, pair in pairs.items() if pair[0] is UNKNOWN or pair[0] != pair[1]})

    def seal(self) -> CellDelta:
        """Close the open layer and return its net change."""
        delta = self.open()
        self.before.clear()
        return delta

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """The cells that hold something."""
        return ((cell, value) for cell, value in self.now.items() if value is not None)

    def copy(self) -> DictCells:
        """An image: the same cells, with nothing open."""
        other = DictCells(self.missing)
        other.now, other.size = dict(self.now), self.size
        return other

    def _set(self, cell: bytes, old: Old, new: bytes | None) -> None:
        self.size += (new is not None) - (old is not None and old is not UNKNOWN)
        if new is None and self.missing is None:
            self.now.pop(cell, None)
        else:
            self.now[cell] = new


class IntCells:
    """A set of integers: a slot table, and the positions that the open layer touched."""

    def __init__(self, missing: Old = None) -> None:
        self.missing = missing
        self._absent = 2 if missing is UNKNOWN else 0
        self._table: Ints = np.zeros(2 * _SMALLEST, np.int64)
        self._log: Ints = np.empty(_SMALLEST, np.int64)
        self._codes: Flags = np.empty(_SMALLEST, np.uint8)
        self._logged, self._used, self._epoch = 0, 0, 2
        self._again = False  # whether a member changed twice in the open layer
        self.size = 0

    @property
    def entries(self) -> int:
        """Places taken, by absent members too."""
        return self._used

    def get_ints(self, keys: Ints) -> Flags:
        """0, 1 or 2 (unknown) for each member."""
        out = np.empty(len(keys), np.uint8)
        table_ints.get(self._table, keys, self._absent, out)
        return out

    def put_ints(self, keys: Ints, present: bool) -> int:
        """Make members present or absent; returns how many really changed."""
        changed_all = added = 0
        for start in range(0, len(keys), _CHUNK):
            part = keys[start : start + _CHUNK]
            self._reserve(len(part), added * (len(keys) - start) // _CHUNK)
            added, gained, changed, again, self._logged = table_ints.put(
                self._table, part, int(present), self._epoch, self._absent, self._log, self._codes, self._logged
            )
            self._again |= again > 0
            self._used += added
            self.size += gained
            changed_all += changed
        return changed_all

    def load_ints(self, keys: Ints, flags: Flags) -> None:
        """State which members are there, outside the open layer."""
        for start in range(0, len(keys), _CHUNK):
            part = keys[start : start + _CHUNK]
            self._reserve(len(part))
            added, gained = table_ints.load(self._table, part, flags[start : start + _CHUNK])
            self._again |= (
                added < len(part) and self._logged > 0
            )  # a slot may have changed under the open layer's log
            self._used += added
            self.size += int(gained)

    def get(self, cell: bytes) -> Old:
        """One member by its text."""
        flag = self.get_ints(np.array([int(cell)], np.int64))[0]
        return (None, PRESENT, UNKNOWN)[flag]

    def open(self) -> IntDelta:
        """The net change of the open layer."""
        if not self._again:
            codes = self._codes[: self._logged]
            return IntDelta(self._log[: self._logged].copy(), codes >> np.uint8(1), codes & np.uint8(1))
        keys = np.empty(self._logged, np.int64)
        old, new = np.empty(self._logged, np.uint8), np.empty(self._logged, np.uint8)
        count = table_ints.changes(self._table, self._log, self._logged, keys, old, new)
        return IntDelta(keys[:count], old[:count], new[:count])

    def seal(self) -> IntDelta:
        """Close the open layer: the next epoch sees every slot as untouched."""
        delta = self.open()
        self._epoch += 1
        self._logged, self._again = 0, False
        return delta

    def ints(self) -> Ints:
        """The present members, in no order."""
        out = np.empty(self._used, np.int64)
        return out[: table_ints.present(self._table, out)]

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """The members as cells."""
        return ((b"%d" % key, PRESENT) for key in self.ints().tolist())

    def copy(self) -> IntCells:
        """An image: the same members, with nothing open."""
        other = IntCells(self.missing)
        other._table = self._table.copy()
        other._used, other._epoch, other.size = self._used, self._epoch + 1, self.size
        return other

    def widen(self) -> DictCells:
        """The same structure as a dict, for members that are not integers."""
        wide = DictCells(self.missing)
        wide.load(dict(self.items()))
        if self.missing is UNKNOWN:
            keys = self._known_absent()
            wide.load({b"%d" % key: None for key in keys.tolist()})
        wide.before = {cell: old for cell, (old, _) in self.open().to_cells().changes.items()}
        return wide

    def _known_absent(self) -> Ints:
        slots = self._table[1::2]
        return self._table[0::2][(slots != 0) & (slots & 1 == 0)]

    def _reserve(self, more: int, likely: int = 0) -> None:
        """Room for `more` entries; when the table has to grow for them, for the `likely` ones as well."""
        if self._logged + more > len(self._log):
            room = max(2 * len(self._log), self._logged + max(more, likely))
            log, codes = np.empty(room, np.int64), np.empty(room, np.uint8)
            log[: self._logged], codes[: self._logged] = self._log[: self._logged], self._codes[: self._logged]
            self._log, self._codes = log, codes
        capacity = len(self._table) >> 1
        if (self._used + more) * 5 <= capacity * 3:
            return
        while (self._used + max(more, likely)) * 5 > capacity * 3:
            capacity *= 2
        table = np.zeros(2 * capacity, np.int64)
        table[::_PAGE] = 0  # written before it is read: a page that is read first is zeroed twice, in small pages
        self._used = table_ints.rehash(self._table, table, int(self._absent == 2), self._epoch)
        self._table = table


Cells = DictCells | IntCells


def load_delta(cells: Cells, delta: Delta) -> Cells:
    """Write what `delta` leaves behind, outside the open layer; returns the cells, widened if they had to be."""
    if isinstance(cells, IntCells):
        if isinstance(delta, IntDelta):
            cells.load_ints(delta.keys, delta.new)
            return cells
        if not len(delta):
            return cells
        cells = cells.widen()
    cells.load(cells_of(delta).news())
    return cells
