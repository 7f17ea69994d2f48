"""Commands: what was called, as data. `Raw` is the logged form, `Command` the one that a user reads and applies.

A layer under the scheme `command` is a list of `Raw`; `effect` says which cells one of them writes. For sets, maps
and sorted sets that follows from its arguments; counters and lists, whose calls depend on what was there, carry it.
`net` goes the other way: the shortest commands that have the effect of a delta.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from kedge.errors import InternalError, UsageError
from kedge.state.delta import PRESENT, UNKNOWN, CellDelta, Delta, IntDelta, Ints, cells_of, chain, distinct, known
from kedge.state.listplan import Moves, plan
from kedge.state.values import decode

if TYPE_CHECKING:
    from kedge.state.store import Store

KINDS = ("set", "map", "counter", "list", "sorted_set")
SCHEMES = ("full", "command", "undo", "redo")


@dataclass(frozen=True)
class Spec:
    """What a structure is: fixed when it is created, but for its scheme."""

    name: str
    kind: str
    type: str = "any"  # of members, fields or elements
    values: str = "any"  # of a map's values
    scheme: str = "undo"


@dataclass(frozen=True)
class Raw:
    """One call as it was made: encoded arguments, and the cells it wrote where they do not follow from them."""

    structure: str
    verb: str
    args: list[bytes] | Ints
    wrote: CellDelta | None = None


@dataclass(frozen=True)
class Command:
    """One call that can be made again: `command.apply(store)`."""

    version: int
    structure: str
    kind: str
    verb: str
    arguments: tuple[Any, ...]

    def apply(self, store: Store) -> None:
        """Make the call on another store (or on this one)."""
        structure = getattr(store, self.kind)(self.structure)
        getattr(structure, self.verb)(*self.arguments)

    def __str__(self) -> str:
        return f"{self.structure}.{self.verb}({', '.join(map(repr, self.arguments))})"


def check_scheme(scheme: str) -> str:
    """`scheme`, if there is one of this name."""
    if scheme not in SCHEMES:
        raise UsageError(f"There is no scheme {scheme!r}. There are: {', '.join(SCHEMES)}.")
    return scheme


def effect(spec: Spec, raw: Raw) -> Delta:
    """The cells that a command writes; old values are unknown."""
    if raw.wrote is not None:
        return raw.wrote
    present = raw.verb in ("add", "update")
    if isinstance(raw.args, np.ndarray):
        keys = distinct(raw.args)
        return IntDelta(keys, np.full(len(keys), 2, np.uint8), np.full(len(keys), int(present), np.uint8))
    if spec.kind in ("map", "sorted_set") and raw.verb == "update":
        news: dict[bytes, bytes | None] = dict(zip(raw.args[::2], raw.args[1::2], strict=True))
    else:
        news = dict.fromkeys(raw.args, PRESENT if present else None)
    return CellDelta({cell: (UNKNOWN, new) for cell, new in news.items()})


def told(spec: Spec, raws: list[Raw], delta: Delta) -> bool:
    """Whether logged calls say all of a change: not when the scheme was another one in its midst."""
    said = cells_of(chain(effect(spec, raw) for raw in raws)).news()
    return all(said.get(cell, UNKNOWN) == new for cell, new in cells_of(delta).news().items())


def command(version: int, spec: Spec, raw: Raw) -> Command:
    """The readable form of a logged command."""
    args: tuple[Any, ...]
    if isinstance(raw.args, np.ndarray):
        args = tuple(raw.args.tolist())
    elif spec.kind in ("map", "sorted_set") and raw.verb == "update":
        fields = [decode(field, spec.type) for field in raw.args[::2]]
        args = (dict(zip(fields, [decode(value, _values(spec)) for value in raw.args[1::2]], strict=True)),)
    elif spec.kind == "counter":
        args = tuple(int(arg) for arg in raw.args)
    elif spec.kind == "list":
        args = _list_arguments(spec, raw)
    else:
        args = tuple(decode(arg, spec.type) for arg in raw.args)
    return Command(version, spec.name, spec.kind, raw.verb, args)


_INDEX_FIRST = ("set_at", "insert")
_COUNTS = ("trim_left", "trim_right")


def _list_arguments(spec: Spec, raw: Raw) -> tuple[Any, ...]:
    args = cast("list[bytes]", raw.args)
    if raw.verb in _COUNTS:
        return (int(args[0]),)
    if raw.verb == "splice":
        return (int(args[0]), int(args[1]), [decode(arg, spec.type) for arg in args[2:]])
    if raw.verb in _INDEX_FIRST:
        return (int(args[0]), decode(args[1], spec.type))
    if raw.verb == "remove":
        return (decode(args[0], spec.type),)
    return ([decode(arg, spec.type) for arg in args],)


def _values(spec: Spec) -> str:
    return "float" if spec.kind == "sorted_set" else spec.values


def net(version: int, spec: Spec, delta: Delta, bounds: tuple[int, int]) -> Iterator[Command]:
    """The shortest commands that have the effect of `delta`; `bounds` are a list's head and tail before it."""
    if not len(delta):
        return
    for verb, args in _net_calls(spec, delta, bounds):
        yield Command(version, spec.name, spec.kind, verb, args)


def _net_calls(spec: Spec, delta: Delta, bounds: tuple[int, int]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    if isinstance(delta, IntDelta):
        yield from _non_empty(("discard", delta.where(0).tolist()), ("add", delta.where(1).tolist()))
        return
    changes = cells_of(delta).changes
    gone = [decode(cell, spec.type) for cell, (_, new) in changes.items() if new is None and spec.kind != "counter"]
    if spec.kind == "set":
        added = [decode(cell, spec.type) for cell, (_, new) in changes.items() if new is not None]
        yield from _non_empty(("discard", gone), ("add", added))
    elif spec.kind == "counter":
        old, new = changes[b""]
        yield "incr", (int(new or 0) - int(known(old) or 0),)
    elif spec.kind == "list":
        yield from _net_list(spec, plan(cells_of(delta), *bounds))
    elif spec.kind in ("map", "sorted_set"):
        yield from _non_empty(("discard", gone))
        news = {
            decode(c, spec.type): decode(new, _values(spec)) for c, (_, new) in changes.items() if new is not None
        }
        if news:
            yield "update", (news,)
    else:
        raise InternalError(f"no net commands for {spec.kind}")


def _non_empty(*calls: tuple[str, list[Any]]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    return ((verb, tuple(members)) for verb, members in calls if members)


def _net_list(spec: Spec, moves: Moves) -> Iterator[tuple[str, tuple[Any, ...]]]:
    if moves.cut_left:
        yield "trim_left", (moves.cut_left,)
    if moves.cut_right:
        yield "trim_right", (moves.cut_right,)
    for index, value in moves.set_at:
        yield "set_at", (index, decode(value, spec.type))
    if moves.left:
        yield "extendleft", ([decode(value, spec.type) for value in moves.left],)
    if moves.right:
        yield "extend", ([decode(value, spec.type) for value in moves.right],)
