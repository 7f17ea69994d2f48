"""The hash of a group's keys, and from it the task: a format, the same on every host for ever.

    h = SEED
    for each key:  h = mix(h ^ word)        integers, dates and timestamps as int64, booleans as 0 or 1
                   h = mix(h ^ NULL)        a null
                   h = mix(h ^ text)        a string, where text = SEED; for each 8 bytes, little endian, the last
                                            padded with zeros: text = mix(text ^ bytes); text = mix(text ^ length)
    task = (h >> 1) mod tasks

mix is the finalizer of splitmix64. `docs/format.md` has it too, and golden values are tested.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kedge.jit import inline, jit
from kedge.kernel.columns import room

Words = NDArray[np.int64]
Hashes = NDArray[np.uint64]


@inline
def _mix(h: Any) -> Any:
    h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return h ^ (h >> np.uint64(31))


@jit
def hash_keys(hashes: Hashes, words: Words, nulls: Words, key: int) -> None:
    """Take one key column into the running hashes."""
    null = np.uint64(0x2545F4914F6CDD1D)
    bit = np.int64(1) << np.int64(key)
    for i in range(hashes.size):
        word = null if nulls[i] & bit else np.uint64(words[i])
        hashes[i] = _mix(hashes[i] ^ word)


@jit
def hash_texts(out: Any, offsets: Words, data: Any) -> None:
    """The `text` hash of each string of an Arrow array."""
    for i in range(out.size):
        h = np.uint64(0x9E3779B97F4A7C15)
        at, end = offsets[i], offsets[i + 1]
        length = end - at
        while at < end:
            word = np.uint64(0)
            for byte in range(min(8, end - at)):
                word |= np.uint64(data[at + byte]) << np.uint64(8 * byte)
            h = _mix(h ^ word)
            at += 8
        out[i] = _mix(h ^ np.uint64(length))


@jit
def tasks_of(hashes: Hashes, tasks: Any, out: Any) -> None:
    """The task of each hash."""
    for i in range(hashes.size):
        if tasks & (tasks - 1) == 0:
            out[i] = np.int32((hashes[i] >> np.uint64(1)) & np.uint64(tasks - 1))
        else:
            out[i] = np.int32((hashes[i] >> np.uint64(1)) % np.uint64(tasks))


@jit
def tasks_of_groups(groups: Words, first: int, keys: int, nulls: Words, tasks: int, out: Any) -> None:
    """The task of each group with integer keys, which begin at word `first`."""
    null = np.uint64(0x2545F4914F6CDD1D)
    for i in range(out.size):
        h = np.uint64(0x9E3779B97F4A7C15)
        for key in range(keys):
            is_null = (nulls[i] >> np.int64(key)) & 1
            h = _mix(h ^ (null if is_null else np.uint64(groups[i, first + key])))
        h = h >> np.uint64(1)
        if tasks & (tasks - 1) == 0:
            out[i] = np.int32(h & np.uint64(tasks - 1))
        else:
            out[i] = np.int32(h % np.uint64(tasks))


@jit
def order_by_task(tasks: Any, count: int, order: Words, out: Any) -> None:
    """Stable counting sort of `order` by task."""
    ends = np.zeros(count + 1, np.int64)
    for i in range(tasks.size):
        ends[tasks[i] + 1] += 1
    for task in range(count):
        ends[task + 1] += ends[task]
    for i in range(order.size):
        task = tasks[order[i]]
        out[ends[task]] = order[i]
        ends[task] += 1


SEED = np.uint64(0x9E3779B97F4A7C15)


def start(rows: int) -> NDArray[np.uint64]:
    """Hashes before any key."""
    return np.full(rows, SEED, np.uint64)


@jit
def reindex(slots: Any, groups: Words, count: int, width: int, names: int, shift: Any) -> None:
    """Fill the empty slots of a fragment's index with its groups; the hash is that of the generated kernel."""
    mix = np.uint64(0x9E3779B97F4A7C15)
    mask = np.uint64(slots.size - 1)
    for group in range(count):
        at = group * width
        h = np.uint64(groups[at]) * mix
        for name in range(names):
            h = (h ^ (h >> np.uint64(29)) ^ np.uint64(groups[at + 1 + name])) * mix
        slot = h >> shift
        while slots[slot] != 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = np.int32(group + 1)


@jit
def transpose(groups: Words, order: Words, out: Any) -> None:
    """Groups in this order, one contiguous row of `out` for each of their words."""
    for i in range(order.size):
        row = order[i]
        for word in range(out.shape[0]):
            out[word, i] = groups[row, word]


def transposed(groups: Words, order: Words) -> Words:
    """The words of `groups` in `order` as contiguous columns."""
    out = room(groups.shape[1], len(order))
    transpose(groups, order, out)
    return out


def text_buffers(texts: pa.Array) -> tuple[Words, NDArray[np.uint8]]:
    """Offsets and bytes of a large_binary array."""
    _, offsets, data = texts.buffers()
    if not len(texts) or offsets is None:
        return np.zeros(1, np.int64), np.zeros(1, np.uint8)
    ends = np.frombuffer(offsets, np.int64, len(texts) + 1, texts.offset * 8)
    return ends, np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)


def text_hashes(texts: pa.Array) -> NDArray[np.uint64]:
    """The `text` hash of each string."""
    offsets, data = text_buffers(texts.cast(pa.large_binary()))
    out = np.empty(len(texts), np.uint64)
    if len(texts):
        hash_texts(out, offsets, data)
    return out
