"""Lists: Python's names for both ends and the middle, `lpush`-like calls through `appendleft` and `extendleft`.

Pushing and popping at either end costs what is pushed or popped. Inserting or removing in the middle rewrites the
elements on the side after it, as it does in Python.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, MutableSequence, Sequence
from typing import Any, overload

from kedge.errors import UsageError
from kedge.state.collection import Gate, View, Writes, as_list, encoded
from kedge.state.listplan import HEAD, TAIL, bound_cell
from kedge.state.readers import Live, bounds
from kedge.state.values import Value


class ListView(View, Sequence[Value]):
    """A list at some version."""

    __hash__ = None  # type: ignore[assignment]  (it changes, like any list)

    def __len__(self) -> int:
        with self._lock:
            head, tail = bounds(self._reader)
        return tail - head

    @overload
    def __getitem__(self, index: int) -> Value: ...
    @overload
    def __getitem__(self, index: slice) -> list[Value]: ...
    def __getitem__(self, index: int | slice) -> Value | list[Value]:
        with self._lock:
            head, tail = bounds(self._reader)
            if isinstance(index, slice):
                return self._read([head + at for at in range(*index.indices(tail - head))])
            return self._read([head + self._within(index, tail - head)])[0]

    def __iter__(self) -> Iterator[Value]:
        return iter(self[:])

    def __reversed__(self) -> Iterator[Value]:
        return iter(self[::-1])

    def __contains__(self, value: object) -> bool:
        return value in self[:]

    def __eq__(self, other: object) -> bool:
        return self[:] == list(other) if isinstance(other, list | ListView) else NotImplemented

    def index(self, value: Any, start: int = 0, stop: int | None = None) -> int:
        """Where the first element equal to `value` stands, between `start` and `stop`."""
        with self._lock:
            found = self[:]
            return found.index(value, start, len(found) if stop is None else stop)

    def count(self, value: Any) -> int:
        """How many elements are equal to `value`."""
        return self[:].count(value)

    def to_list(self) -> list[Value]:
        """A plain copy."""
        return self[:]

    _preview = to_list

    def _read(self, positions: list[int]) -> list[Value]:
        return [self._decode(cell) for cell in self._cells(positions)]

    def _cells(self, positions: list[int]) -> list[bytes]:
        found = self._reader.get([b"%d" % at for at in positions])
        return [value for value in found if value is not None]

    def _within(self, index: int, size: int) -> int:
        index = indexed(index)
        at = index + size if index < 0 else index
        if not 0 <= at < size:
            raise IndexError(f"index {index} of list {self.spec.name!r} with {size} elements")
        return at

    def __repr__(self) -> str:
        return f"<list {self.spec.name!r}: {len(self)} elements>"


class List(ListView, MutableSequence[Value], Writes):
    """A versioned list.

    >>> stops.extend(["a", "b"]); stops.appendleft("start"); stops.pop()
    'b'
    """

    def __init__(self, live: Live, lock: Gate) -> None:
        super().__init__(live, lock)
        self._live = live

    def append(self, value: Any) -> None:
        """Add at the right end."""
        self.extend([value])

    def extend(self, values: Any) -> None:
        """Add many at the right end."""
        cells = encoded(as_list(values), self._type)
        with self._lock:
            head, tail = bounds(self._live)
            self._put("extend", cells, head, tail + len(cells), dict(enumerate(cells, tail)))

    def appendleft(self, value: Any) -> None:
        """Add at the left end."""
        self.extendleft([value])

    def extendleft(self, values: Any) -> None:
        """Add many at the left end one by one, so that the last comes to stand first."""
        cells = encoded(as_list(values), self._type)
        with self._lock:
            head, tail = bounds(self._live)
            news = {head - 1 - at: cell for at, cell in enumerate(cells)}
            self._put("extendleft", cells, head - len(cells), tail, news)

    def pop(self, index: int = -1) -> Value:
        """Remove an element, the last one by default, and return it."""
        with self._lock:
            value = self[index]
            del self[index]
        return value

    def popleft(self) -> Value:
        """Remove the first element and return it."""
        return self.pop(0)

    def trim_left(self, count: int) -> None:
        """Remove up to `count` elements at the left end."""
        with self._lock:
            head, tail = bounds(self._live)
            count = self._countable(count, tail - head)
            self._put("trim_left", [b"%d" % count], head + count, tail, dict.fromkeys(range(head, head + count)))

    def trim_right(self, count: int) -> None:
        """Remove up to `count` elements at the right end."""
        with self._lock:
            head, tail = bounds(self._live)
            count = self._countable(count, tail - head)
            self._put("trim_right", [b"%d" % count], head, tail - count, dict.fromkeys(range(tail - count, tail)))

    def __setitem__(self, index: Any, value: Any) -> None:
        if not isinstance(index, slice):
            self.set_at(index, value)
            return
        values = as_list(value)
        with self._lock:
            size = len(self)
            start, stop, step = index.indices(size)
            if step == 1:
                self.splice(start, max(start, stop), values)
            else:
                changed = self[:]
                changed[index] = values
                self.splice(0, size, changed)

    def __delitem__(self, index: Any) -> None:
        with self._lock:
            size = len(self)
            if not isinstance(index, slice):
                at = self._within(index, size)
                self._cut(at, at + 1, size)
                return
            start, stop, step = index.indices(size)
            if step == 1:
                self._cut(start, max(start, stop), size)
            else:
                changed = self[:]
                del changed[index]
                self.splice(0, size, changed)

    def _cut(self, start: int, stop: int, size: int) -> None:
        if start == 0:
            self.trim_left(stop)
        elif stop == size:
            self.trim_right(stop - start)
        else:
            self.splice(start, stop, [])

    def set_at(self, index: int, value: Any) -> None:
        """Replace one element."""
        cell = self._encode(value)
        with self._lock:
            head, tail = bounds(self._live)
            at = self._within(index, tail - head)
            self._put("set_at", [b"%d" % at, cell], head, tail, {head + at: cell})

    def splice(self, start: int, stop: int, values: Any) -> None:
        """Put `values` in the place of the elements from `start` up to but not including `stop`."""
        cells = encoded(as_list(values), self._type)
        with self._lock:
            self._splice("splice", [b"%d" % start, b"%d" % stop, *cells], start, stop, cells)

    def insert(self, index: int, value: Any) -> None:
        """Insert before `index`."""
        cell = self._encode(value)
        with self._lock:
            size = len(self)
            at = min(max(indexed(index) + (size if index < 0 else 0), 0), size)
            self._splice("insert", [b"%d" % at, cell], at, at, [cell])

    def remove(self, value: Any) -> None:
        """Remove the first element equal to `value`, which must be there."""
        cell = self._encode(value)
        with self._lock:
            head, tail = bounds(self._live)
            cells = self._cells(list(range(head, tail)))
            if cell not in cells:
                raise ValueError(f"{value!r} is not in list {self.spec.name!r}")
            at = cells.index(cell)
            self._splice("remove", [cell], at, at + 1, [])

    def reverse(self) -> None:
        """Turn it round."""
        with self._lock:
            self.splice(0, len(self), self[::-1])

    def clear(self) -> None:
        """Remove all elements."""
        with self._lock:
            self.trim_left(len(self))

    def __iadd__(self, values: Any) -> Any:
        self.extend(values)
        return self

    def _splice(self, verb: str, args: list[bytes], start: int, stop: int, cells: list[bytes]) -> None:
        """Everything from `start` on moves, unless as many come as go."""
        head, tail = bounds(self._live)
        if not 0 <= start <= stop <= tail - head:
            raise UsageError(f"There is no stretch from {start} to {stop} in {self!r}.")
        moved = self._cells(list(range(head + stop, tail))) if len(cells) != stop - start else []
        news: dict[int, bytes | None] = dict(enumerate([*cells, *moved], head + start))
        end = tail + len(cells) - (stop - start)
        news |= dict.fromkeys(range(end, tail))
        self._put(verb, args, head, end, news)

    def _put(self, verb: str, args: list[bytes], head: int, tail: int, news: Any) -> None:
        """Write elements by position, and the bounds; an empty list starts again at 0."""
        if head == tail:
            head = tail = 0
        cells: dict[bytes, bytes | None] = {b"%d" % at: value for at, value in news.items()}
        cells[HEAD], cells[TAIL] = bound_cell(head), bound_cell(tail)
        self._live.write(verb, args, cells)

    def _countable(self, count: int, size: int) -> int:
        if indexed(count) < 0:
            raise UsageError(f"{count} elements can't be removed; pass a number from 0 on.")
        return min(count, size)


def indexed(index: Any) -> int:
    """A whole number to count places with."""
    try:
        return operator.index(index)
    except TypeError:
        raise UsageError(f"{index!r} is not a position in a list; pass an integer or a slice.") from None
