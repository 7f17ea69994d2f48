"""Lists as cells, and a list's delta as pushes, pops and sets.

A list is the cells [head, tail): each element under its position as text, and the cells `head` and `tail`, absent
while they are 0. Pushing at the left goes below zero. So a delta of a list is like any other: popped heads are
before-images, and its size is the number of elements that changed, not the list's length.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kedge.errors import InternalError
from kedge.state.delta import CellDelta, known

HEAD, TAIL = b"head", b"tail"


def bound(value: bytes | None) -> int:
    """A bound's number; an absent one is 0."""
    return int(value) if value is not None else 0


def bound_cell(position: int) -> bytes | None:
    """What a bound's cell holds."""
    return b"%d" % position if position else None


@dataclass
class Moves:
    """In this order: cut elements at both ends, set by index, push left one by one, push right."""

    cut_left: int = 0
    cut_right: int = 0
    kept: int = 0
    set_at: list[tuple[int, bytes]] = field(default_factory=list[tuple[int, bytes]])
    left: list[bytes] = field(default_factory=list[bytes])
    right: list[bytes] = field(default_factory=list[bytes])


def plan(delta: CellDelta, head: int | None = None, tail: int | None = None) -> Moves:
    """How to get from the list before `delta` to the one after it.

    `head` and `tail` are the bounds before it, for a delta that does not change them.
    """
    changes = delta.changes
    head0, head1 = _bounds(changes, HEAD, head)
    tail0, tail1 = _bounds(changes, TAIL, tail)
    low, high = max(head0, head1), min(tail0, tail1)
    if low >= high:  # nothing stays
        return Moves(tail0 - head0, 0, 0, [], [], [_new(changes, at) for at in range(head1, tail1)])
    moves = Moves(low - head0, tail0 - high, high - low)
    for cell, (_, new) in changes.items():
        if cell in (HEAD, TAIL) or new is None:
            continue
        at = int(cell)
        if low <= at < high:
            moves.set_at.append((at - low, new))
    moves.set_at.sort()
    moves.left = [_new(changes, at) for at in range(low - 1, head1 - 1, -1)]
    moves.right = [_new(changes, at) for at in range(high, tail1)]
    return moves


def _bounds(changes: dict[bytes, tuple[object, bytes | None]], cell: bytes, given: int | None) -> tuple[int, int]:
    if cell not in changes:
        return (given or 0), (given or 0)
    old, new = changes[cell]
    return (bound(known(old)) if given is None else given), bound(new)


def _new(changes: dict[bytes, tuple[object, bytes | None]], at: int) -> bytes:
    value = changes[b"%d" % at][1]
    if value is None:
        raise InternalError(f"a list has a hole at position {at}")
    return value
