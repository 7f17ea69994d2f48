"""Maps: field -> value, with the names of a dict, and columns wherever many fields go."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, MutableMapping, ValuesView
from typing import Any

import numpy as np
import pyarrow as pa

from kedge.errors import UsageError
from kedge.state.collection import Gate, View, Writes, as_list, encoded, spread
from kedge.state.readers import Live, Reader
from kedge.state.values import Value, decode


class MapView(View, Mapping[Value, Any]):
    """A map at some version."""

    __hash__ = None  # type: ignore[assignment]  (it changes, like any dict)

    def __init__(self, reader: Reader, lock: Gate) -> None:
        super().__init__(reader, lock)
        self._values = reader.spec.values

    def __getitem__(self, field: Any) -> Any:
        value = self._one(self._encode(field))
        if value is None:
            raise KeyError(field)
        return decode(value, self._values)

    def get(self, field: Any, default: Any = None) -> Any:
        """The value of a field, or `default`."""
        value = self._one(self._encode(field))
        return default if value is None else decode(value, self._values)

    def get_many(self, fields: Any) -> list[Any]:
        """The values of many fields at once, in their order; None where there is none."""
        with self._lock:
            found = self._reader.get(encoded(as_list(fields), self._type))
        return [None if value is None else decode(value, self._values) for value in found]

    def __contains__(self, field: Any) -> bool:
        return self._has(field)

    def __len__(self) -> int:
        return self._size()

    def __iter__(self) -> Iterator[Value]:
        return iter([field for field, _ in self.pairs()])

    def items(self) -> ItemsView[Value, Any]:
        """All fields with their values."""
        return _Items(self)

    def values(self) -> ValuesView[Any]:
        """All values, in the order of `keys()`."""
        return _Values(self)

    def to_dict(self) -> dict[Value, Any]:
        """A plain copy."""
        return dict(self.pairs())

    def pairs(self) -> list[tuple[Value, Any]]:
        """Everything, in one reading."""
        return [(self._decode(cell), decode(value, self._values)) for cell, value in self._items()]

    def _preview(self) -> list[tuple[Value, Any]]:
        return sorted(self.pairs(), key=str)

    def __repr__(self) -> str:
        return f"<map {self.spec.name!r}: {len(self)} fields>"


class _Items(ItemsView[Value, Any]):
    """A map's items, read at once rather than field by field."""

    _mapping: MapView

    def __iter__(self) -> Iterator[tuple[Value, Any]]:
        return iter(self._mapping.pairs())


class _Values(ValuesView[Any]):
    """A map's values, read at once."""

    _mapping: MapView

    def __iter__(self) -> Iterator[Any]:
        return iter([value for _, value in self._mapping.pairs()])


class Map(MapView, MutableMapping[Value, Any], Writes):
    """A versioned map.

    >>> fares["b1"] = 2.5; fares.update({"b2": 3, "b3": "free"}); fares["b2"]
    3
    """

    def __init__(self, live: Live, lock: Gate) -> None:
        super().__init__(live, lock)
        self._live = live

    def __setitem__(self, field: Any, value: Any) -> None:
        self.update({field: value})

    def __delitem__(self, field: Any) -> None:
        self.pop(field)

    def update(self, fields: Any = (), values: Any = None, /, **named: Any) -> None:
        """Set many fields: from a mapping, from pairs, or from two columns of fields and values."""
        if values is None:
            fields, values = _columns(fields)
        fields, values = [*as_list(fields), *named.keys()], [*as_list(values), *named.values()]
        if len(fields) != len(values):
            raise UsageError(f"update() got {len(fields)} fields and {len(values)} values.")
        names, contents = encoded(fields, self._type), self._contents(values)
        if names:
            args = [part for pair in zip(names, contents, strict=True) for part in pair]
            with self._lock:
                self._live.write("update", args, dict(zip(names, contents, strict=True)))

    def _contents(self, values: list[Any]) -> list[bytes]:
        return encoded(values, self._values)

    def setdefault(self, field: Any, default: Any = None) -> Any:
        """The value of a field, which is set to `default` when there is none."""
        with self._lock:
            if field not in self:
                self[field] = default
            return self[field]

    def discard(self, *fields: Any) -> None:
        """Remove fields, or one array of fields; those that are not there change nothing."""
        cells = encoded(as_list(spread(fields)), self._type)
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

    def popitem(self) -> tuple[Value, Any]:
        """Remove some field and return it with its value. It reads the whole map."""
        with self._lock:
            for field, value in self.pairs():
                self.discard(field)
                return field, value
        raise KeyError(f"popitem from {self!r}, which is empty")

    def incr(self, field: Any, amount: Any = 1) -> Any:
        """Add to a number (a missing one is 0) and return the sum."""
        with self._lock:
            value = self.get(field, 0)
            if not isinstance(value, int | float):
                raise UsageError(f"{field!r} holds {value!r}, which is not a number.")
            if isinstance(amount, bool) or not isinstance(amount, int | float | np.number):
                raise UsageError(f"{amount!r} can't be added to {field!r}: it is not a number.")
            total = value + (amount.item() if isinstance(amount, np.number) else amount)
            self.update({field: total})
        return total

    def clear(self) -> None:
        """Remove all fields."""
        with self._lock:
            self.discard(*self)

    def __ior__(self, fields: Any) -> Any:
        self.update(fields)
        return self


def _columns(fields: Any) -> tuple[list[Any], list[Any]]:
    """Two columns from a mapping or from pairs."""
    if isinstance(fields, Mapping):
        pairs: list[Any] = list(fields.items())
    elif isinstance(fields, str | bytes | np.ndarray | pa.Array | pa.ChunkedArray):
        pairs = [None]
    else:
        pairs = as_list(fields)
    if not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
        raise UsageError("update() takes a mapping, pairs, or a column of fields and one of values.")
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]
