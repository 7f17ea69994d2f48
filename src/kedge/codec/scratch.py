"""Working memory of a thread, used again from call to call.

A fresh large array costs a page fault for every 4 KiB, which is dearer than packing what is in it. Nothing that is
returned to a caller lives here, but for two things: the room that a caller lends for the body of a column, so that it
is packed where it will stay, and `pages`, which are used again only when nobody holds a view of them any more.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kedge.codec.encoded import Bytes

_KEPT_BYTES_MAX = 64 << 20  # per name and thread; larger ones are not kept

_PAGE = 4096
_PAGES_KEPT_MAX = 96 << 20  # used bytes of pages per thread
_FREE = 3  # references to a buffer that nobody uses: the list's, the loop's, and the one of asking

_local = threading.local()
_lent = threading.local()
_pages = threading.local()


def take(name: str, size: int) -> Bytes:
    """`size` bytes whose contents are undefined; valid until the next take of `name` in this thread."""
    kept: dict[str, Bytes] = _local.__dict__
    buffer = kept.get(name)
    if buffer is None or buffer.size < size:
        buffer = np.empty(max(size, 1 << 16), np.uint8)
        if buffer.size <= _KEPT_BYTES_MAX:
            kept[name] = buffer
    return buffer[:size]


def array(name: str, dtype: Any, count: int) -> NDArray[Any]:
    """The same as an array of `count` items."""
    dtype = np.dtype(dtype)
    return take(name, count * dtype.itemsize).view(dtype)


@contextmanager
def lend(room: Bytes) -> Generator[None]:
    """Until the end, bodies that are packed in this thread stay where they are, at the beginning of `room`."""
    kept: dict[str, Bytes] = _local.__dict__
    before = kept.get("body")
    kept["body"], _lent.room = room, room
    try:
        yield
    finally:
        kept.pop("body")
        if before is not None:
            kept["body"] = before
        _lent.room = None


def lent() -> bool:
    """Whether this thread's next body overwrites the last one."""
    return getattr(_lent, "room", None) is not None


def pages(size: int) -> Bytes:
    """`size` bytes that begin at a page, for whoever holds a view of them; `keep` them for the next unit."""
    kept: list[tuple[Bytes, int]] = _pages.__dict__.setdefault("kept", [])
    for buffer, _ in kept:
        if buffer.size >= size + _PAGE and sys.getrefcount(buffer) == _FREE:
            break
    else:
        buffer = np.empty(size + _PAGE, np.uint8)
    skip = -buffer.ctypes.data % _PAGE
    return buffer[skip : skip + size]


def keep(view: Bytes, used: int) -> None:
    """Use the memory of these pages again when nobody holds them, unless this thread keeps enough already."""
    buffer = view.base
    kept: list[tuple[Bytes, int]] = _pages.kept
    held = [one for one in kept if one[0] is not buffer]
    if isinstance(buffer, np.ndarray) and sum(one[1] for one in held) + used <= _PAGES_KEPT_MAX:
        held.append((buffer, used))
    _pages.kept = held
