"""Working memory of a thread, used again from call to call.

A fresh large array costs a page fault for every 4 KiB, which is dearer than packing what is in it. Nothing that is
returned to a caller lives here.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kedge.codec.encoded import Bytes

_KEPT_BYTES_MAX = 64 << 20  # per name and thread; larger ones are not kept

_local = threading.local()


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
