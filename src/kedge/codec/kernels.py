"""The kernels that turn columns into small words and back: bit packing, runs, dictionary codes.

Values are taken 1,024 at a time into a buffer of 64-bit words that stays in the L1 cache, so one compiled
signature serves every item type, and bit widths and modes are run-time arguments: 2 kernels serve frame, delta,
delta-of-delta, XOR and base-delta. They stand in one file because they share `_load` and `_store`, and a cached
kernel does not notice an edit to a helper in another file.

A block is 64 rows of 16 lanes; value i is in row i // 16, lane i % 16, and each lane packs its rows one after the
other into 64-bit words. All 16 lanes shift by the same amount: that is what lets the compiler use vector
instructions. A last block packs only the rows that it has.

Invariants:
- An encoder finds base and width from the very values that it packs, or is given them and checks each value.
- A decoder adds up what the header asks for before it touches the packed words, and refuses what is not there.
- Kernels index two-dimensional arrays [row, lane]: with computed one-dimensional indices Numba checks for negative
  ones and nothing is vectorised (measured: 4 GB/s instead of 20).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kedge.codec.encoded import Bytes, Values
from kedge.jit import inline, jit

FRAME, DELTA, DELTA2, XOR, FIXED = range(5)  # modes of `pack` and `unpack`


@jit
def _load(raw: Bytes, item: int, at: int, count: int, flat: Values) -> None:
    if item == 8:
        words = raw.view(np.int64)[at : at + count]
        for i in range(count):
            flat[i] = words[i]
    elif item == 4:
        halves = raw.view(np.int32)[at : at + count]
        for i in range(count):
            flat[i] = halves[i]
    else:
        unsigned = raw.view(np.uint32)[at : at + count]
        for i in range(count):
            flat[i] = np.int64(unsigned[i])


@jit
def _store(raw: Bytes, item: int, at: int, count: int, flat: Values) -> None:
    if item == 8:
        words = raw.view(np.int64)[at : at + count]
        for i in range(count):
            words[i] = flat[i]
    else:
        halves = raw.view(np.int32)[at : at + count]
        for i in range(count):
            halves[i] = np.int32(flat[i])


@inline
def _width(span: Any) -> int:
    width = 0
    while span != 0:
        span >>= np.uint64(1)
        width += 1
    return width


@inline
def _pack_row(block: Values, base: Any, width: Any, r: int, words: Values, at: Any) -> None:
    bit = r * width
    w = at + (bit >> 6)
    used = bit & 63
    shift = np.uint64(used)
    if used == 0:
        for lane in range(16):
            words[w, lane] = np.uint64(block[r, lane] - base)
    else:
        for lane in range(16):
            words[w, lane] |= np.uint64(block[r, lane] - base) << shift
        if used + width > 64:
            rest = np.uint64(64 - used)
            for lane in range(16):
                words[w + 1, lane] = np.uint64(block[r, lane] - base) >> rest


@inline
def _pack(block: Values, base: Any, width: Any, rows: int, words: Values, at: Any) -> None:
    for r in range(rows):
        _pack_row(block, base, width, r, words, at)


@inline
def _pack_narrow(block: Values, base: Any, width: Any, rows: int, words: Values, at: Any) -> None:
    """The same for widths below 16, four rows at a time where a word has room for them: what costs is to go back to
    a word that was just written."""
    r = 0
    while r < rows:
        bit = r * width
        w = at + (bit >> 6)
        used = bit & 63
        if used + 4 * width <= 64 and r + 4 <= rows:
            first = np.uint64(used)
            second = np.uint64(used + width)
            third = np.uint64(used + 2 * width)
            fourth = np.uint64(used + 3 * width)
            keep = np.uint64(0) if used == 0 else ~np.uint64(0)
            for lane in range(16):
                words[w, lane] = (
                    (words[w, lane] & keep)
                    | np.uint64(block[r, lane] - base) << first
                    | np.uint64(block[r + 1, lane] - base) << second
                    | np.uint64(block[r + 2, lane] - base) << third
                    | np.uint64(block[r + 3, lane] - base) << fourth
                )
            r += 4
        else:
            _pack_row(block, base, width, r, words, at)
            r += 1


@inline
def _unpack(block: Values, base: Any, width: Any, rows: int, words: Values, at: Any) -> None:
    mask = ~np.uint64(0) >> np.uint64(64 - width)
    for r in range(rows):
        bit = r * width
        w = at + (bit >> 6)
        used = bit & 63
        shift = np.uint64(used)
        if used + width > 64:
            rest = np.uint64(64 - used)
            for lane in range(16):
                block[r, lane] = np.int64(((words[w, lane] >> shift) | (words[w + 1, lane] << rest)) & mask) + base
        else:
            for lane in range(16):
                block[r, lane] = np.int64((words[w, lane] >> shift) & mask) + base


@inline
def _difference(mode: int, window: Values, flat: Values) -> None:
    """What a mode packs instead of the values; `window` begins with the two values before the block."""
    if mode == 1:
        for i in range(1024):
            flat[i] = window[i + 2] - window[i + 1]
    elif mode == 2:
        for i in range(1024):
            flat[i] = window[i + 2] - 2 * window[i + 1] + window[i]
    else:
        for i in range(1024):
            flat[i] = window[i + 2] ^ window[i + 1]


@inline
def _integrate(mode: int, state: Values, count: int, flat: Values) -> None:
    """The inverse of `_difference`, in place; `state` is the last value and the last step."""
    last = state[0]
    step = state[1]
    if mode == 1:
        for i in range(count):
            last += flat[i]
            flat[i] = last
    elif mode == 2:
        for i in range(count):
            step += flat[i]
            last += step
            flat[i] = last
    else:
        for i in range(count):
            last ^= flat[i]
            flat[i] = last
    state[0] = last
    state[1] = step


@inline
def _trailing(bits: Any) -> int:
    zeros = 0
    while zeros < 63 and (bits >> np.uint64(zeros)) & np.uint64(1) == 0:
        zeros += 1
    return zeros


@jit
def pack(
    raw: Bytes,
    item: int,
    rows: int,
    mode: int,
    params: Values,
    bounds: Values,
    bases: Values,
    sizes: Values,
    words: Values,
) -> int:
    """Pack `rows` items; returns how many rows of `words` were written, or -1 when FIXED does not hold a value.

    `bounds` are widened to the smallest and the largest value, but for FIXED, which is given them.
    """
    block = np.empty((64, 16), np.int64)
    flat = block.reshape(1024)
    window = np.empty(1026, np.int64)
    window[0] = params[0] - params[1]
    window[1] = params[0]
    at = 0
    for b in range((rows + 1023) >> 10):
        count = min(1024, rows - b * 1024)
        differs = mode != 0 and mode != 4
        _load(raw, item, b * 1024, count, window[2:] if differs else flat)
        if differs:
            values = window[2:]
            smallest = values[0]
            largest = values[0]
            for i in range(count):
                smallest = min(smallest, values[i])
                largest = max(largest, values[i])
            bounds[0] = min(bounds[0], smallest)
            bounds[1] = max(bounds[1], largest)
            _difference(mode, window, flat)
            window[0] = window[count]
            window[1] = window[count + 1]
        low = params[0] if mode == 4 else np.int64(0)
        shift = 0
        if mode >= 3:
            seen = np.uint64(0)
            for i in range(count):
                seen |= np.uint64(flat[i] - low)
            width = params[1] if mode == 4 else 0
            if mode == 4 and width < 64 and seen >> np.uint64(width) != 0:
                return -1
            if mode == 3:
                shift = _trailing(seen)
                width = _width(seen >> np.uint64(shift))
                if shift > 0:
                    for i in range(count):
                        flat[i] = np.int64(np.uint64(flat[i]) >> np.uint64(shift))
        else:
            low = flat[0]
            high = flat[0]
            for i in range(count):
                low = min(low, flat[i])
                high = max(high, flat[i])
            width = _width(np.uint64(high - low))
            if mode == 0:
                bounds[0] = min(bounds[0], low)
                bounds[1] = max(bounds[1], high)
        if mode != 4:
            bases[b] = low
            sizes[b, 0] = width
            sizes[b, 1] = shift
        if width == 0:
            continue
        depth = (count + 15) >> 4
        for i in range(count, depth * 16):
            flat[i] = low
        if width < 16:
            _pack_narrow(block, low, width, depth, words, at)
        else:
            _pack(block, low, width, depth, words, at)
        at += (depth * width + 63) >> 6
    return at


@jit
def unpack(
    raw: Bytes, item: int, rows: int, mode: int, params: Values, bases: Values, sizes: Values, words: Values
) -> int:
    """Unpack into `raw`; returns 0, or the number of the first block (from 1) whose words are not there."""
    blocks = (rows + 1023) >> 10
    at = 0
    for b in range(blocks):
        depth = (min(1024, rows - b * 1024) + 15) >> 4
        width = params[1] if mode == 4 else np.int64(sizes[b, 0])
        if width < 0 or width > 64:
            return b + 1
        at += (depth * width + 63) >> 6
        if at > words.shape[0]:
            return b + 1
    block = np.empty((64, 16), np.int64)
    flat = block.reshape(1024)
    state = np.empty(2, np.int64)
    state[0] = params[0]
    state[1] = params[1]
    at = 0
    for b in range(blocks):
        count = min(1024, rows - b * 1024)
        base = params[0] if mode == 4 else bases[b]
        width = params[1] if mode == 4 else np.int64(sizes[b, 0])
        if width == 0:
            for i in range(1024):
                flat[i] = base
        else:
            depth = (count + 15) >> 4
            _unpack(block, base, width, depth, words, at)
            at += (depth * width + 63) >> 6
        if mode == 3:
            shift = np.uint64(sizes[b, 1] & 63)
            if shift > 0:
                for i in range(1024):
                    flat[i] = np.int64(np.uint64(flat[i]) << shift)
        if mode != 0 and mode != 4:
            _integrate(mode, state, count, flat)
        _store(raw, item, b * 1024, count, flat)
    return 0


@jit
def find_runs(raw: Bytes, item: int, rows: int, values: Values, lengths: Values) -> int:
    """Write each run's value and length; returns how many runs there are.

    Every value is written where the next run belongs, and a change moves on: no branch that would be mispredicted. So
    the last place of `values` and `lengths` is one more than the runs.
    """
    window = np.empty(1025, np.int64)  # begins with the value before the block
    flat = window[1:]
    run = np.uint64(0)
    for b in range((rows + 1023) >> 10):
        count = min(1024, rows - b * 1024)
        _load(raw, item, b * 1024, count, flat)
        if b == 0:
            window[0] = ~flat[0]
        for i in range(count):
            values[run] = flat[i]
            lengths[run] = b * 1024 + i
            run += np.uint64(flat[i] != window[i])
        window[0] = flat[count - 1]
    found = np.int64(run)
    for k in range(found - 1):
        lengths[k] = lengths[k + 1] - lengths[k]
    if found > 0:
        lengths[found - 1] = rows - lengths[found - 1]
    return int(found)


@jit
def fill_runs(raw: Bytes, item: int, rows: int, values: Values, lengths: Values) -> int:
    """Write the runs out; returns the number of rows that the lengths ask for (nothing is written unless equal)."""
    total = 0
    for run in range(lengths.shape[0]):
        if lengths[run] < 0 or lengths[run] > rows - total:
            return -1
        total += lengths[run]
    if total != rows:
        return total
    block = np.empty((65, 16), np.int64)
    flat = block.reshape(1040)
    used = 0
    at = 0
    for run in range(lengths.shape[0]):
        value = values[run]
        left = lengths[run]
        while left > 0:
            take = min(left, 1024 - used)
            for i in range(used, used + take, 16):  # up to 15 too many, which the next run overwrites
                first = np.uint64(i)  # unsigned: no check for negative places
                for lane in range(np.uint64(16)):
                    flat[first + lane] = value
            used += take
            left -= take
            if used == 1024:
                _store(raw, item, at, 1024, flat)
                at += 1024
                used = 0
    _store(raw, item, at, used, flat)
    return total


@jit
def find_codes(
    raw: Bytes, item: int, rows: int, keys: Values, slots: Values, entries: Values, codes: Values
) -> int:
    """Number the distinct values as they come; returns how many there are, or -1 when `entries` is too short.

    `keys` and `slots` are a table of a power of two, longer than `entries`; a slot holds code + 1, or 0: free.
    """
    block = np.empty((64, 16), np.int64)
    flat = block.reshape(1024)
    mask = np.uint64(slots.shape[0] - 1)
    known = 0
    for b in range((rows + 1023) >> 10):
        count = min(1024, rows - b * 1024)
        _load(raw, item, b * 1024, count, flat)
        target = codes[b * 1024 : b * 1024 + count]
        for i in range(count):
            value = flat[i]
            hashed = np.uint64(value) * np.uint64(0x9E3779B97F4A7C15)
            slot = (hashed ^ (hashed >> np.uint64(32))) & mask
            code = slots[slot]
            while code != 0 and keys[slot] != value:
                slot = (slot + np.uint64(1)) & mask
                code = slots[slot]
            if code == 0:
                if known == entries.shape[0]:
                    return -1
                entries[known] = value
                known += 1
                code = np.uint32(known)
                keys[slot] = value
                slots[slot] = code
            target[i] = code - np.uint32(1)
    return known


@jit
def take_entries(raw: Bytes, item: int, rows: int, entries: Values, codes: Values) -> int:
    """Write entries[code] for each code; returns 0, or 1 (and writes no such block) when a code is out of range."""
    block = np.empty((64, 16), np.int64)
    flat = block.reshape(1024)
    known = np.uint32(entries.shape[0])
    for b in range((rows + 1023) >> 10):
        count = min(1024, rows - b * 1024)
        source = codes[b * 1024 : b * 1024 + count]
        highest = np.uint32(0)
        for i in range(count):
            highest = max(highest, source[i])
        if highest >= known:
            return 1
        for i in range(count):
            flat[i] = entries[np.uint64(source[i])]
        _store(raw, item, b * 1024, count, flat)
    return 0
