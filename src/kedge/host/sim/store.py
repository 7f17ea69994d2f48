"""A simulated object store with the faults that real ones have.

Invariants, which S3 and its like promise: objects are whole; a read sees every write that was acknowledged; of
several `put(if_absent=True)` of one name exactly one takes effect, for ever. What they do not promise,
and a seed decides:
- a reply is lost: the call took effect and raises UnavailableError;
- a call is lost: it did nothing and raises UnavailableError;
- a call is late: it raises UnavailableError and takes effect during some later call of anybody, even long after its
  sender died (a late `put(if_absent=True)` still takes effect only if the name is free then).

A listing is read in pages, in the order of names; calls of others may come between two pages. Delayed visibility is
not modelled: S3, GCS and Azure are strongly consistent.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, cast

from kedge.errors import UnavailableError
from kedge.host.disk import Bytes
from kedge.host.sim.turns import Turns
from kedge.host.store import Store, checked_name

if TYPE_CHECKING:
    from kedge.host.sim.machine import SimHost


PAGE_NAMES = 5  # real stores give 1,000 names a page


class SimStore:
    """Objects in memory; `faults` is the chance that a call goes wrong."""

    def __init__(self, seed: int = 0, *, faults: float = 0.0, turns: Turns | None = None) -> None:
        self._rng = random.Random(f"store/{seed}")  # noqa: S311  (a simulation must repeat)
        self.faults = faults
        self.turns = turns
        self.objects: dict[str, bytes] = {}
        self.late: list[Callable[[], None]] = []

    def put(self, name: str, data: Bytes, *, if_absent: bool = False) -> None:
        """Write an object, perhaps later, perhaps never."""
        name, raw = checked_name(name), bytes(memoryview(cast(bytes, data)).cast("B"))

        def act() -> None:
            if if_absent and name in self.objects:
                raise FileExistsError(name)
            self.objects[name] = raw

        self._change(f"put {name}", act)

    def get(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        """An object or a range of it."""
        self._read(f"get {name}")
        try:
            return self.objects[checked_name(name)][start:end]
        except KeyError:
            raise FileNotFoundError(name) from None

    def list(self, prefix: str) -> list[str]:
        """The sorted names below a folder."""
        folder = f"{prefix.rstrip('/')}/" if prefix else ""
        found: list[str] = []
        while len(found) % PAGE_NAMES == 0:
            self._read(f"list {prefix}")
            rest = (name for name in self.objects if name.startswith(folder) and name > (found or [""])[-1])
            page = sorted(rest)[:PAGE_NAMES]
            if not page:
                break
            found += page
        return found

    def delete(self, name: str) -> None:
        """Remove an object, perhaps later, perhaps never."""
        self._change(f"delete {name}", lambda: (self.objects.pop(checked_name(name), None), None)[1])

    def settle(self, folder: str) -> None:
        """What is visible here is durable."""

    def sweep(self, folder: str) -> None:
        """Nothing is ever half-written here."""

    def land(self) -> None:
        """Every late call takes effect now, in an order that the seed decides."""
        self._rng.shuffle(self.late)
        while self.late:
            _quietly(self.late.pop())

    def client(self, host: SimHost) -> SimClient:
        """The store as a process of `host` sees it: its calls count as that process's I/O calls."""
        assert self.turns is None, "give the turns to the machine instead"
        return SimClient(self, host)

    def _read(self, what: str) -> None:
        self._begin()
        if self._rng.random() < self.faults:
            raise UnavailableError(f"{what}: no answer. Try again.")

    def _change(self, what: str, act: Callable[[], None]) -> None:
        self._begin()
        if self._rng.random() >= self.faults:
            act()
            return
        fate = self._rng.choice(("reply lost", "call lost", "late"))
        if fate == "reply lost":
            _quietly(act)
        elif fate == "late":
            self.late.append(act)
        raise UnavailableError(f"{what}: no answer. Read before trying again.")

    def _begin(self) -> None:
        if self.turns is not None:
            self.turns.step()
        landing = [act for act in self.late if self._rng.random() < 0.1]
        for act in landing:
            self.late.remove(act)
            _quietly(act)


def _quietly(act: Callable[[], None]) -> None:
    with suppress(FileExistsError):  # the late put lost; nobody listens
        act()


class SimClient:
    """One process's connection: when its process dies in a call, the call may still take effect, now or later."""

    def __init__(self, store: SimStore, host: SimHost) -> None:
        self._store, self._calls = store, host.calls

    def put(self, name: str, data: Bytes, *, if_absent: bool = False) -> None:
        """SimStore.put, counted."""
        put = partial(self._store.put, name, data, if_absent=if_absent)
        self._calls.io("put", name, lambda part: self._act(part, put))

    def get(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        """SimStore.get, counted."""
        return self._calls.io("get", name, lambda _: self._store.get(name, start, end))

    def list(self, prefix: str) -> list[str]:
        """SimStore.list, counted."""
        return self._calls.io("list", prefix, lambda _: self._store.list(prefix))

    def delete(self, name: str) -> None:
        """SimStore.delete, counted."""
        self._calls.io("delete", name, lambda part: self._act(part, lambda: self._store.delete(name)))

    def settle(self, folder: str) -> None:
        """What is visible here is durable."""

    def sweep(self, folder: str) -> None:
        """Nothing is ever half-written here."""

    def _act(self, part: float, act: Callable[[], None]) -> None:
        if part == 1.0:
            act()
        else:  # the process died while the request was under way
            self._store.late.append(act)


class Prefixed:
    """The names of a store that begin with a prefix."""

    def __init__(self, store: Store, prefix: str) -> None:
        self._store, self._prefix = store, prefix.strip("/")

    def put(self, name: str, data: Bytes, *, if_absent: bool = False) -> None:
        """Write an object."""
        self._store.put(self._full(name), data, if_absent=if_absent)

    def get(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        """An object or a range of it."""
        return self._store.get(self._full(name), start, end)

    def list(self, prefix: str) -> list[str]:
        """The sorted names below a folder."""
        full = self._full(prefix) if prefix else self._prefix
        return [name[len(self._prefix) + 1 :] for name in self._store.list(full)]

    def delete(self, name: str) -> None:
        """Remove an object."""
        self._store.delete(self._full(name))

    def settle(self, folder: str) -> None:
        """What is visible here is durable."""

    def sweep(self, folder: str) -> None:
        """Nothing is ever half-written here."""

    def _full(self, name: str) -> str:
        return f"{self._prefix}/{checked_name(name)}"
