"""The bytes of units in objects, as readers hold them: small objects whole, large ones as far as they are needed.

An object never changes, so what was fetched stays right; a bounded number of bytes is kept, since small units lie
together in one object and are read one after the other. Safe for several threads.
"""

from __future__ import annotations

import threading

from kedge.errors import CorruptError
from kedge.host import Store

_KEPT_BYTES = 64 << 20


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
        try:
            found = memoryview(self._store.get(name))
        except FileNotFoundError:
            raise CorruptError(
                f"{self._root}/{name} is not there: it was trimmed or lost. Read from `begins()` on.",
                code="unit-missing",
            ) from None
        with self._lock:
            self._kept[name] = found
            while len(self._kept) > 1 and sum(len(held) for held in self._kept.values()) > _KEPT_BYTES:
                del self._kept[next(iter(self._kept))]
        return found

    def forget(self) -> None:
        """Give the memory back."""
        with self._lock:
            self._kept.clear()
