"""The machine code of tables: loops over many tables at once, each given by the address of its first word.

A table is an array of 8-byte words: header | slots | rows | heap | log (`table.py` has the meaning of the header).

    slot   hash's low 32 bits << 32 | row + 1, or 0
    row    touch | hash | pane | nulls | keys ... | has | cells ...      (touch = generation << 32 | log entry)
    heap   strings, each its length in bytes and its bytes padded to words
    log    row | has, cells before | has, cells after

Invariants:
- `prepare` writes only to slots, log, touch words, and beyond the rows and heap that the header counts: the version
  that the table had is untouched. `merge` is all that changes rows in place, and everything it overwrites is in the
  log first. Python sets the state word between kernels, since a compiler may reorder the stores inside one.
- `rebuild` makes the index from the rows; it is right after anything that `prepare` may have left there.
- Addresses come from live buffers whose size and layout `table.py` has checked.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.numpy_support import carray
from numpy.typing import NDArray

from kedge.jit import inline, jit

Words = NDArray[np.int64]
Floats = NDArray[np.float64]
Bytes = NDArray[np.uint8]

# Words of the header.
MAGIC, LAYOUT, ROWS_MAX, SLOTS, HEAP_MAX = 0, 2, 3, 4, 5
AT_SLOTS, AT_ROWS, AT_HEAP, AT_LOG, TOTAL = 6, 7, 8, 9, 10
STATE, VERSION_HIGH, VERSION_LOW, PREVIOUS_HIGH, PREVIOUS_LOW = 16, 17, 18, 19, 20
ROWS, HEAP, CLOSE, PREVIOUS_ROWS, PREVIOUS_HEAP, PREVIOUS_CLOSE = 21, 22, 23, 24, 25, 26
LOG, GENERATION, PANE_MIN = 27, 28, 29
NEW_ROWS, NEW_HEAP, NEW_LOG, TOUCHED = 32, 33, 34, 35
# Words of `shape`.
WIDTH, KEYS, CELLS, TEXTS, WINDOW_US = 0, 1, 2, 3, 4
REPLACE = 6  # the op that no aggregate has: see `layout.py` for the others
# What prepare answers for each table.
DONE, ROWS_FULL, HEAP_FULL, TOO_LATE, OVERFLOW = 0, 1, 2, 3, 4


@intrinsic
def _pointer(typing: Any, address: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(address), generate


_at: Any = _pointer  # an intrinsic is called without its first argument


@jit
def _words(address: int) -> Words:
    """The table at `address`, as long as its header says."""
    total = carray(_at(address), 64, np.int64)[TOTAL]
    return carray(_at(address), total, np.int64)


@jit
def _floats(address: int, total: int) -> Floats:
    return carray(_at(address), total, np.float64)


@jit
def store(addresses: Words, word: int, values: Words) -> None:
    """Set one header word of each table."""
    for at in range(addresses.size):
        _words(addresses[at])[word] = values[at]


@jit
def fetch(addresses: Words, word: int, out: Words) -> None:
    """Read one header word of each table."""
    for at in range(addresses.size):
        out[at] = _words(addresses[at])[word]


@inline
def _same(table: Words, row: int, rows: Words, given: int, at: int, heap: Words, shape: Words) -> bool:
    """Whether a row of the table and a given row are of the same group."""
    if table[row + 1] != rows[given, 1] or table[row + 2] != rows[given, 2] or table[row + 3] != rows[given, 3]:
        return False
    for key in range(shape[KEYS]):
        mine, other = table[row + 4 + key], rows[given, 4 + key]
        if not (shape[TEXTS] >> key) & 1 or (rows[given, 3] >> key) & 1:
            if mine != other:
                return False
            continue
        mine += at
        length = table[mine]
        if length != heap[other]:
            return False
        for word in range(1, 1 + (length + 7) // 8):
            if table[mine + word] != heap[other + word]:
                return False
    return True


@inline
def _take(
    table: Words, floats: Floats, target: int, rows: Words, row_floats: Floats, given: int, shape: Words, ops: Words
) -> bool:
    """Merge the cells of a given row into those at `target` (the `has` word); False at an overflow."""
    first = 4 + shape[KEYS]
    has, more = table[target], rows[given, first]
    for cell in range(shape[CELLS]):
        bit = np.int64(1) << np.int64(cell)
        if not more & bit:
            continue
        place, source = target + 1 + cell, first + 1 + cell
        op = ops[cell]
        if not has & bit:
            table[place] = rows[given, source]
        elif op == 0:
            total = table[place] + rows[given, source]
            if ((table[place] ^ total) & (rows[given, source] ^ total)) < 0:
                return False
            table[place] = total
        elif op == 1:
            floats[place] += row_floats[given, source]
        elif op == 2:
            table[place] = min(table[place], rows[given, source])
        elif op == 3:
            table[place] = max(table[place], rows[given, source])
        elif op == 6:  # REPLACE: loading, where a later row is a newer value
            table[place] = rows[given, source]
        else:
            old, new = floats[place], row_floats[given, source]
            # NaN is greater than all else.
            less = new < old or (old != old and new == new)
            more_than = old < new or (new != new and old == old)
            if less if op == 4 else more_than:
                floats[place] = new
    table[target] = has | more
    return True


@inline
def _copy_texts(table: Words, row: int, rows: Words, given: int, heap: Words, used: Any, shape: Words) -> Any:
    """Copy a new row's strings into the table's heap; the words used then, or -1 when it is full."""
    for key in range(shape[KEYS]):
        if not (shape[TEXTS] >> key) & 1 or (rows[given, 3] >> key) & 1:
            continue
        source = rows[given, 4 + key]
        size = 1 + (heap[source] + 7) // 8
        if used + size > table[HEAP_MAX]:
            return np.int64(-1)
        for word in range(size):
            table[table[AT_HEAP] + used + word] = heap[source + word]
        table[row + 4 + key] = used
        used += size
    return used


@inline
def _first_slot(rows: Words, given: Any, mask: Any) -> Any:
    """Where the search for a row's group begins; a task's hashes share bits, so panes and high bits decide."""
    pane = np.uint64(rows[given, 2]) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64((np.uint64(rows[given, 1]) ^ pane) >> np.uint64(32)) & mask


@jit
def _look_ahead(table: Words, rows: Words, low: int, high: int, width: int) -> Any:
    """Touch the slots and rows that these given rows will need: memory answers many loads at once."""
    mask, touched = table[SLOTS] - 1, np.int64(0)
    for given in range(low, high):
        touched += table[table[AT_SLOTS] + _first_slot(rows, given, mask)]
    for given in range(low, high):
        entry = table[table[AT_SLOTS] + _first_slot(rows, given, mask)]
        if entry != 0:
            touched += table[table[AT_ROWS] + ((entry & np.int64(0xFFFFFFFF)) - 1) * width]
    return touched


@jit
def _prepare_one(
    table: Words,
    floats: Floats,
    rows: Words,
    row_floats: Floats,
    heap: Words,
    lows: Words,
    highs: Words,
    shape: Words,
    ops: Words,
    failed: Words,
) -> Any:
    width, cells = shape[WIDTH], 1 + shape[CELLS]
    before, count, used, entries = table[ROWS], table[ROWS], table[HEAP], 0
    at_rows, at_slots, at_log = table[AT_ROWS], table[AT_SLOTS], table[AT_LOG]
    generation, mask = table[GENERATION], table[SLOTS] - 1
    closed, window = table[CLOSE], shape[WINDOW_US]
    stride, first = 1 + 2 * cells, 4 + shape[KEYS]
    for segment in range(lows.size):
        for given in range(lows[segment], highs[segment]):
            if (given - lows[segment]) % 32 == 0:
                table[TOUCHED] += _look_ahead(table, rows, given, min(given + 32, highs[segment]), width)
            failed[0] = given
            if rows[given, 2] + window <= closed:
                return TOO_LATE
            hash_ = np.uint64(rows[given, 1])
            tag = np.int64((hash_ << np.uint64(32)) >> np.uint64(1)) & ~np.int64(0xFFFFFFFF)
            slot = _first_slot(rows, given, mask)
            row = np.int64(-1)
            while table[at_slots + slot] != 0:
                entry = table[at_slots + slot]
                if entry & ~np.int64(0xFFFFFFFF) == tag:
                    index = (entry & np.int64(0xFFFFFFFF)) - 1
                    if _same(table, at_rows + index * width, rows, given, table[AT_HEAP], heap, shape):
                        row = index
                        break
                slot = (slot + 1) & mask
            if row < 0:
                if count == table[ROWS_MAX]:
                    return ROWS_FULL
                row = at_rows + count * width
                for word in range(1, width):
                    table[row + word] = rows[given, word]
                used = _copy_texts(table, row, rows, given, heap, used, shape)
                if used < 0:
                    return HEAP_FULL
                table[row] = 0
                count += 1
                table[at_slots + slot] = tag | count
                continue
            target = at_rows + row * width + first
            if row < before:
                touch = table[at_rows + row * width]
                if touch >> np.int64(32) != generation:
                    log = at_log + entries * stride
                    table[log] = row
                    for cell in range(cells):
                        table[log + 1 + cell] = table[target + cell]
                        table[log + 1 + cells + cell] = table[target + cell]
                    touch = generation << np.int64(32) | entries
                    table[at_rows + row * width] = touch
                    entries += 1
                target = at_log + (touch & np.int64(0xFFFFFFFF)) * stride + 1 + cells
            if not _take(table, floats, target, rows, row_floats, given, shape, ops):
                return OVERFLOW
    table[NEW_ROWS], table[NEW_HEAP], table[NEW_LOG] = count, used, entries
    return DONE


@jit
def prepare(
    addresses: Words,
    rows: Words,
    row_floats: Floats,
    heap: Words,
    pointers: Words,
    lows: Words,
    highs: Words,
    shape: Words,
    ops: Words,
    answers: Words,
    failed: Words,
) -> None:
    """Compute what the given rows would change; table t takes the segments pointers[t] to pointers[t+1]."""
    for at in range(addresses.size):
        table = _words(addresses[at])
        floats = _floats(addresses[at], table.size)
        low, high = pointers[at], pointers[at + 1]
        answers[at] = _prepare_one(
            table, floats, rows, row_floats, heap, lows[low:high], highs[low:high], shape, ops, failed[at:]
        )


@jit
def mark(addresses: Words) -> None:
    """Note what `restore` needs, before anything is changed."""
    for at in range(addresses.size):
        table = _words(addresses[at])
        table[LOG] = table[NEW_LOG]
        table[PREVIOUS_ROWS], table[PREVIOUS_HEAP] = table[ROWS], table[HEAP]
        table[PREVIOUS_CLOSE] = table[CLOSE]
        table[PREVIOUS_HIGH], table[PREVIOUS_LOW] = table[VERSION_HIGH], table[VERSION_LOW]


@jit
def merge(addresses: Words, close_us: int, shape: Words) -> None:
    """Make prepared changes the table's own."""
    width, cells = shape[WIDTH], 1 + shape[CELLS]
    stride, first = 1 + 2 * cells, 4 + shape[KEYS]
    for at in range(addresses.size):
        table = _words(addresses[at])
        for entry in range(table[NEW_LOG]):
            log = table[AT_LOG] + entry * stride
            target = table[AT_ROWS] + table[log] * width + first
            for cell in range(cells):
                table[target + cell] = table[log + 1 + cells + cell]
        for row in range(table[ROWS], table[NEW_ROWS]):
            table[PANE_MIN] = min(table[PANE_MIN], table[table[AT_ROWS] + row * width + 2])
        table[ROWS], table[HEAP] = table[NEW_ROWS], table[NEW_HEAP]
        table[CLOSE] = max(table[CLOSE], close_us)


