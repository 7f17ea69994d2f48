"""One structure of a store on Redis, in one of three modes that its scheme asks for.

- `track` (undo): the base is current. A call writes the base and appends its delta, old values included, to the
  open list, in one transaction. Old values come from memory when this writer has seen the cell, else from one read.
- `redo` and `command` are blind: the base stays at version `base_at`; a call appends only its packed delta or
  itself, and reads look into memory first, then at the base.
- `image` (full): the base is current and nothing is logged; a version is a copy.

A mode begins with a layer: a switch waits for the next checkpoint when this layer has changes already, but leaving
a blind mode folds at once. Invariants: memory (`local`) never disagrees with the store, because there is one
writer; in a blind mode, every cell that changed since the base is in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from kedge.state.cells import Cells, DictCells, IntCells, load_delta
from kedge.state.commands import Raw, Spec
from kedge.state.delta import (
    PRESENT,
    UNKNOWN,
    CellDelta,
    Delta,
    Flags,
    IntDelta,
    Ints,
    Old,
    cells_of,
    chain,
    distinct,
    known,
)
from kedge.state.listplan import HEAD, TAIL, bound
from kedge.state.pack import blind
from kedge.state.readers import Overlay
from kedge.state.redis_base import RedisBase

if TYPE_CHECKING:
    from kedge.state.redis_store import RedisStore

CACHED_MAX = 1 << 22  # cells kept in memory before a checkpoint starts afresh


class RedisLive:
    """A structure, to read and write."""

    def __init__(self, spec: Spec, owner: RedisStore, mode: str, base_at: int) -> None:
        self.spec, self._owner = spec, owner
        self.mode, self.base_at = mode, base_at
        self.base = RedisBase(spec, owner.link, owner.keys)
        self.sealed: list[Delta] = []  # blind: the layers between the base and the current version
        self.local = self._fresh()
        self._count: int | None = None  # blind: the size, once it was asked for
        self._uncounted: list[Delta] = []
        self._bounds: tuple[int, int] | None = None

    def _fresh(self) -> Cells:
        ints = self.spec.kind == "set" and self.spec.type in ("any", "int")
        return IntCells(UNKNOWN) if ints else DictCells(UNKNOWN)

    @property
    def blind(self) -> bool:
        """Whether the base lags behind."""
        return self.mode in ("redo", "command")

    # --- reading --------------------------------------------------------------------------------------------------

    def get(self, cells: list[bytes]) -> list[bytes | None]:
        """From memory, and the rest from the base."""
        if self.spec.kind == "list":
            return self._get_list(cells)
        found = [self._local(cell) for cell in cells]
        asked = [cell for cell, value in zip(cells, found, strict=True) if value is UNKNOWN]
        if asked:
            answers = dict(zip(asked, self.base.get(asked), strict=True))
            self._learn(answers)
            found = [answers[cell] if value is UNKNOWN else value for cell, value in zip(cells, found, strict=True)]
        return [known(value) for value in found]

    def _local(self, cell: bytes) -> Old:
        if isinstance(self.local, IntCells):
            return self.local.get(cell) if _is_int64(cell) else UNKNOWN
        return self.local.get(cell)

    def _learn(self, facts: dict[bytes, bytes | None]) -> None:
        if isinstance(self.local, IntCells):
            keys = [int(cell) for cell in facts if _is_int64(cell)]
            flags = [value is not None for cell, value in facts.items() if _is_int64(cell)]
            self.local.load_ints(np.array(keys, np.int64), np.array(flags, np.uint8))
        else:
            self.local.load(facts)

    def _get_list(self, cells: list[bytes]) -> list[bytes | None]:
        """Positions outside the bounds are empty without asking; the base knows only its own bounds."""
        head, tail = self.bounds()
        assert isinstance(self.local, DictCells)
        found: dict[bytes, Old] = {}
        for cell in cells:
            if not self._inside(cell, (head, tail)):
                self.local.load({cell: None})
            found[cell] = self.local.get(cell)
        asked = [cell for cell, value in found.items() if value is UNKNOWN]
        if asked:
            answers = dict(zip(asked, self.base.get(asked), strict=True))
            self.local.load(answers)
            found.update(answers)
        return [known(found[cell]) for cell in cells]

    def bounds(self) -> tuple[int, int]:
        """A list's head and tail now."""
        assert isinstance(self.local, DictCells)
        edges = [self.local.get(HEAD), self.local.get(TAIL)]
        if UNKNOWN in edges:
            fetched = self.base.get([HEAD, TAIL])
            facts = {c: f for c, f, e in zip((HEAD, TAIL), fetched, edges, strict=True) if e is UNKNOWN}
            self.local.load(facts)
            edges = [self.local.get(HEAD), self.local.get(TAIL)]
        return bound(known(edges[0])), bound(known(edges[1]))

    def get_ints(self, keys: Ints) -> Flags:
        """Membership of integers, in bulk."""
        if not isinstance(self.local, IntCells):
            found = self.get([b"%d" % key for key in keys.tolist()])
            return np.array([value is not None for value in found], np.uint8)
        flags = self.local.get_ints(keys)
        unknown = flags == 2
        if unknown.any():
            asked = keys[unknown]
            answers = self.base.get_ints(asked)
            self.local.load_ints(asked, answers)
            flags[unknown] = answers
        return flags

    def count(self) -> int:
        """SCARD and the like; in blind mode corrected by what changed, each cell asked for once."""
        if not self.blind:
            return self.base.count()
        if self.spec.kind == "list":
            head, tail = self.bounds()
            return tail - head
        if self._count is None:
            self._count, self._uncounted = self.base.count(), [self.pending()]
        for delta in self._uncounted:
            self._count += self._gain(delta)
        self._uncounted = []
        return self._count

    def _gain(self, delta: Delta) -> int:
        """How many cells a blind delta adds to the base."""
        if isinstance(delta, IntDelta):
            old = delta.old.copy()
            old[old == 2] = self.base.get_ints(delta.unknown())
            return int(delta.new.sum()) - int(old.sum())
        asked = delta.unknown()
        olds = dict(zip(asked, self.base.get(asked), strict=True))
        pairs = [
            (olds.get(cell) if old is UNKNOWN else old, new) for cell, (old, new) in cells_of(delta).changes.items()
        ]
        return sum((new is not None) - (old is not None) for old, new in pairs)

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """All cells."""
        return self._whole().items()

    def ints(self) -> Ints | None:
        """All members of a set of integers."""
        return self._whole().ints()

    def _whole(self) -> RedisBase | Overlay:
        return Overlay(self.base, self.pending()) if self.blind else self.base

    def pending(self) -> Delta:
        """Blind: the net change from the base to now. The layers are chained when somebody asks, and once."""
        self.sealed = [chain(self.sealed)]
        return chain([*self.sealed, self.local.open()])

    # --- writing --------------------------------------------------------------------------------------------------

    @property
    def scheme(self) -> str:
        """How changes are logged."""
        return self.spec.scheme

    def switch(self, scheme: str) -> None:
        """Log another way from now on, or from the next layer."""
        self._owner.switch(self, replace(self.spec, scheme=scheme))

    def write(self, verb: str, args: list[bytes], news: Mapping[bytes, bytes | None]) -> None:
        """One call, as one transaction."""
        if isinstance(self.local, IntCells):
            self.local = self.local.widen()
        before = self.bounds() if self.spec.kind == "list" else (0, 0)
        if self._must_look():
            self.get(list(news))
        elif self.spec.kind == "list":
            self._get_list([cell for cell in news if not self._inside(cell, before)])
        done = self.local.put(news)
        wrote = CellDelta(dict(done.changes)) if self.spec.kind in ("counter", "list") else None
        self._log(done, Raw(self.spec.name, verb, args, wrote), before)

    def _must_look(self) -> bool:
        """Whether old values matter: for the delta, or to know whether this call diverges."""
        return self.mode == "track" or bool(self._owner.line.later())

    @staticmethod
    def _inside(cell: bytes, edges: tuple[int, int]) -> bool:
        return cell in (HEAD, TAIL) or edges[0] <= int(cell) < edges[1]

    def write_ints(self, verb: str, keys: Ints) -> None:
        """One call on integer members."""
        present = verb == "add"
        if not isinstance(self.local, IntCells):
            cells = [b"%d" % key for key in keys.tolist()]
            self.write(verb, cells, dict.fromkeys(cells, PRESENT if present else None))
            return
        members = distinct(keys)
        flags = self.get_ints(members) if self._must_look() else self.local.get_ints(members)
        differs = flags != int(present)
        changed, old = members[differs], flags[differs]
        self.local.put_ints(changed, present)
        done = IntDelta(changed, old, np.full(len(changed), int(present), np.uint8))
        self._log(done, Raw(self.spec.name, verb, keys), (0, 0))

    def _log(self, done: Delta, raw: Raw, before: tuple[int, int]) -> None:
        """Make a call durable: the base, the open entry, both, as the mode asks."""
        if self.blind:
            raws = [raw] if self.mode == "command" else []
            self._uncount(done)
            if raws or len(done):
                self._owner.append(self, None if raws else blind(done), raws, [], changed=len(done) > 0)
            return
        if len(done):
            entry = done if self.mode == "track" else None
            self._owner.append(self, entry, [], self.base.write(done, before), changed=True)

    def _uncount(self, done: Delta) -> None:
        if self._count is None or not len(done):
            return
        if isinstance(done, IntDelta):
            sure = done.old != 2
            self._count += int(done.new[sure].sum()) - int(done.old[sure].sum())
            done = IntDelta(done.keys[~sure], done.old[~sure], done.new[~sure])
        else:
            pairs = [(old, new) for old, new in done.changes.values() if old is not UNKNOWN]
            self._count += sum((new is not None) - (old is not None) for old, new in pairs)
            done = CellDelta({cell: pair for cell, pair in done.changes.items() if pair[0] is UNKNOWN})
        if len(done):
            self._uncounted.append(done)

    # --- layers ---------------------------------------------------------------------------------------------------

    def seal(self) -> Delta:
        """Close the open layer and return its net change; a full memory starts afresh when it may."""
        delta = self.local.seal()
        if self.blind:
            self.sealed.append(delta)
        elif self.cached() > CACHED_MAX:
            self.forget()
        return delta

    def cached(self) -> int:
        """Cells in memory."""
        return self.local.entries if isinstance(self.local, IntCells) else len(self.local.now)

    def forget(self) -> None:
        """Start afresh: nothing in memory, nothing open."""
        self.local = self._fresh()
        self._count, self._uncounted = None, []

    def reload(self, sealed: Delta) -> None:
        """Start afresh in blind mode, with what has changed since the base."""
        self.forget()
        self.sealed = [sealed]
        self.local = load_delta(self.local, sealed)

    def restore_open(self, delta: Delta) -> None:
        """Take up an open layer that another process (or another mode) wrote."""
        if isinstance(self.local, IntCells) and isinstance(delta, IntDelta):
            sure = delta.old != 2
            self.local.load_ints(delta.keys[sure], delta.old[sure])
            self.local.put_ints(delta.where(1), True)
            self.local.put_ints(delta.where(0), False)
            return
        if isinstance(self.local, IntCells):
            self.local = self.local.widen()
        changes = cells_of(delta).changes
        self.local.load({cell: known(old) for cell, (old, _) in changes.items() if old is not UNKNOWN})
        self.local.put({cell: new for cell, (_, new) in changes.items()})


def _is_int64(cell: bytes) -> bool:
    try:
        number = int(cell)
    except ValueError:
        return False
    return b"%d" % number == cell and -(1 << 63) <= number < 1 << 63
