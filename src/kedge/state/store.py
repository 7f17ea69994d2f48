"""The versioned store: named structures, and the versions of all of them together.

A version is made by `checkpoint()` and covers every structure. `rollback` and `forward` move between versions and
drop nothing; the first change after a rollback diverges and drops the versions after it, as an editor's undo does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from kedge.errors import UsageError
from kedge.host import Clock
from kedge.state import showing
from kedge.state.at import Snapshot
from kedge.state.collection import Gate
from kedge.state.commands import Command, Raw, Spec, check_scheme, command, net, told
from kedge.state.counters import Counter
from kedge.state.delta import Delta, cells_of
from kedge.state.line import Line, Version, kept
from kedge.state.listplan import HEAD, TAIL
from kedge.state.lists import List
from kedge.state.maps import Map
from kedge.state.readers import Live, Reader, bounds
from kedge.state.sets import Set
from kedge.state.sink import Sink
from kedge.state.sorted_sets import SortedSet
from kedge.state.values import TYPES, Value, decode


class Backend(Protocol):
    """Where a store lives. Deltas that `between` returns are complete where they lead backwards."""

    specs: dict[str, Spec]
    tick: int
    unsettled: bool  # whether versions that a change has dropped would come back after a crash

    @property
    def line(self) -> Line:
        """The versions that exist, and the current one."""
        ...

    def create(self, spec: Spec) -> None:
        """A new structure, empty at every version there is."""
        ...

    def live(self, name: str) -> Live:
        """A structure, to read and write."""
        ...

    def checkpoint(self, key: str | None) -> Version:
        """Close the open layer."""
        ...

    def flush(self) -> None:
        """Make the open layer durable, where calls alone do not."""
        ...

    def goto(self, version: int) -> None:
        """Discard the open layer and make another version current."""
        ...

    def between(self, name: str, start: int, end: int) -> Delta:
        """The net change of a structure from one version to another, with every old value."""
        ...

    def view(self, name: str, version: int) -> Reader:
        """A structure at a version."""
        ...

    def raws(self, number: int) -> list[Raw]:
        """The calls that were logged for a version."""
        ...

    def compact(self, stay: list[int]) -> None:
        """Keep only these versions."""
        ...

    def close(self) -> None:
        """Let go."""
        ...


@dataclass(frozen=True)
class Change:
    """One cell that differs between two versions: a member, a field, or an index (of the first version's list)."""

    structure: str
    kind: str
    cell: Value | None
    old: Value | None
    new: Value | None


S = TypeVar("S", Set, Map, Counter, List, SortedSet)


class Store:
    """Versioned structures. Open one with `kedge.store(url)`; it is also a context manager.

    >>> store = kedge.store("memory:"); buses = store.set("buses"); buses.add("b1"); v = store.checkpoint()
    >>> buses.discard("b1"); store.rollback(v); "b1" in buses
    True
    """

    def __init__(self, url: str, backend: Backend, clock: Clock, scheme: str = "undo") -> None:
        self.url, self._scheme, self._clock = url, check_scheme(scheme), clock
        self._backend, self._gate = backend, Gate(url)
        self._limits: dict[str, Any] = {}

    # --- structures -----------------------------------------------------------------------------------------------

    def set(self, name: str, type: str = "any", *, scheme: str | None = None) -> Set:  # noqa: A002
        """The set of this name; it is created when there is none."""
        return self._structure(Set, Spec(name, "set", type), scheme)

    def map(self, name: str, type: str = "any", values: str = "any", *, scheme: str | None = None) -> Map:  # noqa: A002
        """The map of this name."""
        return self._structure(Map, Spec(name, "map", type, values), scheme)

    def counter(self, name: str, *, scheme: str | None = None) -> Counter:
        """The counter of this name."""
        return self._structure(Counter, Spec(name, "counter", "int"), scheme)

    def list(self, name: str, type: str = "any", *, scheme: str | None = None) -> List:  # noqa: A002
        """The list of this name."""
        return self._structure(List, Spec(name, "list", type), scheme)

    def sorted_set(self, name: str, type: str = "any", *, scheme: str | None = None) -> SortedSet:  # noqa: A002
        """The sorted set of this name."""
        return self._structure(SortedSet, Spec(name, "sorted_set", type), scheme)

    def structures(self) -> dict[str, Spec]:
        """What there is, by name."""
        with self._gate:
            return dict(self._backend.specs)

    def switch(self, scheme: str) -> None:
        """Another scheme for every structure, and for those that are created from now on."""
        check_scheme(scheme)
        with self._gate:
            for name, spec in self.structures().items():
                if spec.scheme != scheme:
                    self._backend.live(name).switch(scheme)
            self._scheme = scheme

    def _structure(self, kind: Callable[[Live, Gate], S], spec: Spec, scheme: str | None) -> S:
        with self._gate:
            if scheme is not None:
                check_scheme(scheme)
            _check_name(spec.name)
            there = self._backend.specs.get(spec.name)
            if there is None:
                _check_types(spec)
                self._backend.create(Spec(spec.name, spec.kind, spec.type, spec.values, scheme or self._scheme))
            elif there.kind != spec.kind:
                raise UsageError(
                    f"{spec.name!r} is a {there.kind} in {self.url}, not a {spec.kind}. Take another name."
                )
            elif ("any" != spec.type != there.type) or ("any" != spec.values != there.values):
                raise UsageError(f"{spec.name!r} was created with type {there.type!r} and values {there.values!r}.")
            structure = kind(self._backend.live(spec.name), self._gate)
            if there is not None and scheme is not None and scheme != structure.scheme:
                structure.scheme = scheme
            return structure

    # --- versions -------------------------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """The current version: the last one made or moved to."""
        return self._backend.line.at

    def versions(self) -> list[Version]:
        """All versions that can be reached, oldest first."""
        with self._gate:
            return list(self._backend.line.versions.values())

    def checkpoint(self, key: str | None = None) -> int:
        """Make a version of everything in the store and return its number. `key` names it for `find`."""
        with self._gate:
            number = self._backend.checkpoint(key).number
            if self._limits:
                self.compact(**self._limits)
            return number

    def find(self, key: str) -> int | None:
        """The version that was made with this key."""
        found = [version.number for version in self.versions() if version.key == key]
        return found[-1] if found else None

    def flush(self) -> None:
        """Make the changes since the last checkpoint durable too (on Redis they are already)."""
        with self._gate:
            self._backend.flush()

    def rollback(self, version: int | None = None) -> int:
        """Go back to a version, by default the last checkpoint; what was changed since that is undone."""
        with self._gate:
            line = self._backend.line
            target = line.check(line.at if version is None else version)
            if target > line.at:
                raise UsageError(f"Version {target} is after the current one ({line.at}); use forward({target}).")
            self._backend.goto(target)
            return target

    def forward(self, version: int | None = None) -> int:
        """Go to a later version again, by default the last one; a change since the rollback has dropped them."""
        with self._gate:
            line = self._backend.line
            target = line.check(line.numbers()[-1] if version is None else version)
            if target < line.at:
                raise UsageError(f"Version {target} is before the current one ({line.at}); use rollback({target}).")
            if target > line.at:
                self._backend.goto(target)
            return target

    def at(self, version: int) -> Snapshot:
        """Everything as it was at a version, to read; the store itself does not move."""
        with self._gate:
            self._backend.line.check(version)
            return Snapshot(self._backend, version, self._gate)

    def changes(self, start: int, end: int, *, structure: str | None = None) -> list[Change]:
        """The cells that differ between two versions, in either direction; of one structure or of all."""
        with self._gate:
            specs = self._between(start, end, structure)
            return [change for spec in specs for change in self._changes(spec, start, end)]

    def _between(self, start: int, end: int, structure: str | None) -> list[Spec]:
        """The structures that a question about two versions is about."""
        self._backend.line.check(start)
        self._backend.line.check(end)
        specs = self._backend.specs
        if structure is None:
            return list(specs.values())
        if structure not in specs:
            raise UsageError(f"There is no structure {structure!r}. There are: {', '.join(specs) or 'none'}.")
        return [specs[structure]]

    def _changes(self, spec: Spec, start: int, end: int) -> Iterator[Change]:
        delta = cells_of(self._backend.between(spec.name, start, end))
        head = bounds(self._backend.view(spec.name, start))[0] if spec.kind == "list" and len(delta) else 0
        for cell, (old, new) in delta.changes.items():
            if spec.kind == "list":
                if cell not in (HEAD, TAIL):
                    yield Change(
                        spec.name, spec.kind, int(cell) - head, _value(old, spec.type), _value(new, spec.type)
                    )
            elif spec.kind == "counter":
                yield Change(spec.name, spec.kind, None, _value(old or b"0", "int"), _value(new or b"0", "int"))
            else:
                values = "float" if spec.kind == "sorted_set" else spec.values
                cells = (decode(cell, spec.type), _value(old, values), _value(new, values))
                yield Change(spec.name, spec.kind, *(cells if spec.kind != "set" else _membership(cells)))

    def replay(self, start: int, end: int, *, raw: bool = False, structure: str | None = None) -> list[Command]:
        """The commands that lead from one version to another: the shortest ones, or with `raw` those really called.

        Each can be applied to another store with `command.apply(store)`. Raw commands lead forwards only, and are
        kept of what was changed under the scheme `command`; where some were not kept, that is a UsageError.
        """
        with self._gate:
            specs = self._between(start, end, structure)
            if raw:
                return self._raw(start, end, specs)
            found: list[Command] = []
            for spec in specs:
                delta = self._backend.between(spec.name, start, end)
                before = bounds(self._backend.view(spec.name, start))
                found += net(end, spec, delta, before)
            return found

    def _raw(self, start: int, end: int, specs: Iterable[Spec]) -> list[Command]:
        if start > end:
            raise UsageError("Raw commands lead forwards only; swap the versions, or leave out `raw`.")
        line, wanted, found = self._backend.line, {spec.name: spec for spec in specs}, list[Command]()
        for number in line.layers(start, end):
            raws = [raw for raw in self._backend.raws(number) if raw.structure in wanted]
            before = line.before(number)
            for name, spec in wanted.items():
                mine = [raw for raw in raws if raw.structure == name]
                made = self._backend.between(name, number if before is None else before, number)
                if not told(spec, mine, made):
                    raise UsageError(
                        f"The calls on {name!r} in version {number} were not all kept: its scheme was not 'command' "
                        "then. Leave out `raw`, or name another structure."
                    )
            found += [command(number, wanted[raw.structure], raw) for raw in raws]
        return found

    # --- keeping --------------------------------------------------------------------------------------------------

    def compact(
        self,
        keep: Iterable[int] | None = None,
        *,
        count: int | None = None,
        age_seconds: float | None = None,
        bytes: int | None = None,  # noqa: A002
    ) -> list[int]:
        """Drop versions and return those that are left: name the ones to keep, or how many, how old, how large.

        The change of a dropped version goes into the next kept one. The current version always stays.
        """
        with self._gate:
            age_us = None if age_seconds is None else round(age_seconds * 1e6)
            line = self._backend.line
            stay = kept(line, self._clock.now_us(), keep=keep, count=count, age_us=age_us, bytes_=bytes)
            if stay != line.numbers() or self._backend.unsettled:
                self._backend.compact(stay)
            return stay

    def retain(
        self,
        *,
        count: int | None = None,
        age_seconds: float | None = None,
        bytes: int | None = None,  # noqa: A002
    ) -> None:
        """Compact like this after every checkpoint from now on; without arguments, keep everything again."""
        limits = {"count": count, "age_seconds": age_seconds, "bytes": bytes}
        self._limits = {name: limit for name, limit in limits.items() if limit is not None}

    # --- in a pipeline --------------------------------------------------------------------------------------------

    def sink(self, apply: Callable[[Store, Any], None], *, query: str) -> Sink:
        """A function for `foreachBatch`: each batch becomes one version, and a batch that comes again is known."""
        return Sink(self, apply, query)

    def exclusive(self) -> Gate:
        """A lock for several calls that belong together, when threads share this store."""
        return self._gate

    def close(self) -> None:
        """Let go of what the store holds; changes since the last checkpoint are not made durable by this."""
        if not self._gate.closed:
            with self._gate:
                self._gate.closed = True
                self._backend.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._gate.closed:
            return f"<store {self.url}: closed>"
        return f"<store {self.url}: version {self.version}, {len(self._backend.specs)} structures>"

    def _repr_html_(self) -> str:
        if self._gate.closed:
            return showing.line(repr(self))
        with self._gate:
            there = {spec: getattr(self, spec.kind)(spec.name) for spec in self._backend.specs.values()}
            sizes = {spec: int(one) if isinstance(one, Counter) else len(one) for spec, one in there.items()}
            return showing.store(repr(self), sizes, self.versions(), self.version)


def _value(value: Any, type_: str) -> Value | None:
    return None if value is None else decode(value, type_)


def _membership(cells: tuple[Value, Value | None, Value | None]) -> tuple[Value, Value | None, Value | None]:
    member, old, new = cells
    return member, member if old is not None else None, member if new is not None else None


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not name or name.startswith(":") or any(ord(char) < 32 for char in name):
        raise UsageError(f"{name!r} can't name a structure: use plain text that does not start with ':'.")


def _check_types(spec: Spec) -> None:
    for type_ in (spec.type, spec.values):
        if type_ not in TYPES:
            raise UsageError(f"There is no type {type_!r}. There are: {', '.join(TYPES)}.")