@jit
def restore(addresses: Words, shape: Words) -> None:
    """Undo `merge` from the log; may be repeated."""
    width, cells = shape[WIDTH], 1 + shape[CELLS]
    stride, first = 1 + 2 * cells, 4 + shape[KEYS]
    for at in range(addresses.size):
        table = _words(addresses[at])
        for entry in range(table[LOG]):
            log = table[AT_LOG] + entry * stride
            target = table[AT_ROWS] + table[log] * width + first
            for cell in range(cells):
                table[target + cell] = table[log + 1 + cell]
        table[ROWS], table[HEAP] = table[PREVIOUS_ROWS], table[PREVIOUS_HEAP]
        table[CLOSE] = table[PREVIOUS_CLOSE]


@jit
def rebuild(addresses: Words, shape: Words) -> None:
    """Make the index and the smallest pane anew from the rows."""
    width = shape[WIDTH]
    for at in range(addresses.size):
        table = _words(addresses[at])
        at_slots, mask = table[AT_SLOTS], table[SLOTS] - 1
        for slot in range(table[SLOTS]):
            table[at_slots + slot] = 0
        smallest = np.int64(0x7FFFFFFFFFFFFFFF)
        for index in range(table[ROWS]):
            row = table[AT_ROWS] + index * width
            table[row] = 0
            smallest = min(smallest, table[row + 2])
            hash_ = np.uint64(table[row + 1])
            tag = np.int64((hash_ << np.uint64(32)) >> np.uint64(1)) & ~np.int64(0xFFFFFFFF)
            pane = np.uint64(table[row + 2]) * np.uint64(0x9E3779B97F4A7C15)
            slot = np.int64((hash_ ^ pane) >> np.uint64(32)) & mask
            while table[at_slots + slot] != 0:
                slot = (slot + 1) & mask
            table[at_slots + slot] = tag | (index + 1)
        table[PANE_MIN] = smallest


