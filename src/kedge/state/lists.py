"""Lists: Python's names for both ends and the middle, `lpush`-like calls through `appendleft` and `extendleft`.

Pushing and popping at either end costs what is pushed or popped. Inserting or removing in the middle rewrites the
elements on the side after it, as it does in Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from threading import RLock
from typing import Any, overload

from kedge.errors import UsageError
from kedge.state.collection import View, Writes, as_list, encoded
from kedge.state.listplan import HEAD, TAIL, bound_cell
from kedge.state.readers import Live, bounds
from kedge.state.values import Value


class ListView(View):
    """A list at some version."""

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

    def to_list(self) -> list[Value]:
        """A plain copy."""
        return self[:]

    def _read(self, positions: list[int]) -> list[Value]:
        return [self._decode(cell) for cell in self._cells(positions)]

    def _cells(self, positions: list[int]) -> list[bytes]:
        found = self._reader.get([b"%d" % at for at in positions])
        return [value for value in found if value is not None]

    def _within(self, index: int, size: int) -> int:
        at = index + size if index < 0 else index
        if not 0 <= at < size:
            raise IndexError(f"index {index} of list {self.spec.name!r} with {size} elements")
        return at

    def __repr__(self) -> str:
        return f"<list {self.spec.name!r}: {len(self)} elements>"


class List(ListView, Writes):
    """A versioned list.

    >>> stops.extend(["a", "b"]); stops.appendleft("start"); stops.pop()
    'b'
    """

    def __init__(self, live: Live, lock: RLock) -> None:
        super().__init__(live, lock)
        self._live = live

    def append(self, value: Value) -> None:
        """Add at the right end."""
        self.extend([value])

    def extend(self, values: Any) -> None:
        """Add many at the right end."""
        cells = encoded(as_list(values), self._type)
        with self._lock:
            head, tail = bounds(self._live)
            self._put("extend", cells, head, tail + len(cells), dict(enumerate(cells, tail)))

    def appendleft(self, value: Value) -> None:
        """Add at the left end."""
        self.extendleft([value])

    def extendleft(self, values: Any) -> None:
        """Add many at the left end one by one, so that the last comes to stand first."""
        cells = encoded(as_list(values), self._type)
        with self._lock:
            head, tail = bounds(self._live)
            news = {head - 1 - at: cell for at, cell in enumerate(cells)}
            self._put("extendleft", cells, head - len(cells), tail, news)

    def pop(self) -> Value:
        """Remove the last element and return it."""
        with self._lock:
            value = self[-1]
            self.trim_right(1)
        return value

    def popleft(self) -> Value:
        """Remove the first element and return it."""
        with self._lock:
            value = self[0]
            self.trim_left(1)
        return value

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

    def __setitem__(self, index: int, value: Value) -> None:
        self.set_at(index, value)

    def set_at(self, index: int, value: Value) -> None:
        """Replace one element."""
        cell = self._encode(value)
        with self._lock:
            head, tail = bounds(self._live)
            at = self._within(index, tail - head)
            self._put("set_at", [b"%d" % at, cell], head, tail, {head + at: cell})

    def insert(self, index: int, value: Value) -> None:
        """Insert before `index`."""
        cell = self._encode(value)
        with self._lock:
            head, tail = bounds(self._live)
            at = head + min(max(index + (tail - head if index < 0 else 0), 0), tail - head)
            after = [cell, *self._cells(list(range(at, tail)))]
            self._put("insert", [b"%d" % (at - head), cell], head, tail + 1, dict(enumerate(after, at)))

    def remove(self, value: Value) -> None:
        """Remove the first element equal to `value`, which must be there."""
        cell = self._encode(value)
        with self._lock:
            head, tail = bounds(self._live)
            cells = self._cells(list(range(head, tail)))
            if cell not in cells:
                raise ValueError(f"{value!r} is not in list {self.spec.name!r}")
            at = cells.index(cell)
            news: dict[int, bytes | None] = dict(enumerate(cells[at + 1 :], head + at))
            news[tail - 1] = None
            self._put("remove", [cell], head, tail - 1, news)

    def clear(self) -> None:
        """Remove all elements."""
        self.trim_left(len(self))

    def _put(self, verb: str, args: list[bytes], head: int, tail: int, news: Any) -> None:
        """Write elements by position, and the bounds; an empty list starts again at 0."""
        if head == tail:
            head = tail = 0
        cells: dict[bytes, bytes | None] = {b"%d" % at: value for at, value in news.items()}
        cells[HEAD], cells[TAIL] = bound_cell(head), bound_cell(tail)
        self._live.write(verb, args, cells)

    def _countable(self, count: int, size: int) -> int:
        if count < 0:
            raise UsageError(f"{count} elements can't be removed; pass a number from 0 on.")
        return min(count, size)
