"""An open-addressing table of int64 members that remembers what the open layer changed: one probe a member.

Layout: `table` is [key, slot] pairs; slot 0 is empty, else slot = epoch << 3 | before << 1 | now, where `before` is
what was there when the epoch first touched the member (0 absent, 1 present, 2 unknown). At its first touch in an
epoch a member goes into the log with `before << 1 | now`: while no member changes twice, the log is the net change,
and only if one did, `changes` looks at the slots again.

Invariants: the capacity is a power of two and at most 60% full; entries are never removed (an absent member keeps
its place until the table is rebuilt).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kedge.jit import inline, jit

Ints = NDArray[np.int64]
Flags = NDArray[np.uint8]


@inline
def _home(key: np.int64, shift: int) -> np.int64:
    return np.int64((np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(shift))


@jit
def put(
    table: Ints, keys: Ints, now: int, epoch: int, missing: int, log: Ints, codes: Flags, logged: int
) -> tuple[int, int, int, int, int]:
    """Make `keys` present or absent.

    Returns entries added, members gained, members that changed, those that changed again, and the log's length.
    `missing` is what a member without an entry is: 0 absent, 2 unknown.
    """
    mask = (len(table) >> 1) - 1
    shift = 64
    size = mask
    while size:
        shift -= 1
        size >>= 1
    added = gained = changed = again = 0
    for start in range(0, len(keys), 32):
        end = min(start + 32, len(keys))
        warm = np.int64(
            0
        )  # touch a block's slots first, and those a probe may go on to: their cache misses overlap
        for i in range(start, end):
            at = _home(keys[i], shift)
            warm |= table[2 * at + 1] | table[2 * ((at + 3) & mask) + 1]
        if warm < 0:  # never, since slots are not negative; but it keeps the loads
            return 0, 0, 0, 0, -1
        for i in range(start, end):
            key = keys[i]
            at = _home(key, shift)
            while True:
                slot = table[2 * at + 1]
                if slot == 0:
                    if missing != now:
                        table[2 * at] = key
                        table[2 * at + 1] = epoch << 3 | missing << 1 | now
                        log[logged] = key
                        codes[logged] = missing << 1 | now
                        logged += 1
                        added += 1
                        gained += now
                    break
                if table[2 * at] == key:
                    if slot & 1 != now:
                        if slot >> 3 != epoch:
                            log[logged] = key
                            codes[logged] = (slot & 1) << 1 | now
                            logged += 1
                            table[2 * at + 1] = epoch << 3 | (slot & 1) << 1 | now
                        else:
                            table[2 * at + 1] = slot ^ 1
                            again += 1
                        changed += 1
                        gained += 1 if now else -1
                    break
                at = (at + 1) & mask
    return added, gained, changed + added, again, logged


@jit
def get(table: Ints, keys: Ints, missing: int, out: Flags) -> None:
    """What the table says of `keys`: 0, 1, or `missing`."""
    mask = (len(table) >> 1) - 1
    shift = 64
    size = mask
    while size:
        shift -= 1
        size >>= 1
    for i in range(len(keys)):
        key = keys[i]
        at = _home(key, shift)
        found = missing
        while table[2 * at + 1] != 0:
            if table[2 * at] == key:
                found = table[2 * at + 1] & 1
                break
            at = (at + 1) & mask
        out[i] = found


@jit
def load(table: Ints, keys: Ints, flags: Flags) -> tuple[int, int]:
    """Set members without logging: returns (entries added, members gained). The open layer's own marks stay."""
    mask = (len(table) >> 1) - 1
    shift = 64
    size = mask
    while size:
        shift -= 1
        size >>= 1
    added = gained = 0
    for i in range(len(keys)):
        key, now = keys[i], np.int64(flags[i])
        at = _home(key, shift)
        while True:
            slot = table[2 * at + 1]
            if slot == 0:
                table[2 * at] = key
                table[2 * at + 1] = 1 << 3 | now
                added += 1
                gained += now
                break
            if table[2 * at] == key:
                gained += now - (slot & 1)
                table[2 * at + 1] = slot & ~1 | now
                break
            at = (at + 1) & mask
    return added, gained  # type: ignore[return-value]  (one signed type to Numba)


@jit
def rehash(old: Ints, table: Ints, keep_absent: int, epoch: int) -> int:
    """Move every entry into a larger, empty `table`; returns the entries moved.

    Both tables are in the order of the hash, so this reads and writes them from one end to the other. Absent members
    that the open layer did not touch are left behind unless `keep_absent`.
    """
    mask = (len(table) >> 1) - 1
    shift = 64
    size = mask
    while size:
        shift -= 1
        size >>= 1
    moved = 0
    for source in range(len(old) >> 1):
        slot = old[2 * source + 1]
        if slot == 0 or (slot & 1 == 0 and slot >> 3 != epoch and not keep_absent):
            continue
        key = old[2 * source]
        at = _home(key, shift)
        while table[2 * at + 1] != 0:
            at = (at + 1) & mask
        table[2 * at] = key
        table[2 * at + 1] = slot
        moved += 1
    return moved


@jit
def changes(table: Ints, log: Ints, logged: int, keys: Ints, old: Flags, new: Flags) -> int:
    """The net changes of an open layer in which members changed twice, into the columns; returns how many."""
    mask = (len(table) >> 1) - 1
    shift = 64
    size = mask
    while size:
        shift -= 1
        size >>= 1
    count = 0
    for i in range(logged):
        at = _home(log[i], shift)
        while table[2 * at] != log[i] or table[2 * at + 1] == 0:
            at = (at + 1) & mask
        slot = table[2 * at + 1]
        before, now = slot >> 1 & 3, slot & 1
        if before != now:
            keys[count] = log[i]
            old[count] = before
            new[count] = now
            count += 1
    return count


@jit
def present(table: Ints, out: Ints) -> int:
    """The present members, in table order; returns how many."""
    count = 0
    for at in range(len(table) >> 1):
        if table[2 * at + 1] & 1:
            out[count] = table[2 * at]
            count += 1
    return count