@jit
def vacuum(addresses: Words, shape: Words) -> None:
    """Drop the rows of closed windows and their strings; `rebuild` must follow."""
    width = shape[WIDTH]
    for at in range(addresses.size):
        table = _words(addresses[at])
        kept, used = 0, 0
        for index in range(table[ROWS]):
            row, to = table[AT_ROWS] + index * width, table[AT_ROWS] + kept * width
            if table[row + 2] + shape[WINDOW_US] <= table[CLOSE]:
                continue
            for word in range(width):
                table[to + word] = table[row + word]
            for key in range(shape[KEYS]):
                if (shape[TEXTS] >> key) & 1 and not (table[to + 3] >> key) & 1:
                    source, target = table[AT_HEAP] + table[to + 4 + key], table[AT_HEAP] + used
                    size = 1 + (table[source] + 7) // 8
                    for word in range(size):
                        table[target + word] = table[source + word]
                    table[to + 4 + key] = used
                    used += size
            kept += 1
        table[ROWS], table[HEAP] = kept, used


@inline
def _emit(table: Words, row: int, out: Words, heap: Words, count: int, used: Any, shape: Words) -> Any:
    """Copy one row into a column of `out`; the heap words used then."""
    for word in range(1, shape[WIDTH]):
        out[word, count] = table[row + word]
    if shape[TEXTS]:
        for key in range(shape[KEYS]):
            if (shape[TEXTS] >> key) & 1 and not (table[row + 3] >> key) & 1:
                source = table[AT_HEAP] + table[row + 4 + key]
                size = 1 + (table[source] + 7) // 8
                for word in range(size):
                    heap[used + word] = table[source + word]
                out[4 + key, count] = used
                used += size
    return used


