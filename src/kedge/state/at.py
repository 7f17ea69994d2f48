"""Reading another version while the store moves on: each read looks at the versions as they are then.

Invariant: a snapshot holds no copy. What it lays over the live structure is made again when the store has changed,
and a version that was dropped since then is a UsageError, not an old answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from kedge.errors import UsageError
from kedge.state.collection import Gate
from kedge.state.commands import Spec
from kedge.state.counters import CounterView
from kedge.state.delta import Flags, Ints
from kedge.state.lists import ListView
from kedge.state.maps import MapView
from kedge.state.readers import Reader
from kedge.state.sets import SetView
from kedge.state.sorted_sets import SortedSetView


class Views(Protocol):
    """What a snapshot needs of a backend."""

    specs: dict[str, Spec]
    tick: int

    def view(self, name: str, version: int) -> Reader:
        """A structure at a version."""
        ...


class _Following:
    """A reader that is made again when the store has changed."""

    def __init__(self, backend: Views, name: str, version: int) -> None:
        self.spec = backend.specs[name]
        self._backend, self._version, self._tick = backend, version, backend.tick
        self._reader = backend.view(name, version)

    def _now(self) -> Reader:
        if self._tick != self._backend.tick:
            self._reader = self._backend.view(self.spec.name, self._version)
            self._tick = self._backend.tick
        return self._reader

    def get(self, cells: list[bytes]) -> list[bytes | None]:
        return self._now().get(cells)

    def get_ints(self, keys: Ints) -> Flags:
        return self._now().get_ints(keys)

    def count(self) -> int:
        return self._now().count()

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        return self._now().items()

    def ints(self) -> Ints | None:
        return self._now().ints()


class Snapshot:
    """All structures at one version, to read."""

    def __init__(self, backend: Views, version: int, lock: Gate) -> None:
        self._backend, self.version, self._lock = backend, version, lock

    def set(self, name: str) -> SetView:
        """The set of this name at the version."""
        return SetView(self._reader(name, "set"), self._lock)

    def map(self, name: str) -> MapView:
        """The map of this name at the version."""
        return MapView(self._reader(name, "map"), self._lock)

    def counter(self, name: str) -> CounterView:
        """The counter of this name at the version."""
        return CounterView(self._reader(name, "counter"), self._lock)

    def list(self, name: str) -> ListView:
        """The list of this name at the version."""
        return ListView(self._reader(name, "list"), self._lock)

    def sorted_set(self, name: str) -> SortedSetView:
        """The sorted set of this name at the version."""
        return SortedSetView(self._reader(name, "sorted_set"), self._lock)

    def __repr__(self) -> str:
        return f"<version {self.version} of a store, to read>"

    def _reader(self, name: str, kind: str) -> Reader:
        with self._lock:
            spec = self._backend.specs.get(name)
            if spec is None or spec.kind != kind:
                named = ", ".join(one.name for one in self._backend.specs.values() if one.kind == kind)
                raise UsageError(f"There is no {kind} {name!r} in this store. There are: {named or 'none'}.")
            return _Following(self._backend, name, self.version)
