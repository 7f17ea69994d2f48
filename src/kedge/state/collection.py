"""What all structures share: a reader, the types of its values, and arrays turned into members.

Invariant: a call is one write to the log: other threads and the versions see all of it or nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from threading import RLock
from typing import Any

import numpy as np
import pyarrow as pa

from kedge.errors import UsageError
from kedge.state.commands import SCHEMES, Spec
from kedge.state.delta import Ints
from kedge.state.readers import Live, Reader
from kedge.state.values import Value, decode, encode


class View:
    """A structure as it was at some version: everything that reads."""

    def __init__(self, reader: Reader, lock: RLock) -> None:
        self._reader, self._lock = reader, lock
        self._type = reader.spec.type

    @property
    def spec(self) -> Spec:
        """What the structure is."""
        return self._reader.spec

    def __len__(self) -> int:
        with self._lock:
            return self._reader.count()

    def _encode(self, value: Any) -> bytes:
        return encode(value, self._type)

    def _decode(self, cell: bytes) -> Value:
        return decode(cell, self._type)

    def _one(self, cell: bytes) -> bytes | None:
        with self._lock:
            return self._reader.get([cell])[0]

    def _items(self) -> list[tuple[bytes, bytes]]:
        with self._lock:
            return list(self._reader.items())


class Writes:
    """The scheme, for structures that can be written."""

    _live: Live
    _lock: RLock

    @property
    def scheme(self) -> str:
        """How changes are logged: `undo`, `redo`, `command` or `full`. Assign to switch, also while in use."""
        return self._live.scheme

    @scheme.setter
    def scheme(self, scheme: str) -> None:
        if scheme not in SCHEMES:
            raise UsageError(f"There is no scheme {scheme!r}. There are: {', '.join(SCHEMES)}.")
        with self._lock:
            self._live.switch(scheme)


def as_list(values: Any) -> list[Any]:
    """An array, or anything that can be iterated, as a list."""
    if isinstance(values, str | bytes):
        raise UsageError(f"{values!r} is one value; pass a list or an array of values.")
    if isinstance(values, pa.Array | pa.ChunkedArray):
        if values.null_count:
            raise UsageError("An array of values has nulls; drop them first (`drop_null()`).")
        return values.to_pylist()
    return values.tolist() if isinstance(values, np.ndarray) else list(values)


def as_ints(values: Any) -> Ints | None:
    """Integers as one column; None when they are not all 64-bit integers."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        if not pa.types.is_integer(values.type) or values.null_count:
            return None
        values = values.to_numpy(zero_copy_only=False) if isinstance(values, pa.Array) else values.to_numpy()
    if isinstance(values, np.ndarray):
        if values.ndim != 1:
            raise UsageError(f"An array of values has one dimension, not {values.ndim}.")
        if values.dtype.kind not in "iu" or (values.dtype == np.uint64 and values.max(initial=0) > 2**63 - 1):
            return None
        return np.ascontiguousarray(values, np.int64)
    if isinstance(values, list | tuple | range | set | frozenset):
        members: list[Any] = list(values)  # type: ignore[arg-type]
        if all(type(member) is int or isinstance(member, np.integer) for member in members):
            try:
                return np.array([int(member) for member in members], np.int64)
            except OverflowError:
                return None
    return None


def encoded(values: Iterable[Any], type_: str) -> list[bytes]:
    """Each value's bytes."""
    return [encode(value, type_) for value in values]
