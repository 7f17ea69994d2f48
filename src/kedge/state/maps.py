"""Maps: field -> value, with the names of a dict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from threading import RLock
from typing import Any

from kedge.errors import UsageError
from kedge.state.collection import View, Writes, as_list, encoded
from kedge.state.readers import Live, Reader
from kedge.state.values import Value, decode, encode


class MapView(View):
    """A map at some version."""

    def __init__(self, reader: Reader, lock: RLock) -> None:
        super().__init__(reader, lock)
        self._values = reader.spec.values

    def __getitem__(self, field: Any) -> Value:
        value = self._one(self._encode(field))
        if value is None:
            raise KeyError(field)
        return decode(value, self._values)

    def get(self, field: Any, default: Any = None) -> Any:
        """The value of a field, or `default`."""
        value = self._one(self._encode(field))
        return default if value is None else decode(value, self._values)

    def get_many(self, fields: Any) -> list[Value | None]:
        """The values of many fields at once, in their order; None where there is none."""
        with self._lock:
            found = self._reader.get(encoded(as_list(fields), self._type))
        return [None if value is None else decode(value, self._values) for value in found]

    def __contains__(self, field: Any) -> bool:
        return self._one(self._encode(field)) is not None

    def __iter__(self) -> Iterator[Value]:
        return iter([self._decode(cell) for cell, _ in self._items()])

    def keys(self) -> list[Value]:
        """All fields."""
        return list(self)

    def values(self) -> list[Value]:
        """All values, in the order of `keys()`."""
        return [decode(value, self._values) for _, value in self._items()]

    def items(self) -> list[tuple[Value, Value]]:
        """All fields with their values."""
        return [(self._decode(cell), decode(value, self._values)) for cell, value in self._items()]

    def to_dict(self) -> dict[Value, Value]:
        """A plain copy."""
        return dict(self.items())

    def __repr__(self) -> str:
        return f"<map {self.spec.name!r}: {len(self)} fields>"


class Map(MapView, Writes):
    """A versioned map.

    >>> fares["b1"] = 2.5; fares.update({"b2": 3, "b3": "free"}); fares["b2"]
    3
    """

    def __init__(self, live: Live, lock: RLock) -> None:
        super().__init__(live, lock)
        self._live = live

    def __setitem__(self, field: Any, value: Any) -> None:
        self.update({field: value})

    def __delitem__(self, field: Any) -> None:
        with self._lock:
            if field not in self:
                raise KeyError(field)
            self.discard(field)

    def update(self, fields: Any, values: Any = None) -> None:
        """Set many fields: from a mapping, or from two columns of fields and values."""
        if values is None:
            if not isinstance(fields, Mapping):
                raise UsageError("update() takes a mapping, or a column of fields and one of values.")
            fields, values = list(fields.keys()), list(fields.values())
        names, contents = encoded(as_list(fields), self._type), encoded(as_list(values), self._values)
        if len(names) != len(contents):
            raise UsageError(f"update() got {len(names)} fields and {len(contents)} values.")
        if names:
            args = [part for pair in zip(names, contents, strict=True) for part in pair]
            with self._lock:
                self._live.write("update", args, dict(zip(names, contents, strict=True)))

    def discard(self, *fields: Value) -> None:
        """Remove fields; those that are not there change nothing."""
        cells = encoded(fields, self._type)
        if cells:
            with self._lock:
                self._live.write("discard", cells, dict.fromkeys(cells))

    def pop(self, field: Any, *default: Any) -> Any:
        """Remove a field and return its value; without a default it must be there."""
        with self._lock:
            value = self._one(self._encode(field))
            if value is None:
                if not default:
                    raise KeyError(field)
                return default[0]
            self.discard(field)
        return decode(value, self._values)

    def incr(self, field: Any, amount: float = 1) -> int | float:
        """Add to a number (a missing one is 0) and return the sum."""
        with self._lock:
            value = self.get(field, 0)
            if not isinstance(value, int | float):
                raise UsageError(f"{field!r} holds {value!r}, which is not a number.")
            total = value + amount
            encode(total, self._values)
            self.update({field: total})
        return total

    def clear(self) -> None:
        """Remove all fields."""
        with self._lock:
            self.discard(*self.keys())
