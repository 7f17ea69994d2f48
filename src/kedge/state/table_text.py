"""Integers as bytes, in bulk: sorted members as variable-byte gaps, and members as Redis protocol text.

Invariants: `unpack_gaps` reads only inside its buffer and says -1 when the bytes do not add up; the caller raises.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kedge.jit import jit

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]


@jit
def pack_gaps(keys: Ints, out: Bytes) -> int:
    """Sorted, distinct `keys` after the first as LEB128 gaps; `out` has 10 bytes a key. Returns the bytes used."""
    at = 0
    for i in range(1, len(keys)):
        gap = np.uint64(keys[i]) - np.uint64(keys[i - 1])
        while gap >= np.uint64(128):
            out[at] = np.uint8(gap & np.uint64(127)) | np.uint8(128)
            gap >>= np.uint64(7)
            at += 1
        out[at] = np.uint8(gap)
        at += 1
    return at


@jit
def unpack_gaps(data: Bytes, first: int, keys: Ints) -> int:
    """The inverse: fills `keys`; returns the bytes read, -1 when they are too few or malformed."""
    at, size = 0, len(data)
    last = np.uint64(first)
    if len(keys):
        keys[0] = first
    for i in range(1, len(keys)):
        gap, shift = np.uint64(0), np.uint64(0)
        while True:
            if at >= size or shift > np.uint64(63):
                return -1
            byte = np.uint64(data[at])
            at += 1
            gap |= (byte & np.uint64(127)) << shift
            if byte < np.uint64(128):
                break
            shift += np.uint64(7)
        last += gap
        keys[i] = np.int64(last)
    return at


@jit
def bulk_strings(keys: Ints, out: Bytes, ends: Ints) -> int:
    """Each key as `$<length>\\r\\n<digits>\\r\\n`; `out` has 28 bytes a key. `ends[i]` is where key i ends."""
    at = 0
    digits = np.empty(20, np.uint8)
    for i in range(len(keys)):
        key = keys[i]
        rest = np.uint64(-key) if key < 0 else np.uint64(key)
        count = 0
        while True:
            digits[count] = np.uint8(48 + rest % np.uint64(10))
            rest //= np.uint64(10)
            count += 1
            if rest == np.uint64(0):
                break
        length = count + (1 if key < 0 else 0)
        out[at] = 36  # $
        at += 1
        if length >= 10:
            out[at] = 48 + length // 10
            at += 1
        out[at] = 48 + length % 10
        out[at + 1] = 13
        out[at + 2] = 10
        at += 3
        if key < 0:
            out[at] = 45  # -
            at += 1
        for digit in range(count - 1, -1, -1):
            out[at] = digits[digit]
            at += 1
        out[at] = 13
        out[at + 1] = 10
        at += 2
        ends[i] = at
    return at
