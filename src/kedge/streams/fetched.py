"""The bytes of units in objects, as readers hold them: small units whole, of large ones the columns that are read.

An object never changes, so what was fetched stays right; a bounded number of bytes of whole objects is kept, since
small units lie together in one object and are read one after the other. Safe for several threads.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kedge.errors import CorruptError
from kedge.host import Store
from kedge.streams import layout
from kedge.streams.index import UnitInfo, header_of

_KEPT_BYTES = 64 << 20
_WHOLE_BYTES = 1 << 20  # so much takes hardly longer than a request for less
_HEADER_BYTES = 32 << 10  # of a few hundred columns


class Fetched:
    """Objects of one stream, fetched when they are asked for."""

    def __init__(self, store: Store, root: str) -> None:
        self._store, self._root = store, root
        self._kept: dict[str, memoryview] = {}
        self._lock = threading.Lock()

    def file(self, name: str) -> memoryview:
        """The bytes of an object; CorruptError when it is not there."""
        with self._lock:
            found = self._kept.pop(name, None)
            if found is not None:
                self._kept[name] = found  # the last used goes last
                return found
        found = memoryview(self._get(name))
        with self._lock:
            self._kept[name] = found
            while len(self._kept) > 1 and sum(len(held) for held in self._kept.values()) > _KEPT_BYTES:
                del self._kept[next(iter(self._kept))]
        return found

    def unit(self, info: UnitInfo, columns: Sequence[int] | None) -> memoryview:
        """The bytes of a unit's object; with `columns`, those of the header and of these columns at least."""
        with self._lock:
            held = info.file in self._kept
        if columns is None or held or info.bytes <= _WHOLE_BYTES:
            return self.file(info.file)
        room = np.zeros(info.start + info.bytes, np.uint8)  # pages that nothing is put into cost nothing
        self._fill(room, info, 0, _HEADER_BYTES)
        size = layout.header_bytes(room.data, info.start)
        if size > _HEADER_BYTES:
            self._fill(room, info, _HEADER_BYTES, size)
        header = header_of(room.data, info)
        bodies = [header.buffers[one["first_buffer"] : one["first_buffer"] + one["buffers"]]
                  for one in header.columns[list(columns)]]  # fmt: skip
        if 2 * sum(int(part["bytes"].sum()) for part in bodies) > info.bytes:
            return self.file(info.file)
        for part in bodies:  # those of a column lie one behind the other
            if len(part):
                self._fill(room, info, int(part["start"].min()), int((part["start"] + part["bytes"]).max()))
        room.setflags(write=False)
        return room.data

    def _fill(self, room: NDArray[np.uint8], info: UnitInfo, start: int, end: int) -> None:
        """Fetch bytes [start, end) of a unit."""
        found = self._get(info.file, info.start + start, info.start + min(end, info.bytes))
        room[info.start + start :][: len(found)] = np.frombuffer(found, np.uint8)

    def _get(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        try:
            return self._store.get(name, start, end)
        except FileNotFoundError:
            raise CorruptError(
                f"{self._root}/{name} is not there: it was trimmed or lost. Read from `begins()` on.",
                code="unit-missing",
            ) from None

    def forget(self) -> None:
        """Give the memory back."""
        with self._lock:
            self._kept.clear()
