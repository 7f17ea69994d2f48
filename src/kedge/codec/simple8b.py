"""Simple-8b: as many small numbers as fit into each 64-bit word, in 14 sizes.

The four low bits of a word are its selector; the other 60 hold 240 zeros, or 60 numbers of 1 bit, ... or one of 60
bits. Selector 1 is an escape, which the published scheme has not: the next word is one number of 64 bits, so that
every column can be written. Numbers are distances from the smallest value, which is in `params`.

It gives way less than a block's one width when large numbers are scattered, and pays with a branch per word.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kedge.codec import scratch
from kedge.codec.base_delta import extremes
from kedge.codec.encoded import Codec, Encoded, Values, corrupt, readable, target
from kedge.codec.items import narrow, widen
from kedge.jit import jit

COUNTS = (240, 0, 60, 30, 20, 15, 12, 10, 8, 7, 6, 5, 4, 3, 2, 1)  # numbers per word, by selector
BITS = (0, 64, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 30, 60)


def _room() -> tuple[Values, Values]:
    """For n numbers in one word: the bits that each may have, and the selector of exactly or the fewest above n."""
    bits = np.zeros(242, np.uint64)
    selectors = np.zeros(242, np.int64)
    for n in range(1, 241):
        selector = max((s for s in range(16) if COUNTS[s] >= n), key=lambda s: BITS[s])
        bits[n], selectors[n] = BITS[selector], selector
    return bits, selectors


_ROOM_BITS, _ROOM_SELECTOR = _room()
_COUNTS = np.array(COUNTS, np.int64)
_BITS = np.array(BITS, np.uint64)


@jit
def _pack(
    values: Values, base: int, words: Values, room: Values, selectors: Values, counts: Values, sizes: Values
) -> int:
    at = 0
    used = 0
    rows = values.shape[0]
    while at < rows:
        seen = np.uint64(0)
        taken = 0
        most = min(240, rows - at)
        while taken < most:
            wider = seen | np.uint64(values[at + taken] - base)
            if wider >> room[taken + 1] != 0:
                break
            seen = wider
            taken += 1
        if taken == 0:
            words[used] = np.uint64(1)
            words[used + 1] = np.uint64(values[at] - base)
            used += 2
            at += 1
            continue
        selector = selectors[taken]
        if taken < most:
            while counts[selector] > taken:  # only the last word may have room to spare
                selector += 2 if selector == 0 else 1
        taken = min(taken, counts[selector])
        word = np.uint64(selector)
        size = sizes[selector]
        if size > 0:
            shift = np.uint64(4)
            for i in range(at, at + taken):
                word |= np.uint64(values[i] - base) << shift
                shift += size
        words[used] = word
        used += 1
        at += taken
    return used


@jit
def _unpack(values: Values, base: int, words: Values, counts: Values, sizes: Values) -> int:
    """Fills `values`; returns the words used, or -1 when they hold too little."""
    at = 0
    used = 0
    rows = values.shape[0]
    while at < rows:
        if used >= words.shape[0]:
            return -1
        word = words[used]
        used += 1
        selector = np.int64(word & np.uint64(15))
        if selector == 1:
            if used >= words.shape[0]:
                return -1
            values[at] = np.int64(words[used]) + base
            used += 1
            at += 1
            continue
        taken = min(counts[selector], rows - at)
        size = sizes[selector]
        mask = (np.uint64(1) << size) - np.uint64(1)
        word >>= np.uint64(4)
        for i in range(at, at + taken):
            values[i] = np.int64(word & mask) + base
            word >>= size
        at += taken
    return used


def _encode(values: Values, _inner: str = "", /) -> Encoded:
    base = extremes(values)[0]
    words = scratch.array("body", np.uint64, 2 * values.size + 1)
    used = _pack(widen(values), base, words, _ROOM_BITS, _ROOM_SELECTOR, _COUNTS, _BITS)
    return Encoded(CODEC.code, (base, 0, 0), words[:used].copy().view(np.uint8))


def _decode(encoded: Encoded, dtype: np.dtype[Any], rows: int, out: Values | None, /) -> Values:
    out = target(dtype, rows, out)
    words = readable(encoded.body[: encoded.body.size // 8 * 8]).view(np.uint64)
    wide = scratch.array("simple8b", np.int64, rows)
    if _unpack(wide, encoded.params[0], words, _COUNTS, _BITS) * 8 != encoded.body.size:
        raise corrupt(CODEC.name, f"{encoded.body.size} bytes do not hold {rows} numbers")
    return narrow(wide, out)


CODEC = Codec(6, "simple8b", _encode, _decode)