@jit
def emit(addresses: Words, what: int, shape: Words, out: Words, heap: Words) -> tuple[int, int]:
    """Rows of all tables into the columns of `out`: 0 live, 1 changed and live, 2 just closed."""
    width, window = shape[WIDTH], shape[WINDOW_US]
    stride = 3 + 2 * shape[CELLS]
    count, used = 0, 0
    for at in range(addresses.size):
        table = _words(addresses[at])
        at_rows, close, before = table[AT_ROWS], table[CLOSE], table[PREVIOUS_CLOSE]
        first = np.int64(0)
        if what == 1:
            for entry in range(table[LOG]):
                row = at_rows + table[table[AT_LOG] + entry * stride] * width
                if table[row + 2] + window > close:
                    used = _emit(table, row, out, heap, count, used, shape)
                    count += 1
            first = table[PREVIOUS_ROWS]
        if what == 2 and table[PANE_MIN] + window > close:
            continue
        for index in range(first, table[ROWS]):
            row = at_rows + index * width
            end = table[row + 2] + window
            if (what == 2 and before < end <= close) or (what != 2 and end > close):
                used = _emit(table, row, out, heap, count, used, shape)
                count += 1
    return count, used


@jit
def count_open(addresses: Words, shape: Words) -> Any:
    """The number of rows whose window is not closed."""
    count = 0
    for at in range(addresses.size):
        table = _words(addresses[at])
        for index in range(table[ROWS]):
            count += table[table[AT_ROWS] + index * shape[WIDTH] + 2] + shape[WINDOW_US] > table[CLOSE]
    return count


@jit
def move(old: Words, new: Words, shape: Words) -> None:
    """Copy rows, strings and close time into larger tables; `rebuild` must follow."""
    for at in range(old.size):
        source, target = _words(old[at]), _words(new[at])
        for word in range(source[ROWS] * shape[WIDTH]):
            target[target[AT_ROWS] + word] = source[source[AT_ROWS] + word]
        for word in range(source[HEAP]):
            target[target[AT_HEAP] + word] = source[source[AT_HEAP] + word]
        target[ROWS], target[HEAP], target[CLOSE] = source[ROWS], source[HEAP], source[CLOSE]


@jit
def write_texts(offsets: Words, data: Bytes, heap: Words, out: Words) -> Any:
    """Strings of an Arrow array into a heap; `out` gets where each begins."""
    at = np.int64(0)
    for i in range(out.size):
        first, length = offsets[i], offsets[i + 1] - offsets[i]
        heap[at] = length
        out[i] = at
        for word in range((length + 7) // 8):
            packed = np.uint64(0)
            for byte in range(min(8, length - 8 * word)):
                packed |= np.uint64(data[first + 8 * word + byte]) << np.uint64(8 * byte)
            heap[at + 1 + word] = np.int64(packed)
        at += 1 + (length + 7) // 8
    return at


@jit
def read_texts(places: Words, valid: Any, heap: Words, bytes_: Bytes, offsets: Words, data: Bytes) -> None:
    """The inverse: offsets and data of an Arrow array; with empty `data` only the offsets."""
    total = np.int64(0)
    for i in range(places.size):
        offsets[i] = total
        if valid[i]:
            length = heap[places[i]]
            first = (places[i] + 1) * 8
            if data.size:
                for byte in range(length):
                    data[total + byte] = bytes_[first + byte]
            total += length
    offsets[places.size] = total
