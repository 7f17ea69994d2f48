"""What all structures share: a reader, the types of its values, and arrays turned into members.

Invariants:
- A call is one write to the log: other threads and the versions see all of it or nothing.
- Every call goes through the store's gate, which lets one thread in at a time and nobody once the store is closed.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from threading import RLock
from typing import Any

import numpy as np
import pyarrow as pa

from kedge.errors import ClosedError, UsageError
from kedge.state.commands import Spec, check_scheme
from kedge.state.delta import Ints
from kedge.state.readers import Live, Reader
from kedge.state.values import Value, decode, encode, encode_all

_SHOWN = 20  # members in a notebook
_SHOWN_OF = 10_000  # a structure of more members is not read for a preview


class Gate:
    """A store's lock, which stays shut once the store is closed. Threads may nest it."""

    def __init__(self, url: str) -> None:
        self._lock, self._url, self.closed = RLock(), url, False

    def __enter__(self) -> None:
        self._lock.acquire()
        if self.closed:
            self._lock.release()
            raise ClosedError(f"The store {self._url} is closed; open it again.")

    def __exit__(self, *exc: object) -> None:
        self._lock.release()


class View:
    """A structure as it was at some version: everything that reads."""

    def __init__(self, reader: Reader, lock: Gate) -> None:
        self._reader, self._lock = reader, lock
        self._type = reader.spec.type

    @property
    def spec(self) -> Spec:
        """What the structure is."""
        return self._reader.spec

    def _encode(self, value: Any) -> bytes:
        return encode(value, self._type)

    def _decode(self, cell: bytes) -> Value:
        return decode(cell, self._type)

    def _one(self, cell: bytes) -> bytes | None:
        with self._lock:
            return self._reader.get([cell])[0]

    def _has(self, value: Any) -> bool:
        """Membership; what can't be a member is none."""
        try:
            cell = self._encode(value)
        except UsageError:
            return False
        return self._one(cell) is not None

    def _items(self) -> list[tuple[bytes, bytes]]:
        with self._lock:
            return list(self._reader.items())

    def _size(self) -> int:
        with self._lock:
            return self._reader.count()

    def _preview(self) -> Iterable[Any]:
        """What a notebook shows, in order."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        rows = ""
        if self._reader.spec.kind == "counter" or self._size() <= _SHOWN_OF:
            shown = list(self._preview())
            cells = [
                "".join(f"<td>{html.escape(str(part))}</td>" for part in _parts(one)) for one in shown[:_SHOWN]
            ]
            rows = "".join(f"<tr>{cell}</tr>" for cell in cells)
            rows += "<tr><td>&#8230;</td></tr>" if len(shown) > _SHOWN else ""
        return f"<div>{html.escape(repr(self))}</div><table>{rows}</table>"


class Writes:
    """The scheme, for structures that can be written."""

    _live: Live
    _lock: Gate

    @property
    def scheme(self) -> str:
        """How changes are logged: `undo`, `redo`, `command` or `full`. Assign to switch, also while in use."""
        return self._live.scheme

    @scheme.setter
    def scheme(self, scheme: str) -> None:
        check_scheme(scheme)
        with self._lock:
            self._live.switch(scheme)


def _parts(one: Any) -> Sequence[Any]:
    return one if isinstance(one, tuple) else (one,)


COLUMNS = (np.ndarray, pa.Array, pa.ChunkedArray, list, tuple, range, set, frozenset)


def spread(members: tuple[Any, ...]) -> Any:
    """The members of a call: those named one by one, or a single column of them."""
    one = members[0] if len(members) == 1 else None
    return one if isinstance(one, COLUMNS) or _is_foreign(one) else members


def _is_foreign(values: Any) -> bool:
    """Whether this is a column of another library (pandas, polars), which NumPy can read."""
    return hasattr(values, "__array__") and not isinstance(
        values, np.ndarray | np.generic | pa.Array | pa.ChunkedArray
    )


def as_list(values: Any) -> list[Any]:
    """An array, or anything that can be iterated, as a list."""
    if isinstance(values, str | bytes):
        raise UsageError(f"{values!r} is one value; pass a list or an array of values.")
    if _is_foreign(values):
        values = np.asarray(values)
    if isinstance(values, pa.Array | pa.ChunkedArray):
        if values.null_count:
            raise UsageError("An array of values has nulls; drop them first (`drop_null()`).")
        return values.to_pylist()
    if isinstance(values, np.ndarray):
        return _one_dimension(values).tolist()
    try:
        return list(values)
    except TypeError:
        raise UsageError(f"{values!r} is not a column of values; pass a list or an array.") from None


def _one_dimension(values: Any) -> Any:
    if values.ndim != 1:
        raise UsageError(f"An array of values has one dimension, not {values.ndim}.")
    return values


def as_ints(values: Any) -> Ints | None:
    """Integers as one column; None when they are not all 64-bit integers."""
    if _is_foreign(values):
        values = np.asarray(values)
    if isinstance(values, pa.Array | pa.ChunkedArray):
        if not pa.types.is_integer(values.type) or values.null_count:
            return None
        values = values.to_numpy(zero_copy_only=False) if isinstance(values, pa.Array) else values.to_numpy()
    if isinstance(values, np.ndarray):
        _one_dimension(values)
        if values.dtype.kind not in "iu" or (values.dtype == np.uint64 and values.max(initial=0) > 2**63 - 1):
            return None
        return np.ascontiguousarray(values, np.int64)
    if isinstance(values, range):
        inside = not values or (min(values[0], values[-1]) >= -(2**63) and max(values[0], values[-1]) < 2**63)
        return np.fromiter(values, np.int64, len(values)) if inside else None
    if isinstance(values, list | tuple | set | frozenset):
        members: list[Any] = list(values)  # type: ignore[arg-type]
        if all(type(member) is int or isinstance(member, np.integer) for member in members):
            try:
                return np.array([int(member) for member in members], np.int64)
            except OverflowError:
                return None
    return None


def encoded(values: Iterable[Any], type_: str) -> list[bytes]:
    """Each value's bytes."""
    return encode_all(list(values), type_)
