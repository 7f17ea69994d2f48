"""State rows as words: between Arrow batches and the matrix that the table kernels take.

A row is `touch | hash | pane | nulls | keys ... | has | cells ...`, every one 8 bytes; a string key is the place of
its bytes in a heap of words. The hash is the one that decides the task.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from kedge.kernel import columns, hashing
from kedge.kernel import table_kernels as machine
from kedge.kernel.layout import Layout
from kedge.window import Panes

Words = NDArray[np.int64]
FIRST_KEY = 4
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Packed:
    """Rows and the heap of their strings."""

    rows: Words  # (n, width)
    heap: Words
    tasks: NDArray[np.int32]


class Form:
    """How the rows of one program lie in memory: what the kernels need to know of a layout."""

    def __init__(self, layout: Layout, tasks: int, panes: Panes) -> None:
        self.layout, self.tasks = layout, tasks
        self.width = FIRST_KEY + len(layout.keys) + 1 + len(layout.cells)
        self.has = FIRST_KEY + len(layout.keys)
        self.log_width = 1 + 2 * (1 + len(layout.cells))
        texts = sum(1 << at for at, key in enumerate(layout.keys) if key.is_string)
        self.has_texts = texts != 0
        shape = [self.width, len(layout.keys), len(layout.cells), texts, panes.width_us]
        self.shape: Words = np.array(shape, np.int64)
        self.ops: Words = np.array([cell.op for cell in layout.cells] or [0], np.int64)
        text = f"{FORMAT} {layout.schema} {shape} {self.ops.tolist()} {tasks} {panes}"
        self.fingerprint = xxhash.xxh3_64_intdigest(text.encode()) >> 1

    def pack(self, batch: pa.RecordBatch) -> Packed:
        """State rows or partials as words."""
        n = batch.num_rows
        rows = columns.room(n, self.width)
        rows[:, 0] = 0
        nulls = np.zeros(n, np.int64)
        hashes = hashing.start(n)
        heap = np.zeros(0, np.int64)
        for at, key in enumerate(self.layout.keys):
            column = batch.column(2 + at)
            if column.null_count:
                nulls |= columns.validity(column).astype(np.int64) ^ 1 if at == 0 else (
                    (columns.validity(column).astype(np.int64) ^ 1) << at
                )  # fmt: skip
            if key.is_string:
                words, texts, more = self._texts(column, len(heap))
                heap = np.concatenate([heap, more]) if len(heap) else more
                hashing.hash_keys(hashes, texts.view(np.int64), nulls, at)
            else:
                words = columns.words_of(column, as_float=False)
                hashing.hash_keys(hashes, words, nulls, at)
            rows[:, FIRST_KEY + at] = words
        rows[:, 1] = hashes.view(np.int64)
        rows[:, 2] = columns.values(batch.column(1))
        rows[:, 3] = nulls
        self._pack_cells(batch, rows)
        return Packed(rows, heap, columns.values(batch.column(0)))

    def _texts(self, column: pa.Array, base: int) -> tuple[Words, NDArray[np.uint64], Words]:
        """Places in the heap, hashes and heap of a string column; equal strings share their bytes."""
        coded = columns.encoded(column)
        distinct = coded.dictionary.cast(pa.large_binary())
        codes = columns.values(coded.indices.fill_null(0)).astype(np.int64)
        offsets, data = hashing.text_buffers(distinct)
        heap = np.zeros(len(distinct) + (int(offsets[-1] - offsets[0]) + 7 * len(distinct)) // 8, np.int64)
        places = np.zeros(len(distinct), np.int64)
        used = machine.write_texts(offsets, data, heap, places)
        hashes = hashing.text_hashes(distinct)
        if not len(distinct):
            return np.zeros(len(codes), np.int64), np.zeros(len(codes), np.uint64), heap[:0]
        valid = columns.validity(column) == 1
        return np.where(valid, places[codes] + base, 0), np.where(valid, hashes[codes], np.uint64(0)), heap[:used]

    def _pack_cells(self, batch: pa.RecordBatch, rows: Words) -> None:
        has = np.full(len(rows), (1 << len(self.layout.cells)) - 1, np.int64)
        first = 2 + len(self.layout.keys)
        for at, cell in enumerate(self.layout.cells):
            column = batch.column(first + at)
            if column.null_count:
                has &= ~((columns.validity(column).astype(np.int64) ^ 1) << at)
            rows[:, self.has + 1 + at] = columns.words_of(column, as_float=cell.is_float)
        rows[:, self.has] = has

    def unpack(self, flat: Words, heap: Words) -> pa.RecordBatch:
        """State rows of words, in the same order; `flat` has one contiguous line for each word of a row."""
        tasks = np.empty(flat.shape[1], np.int32)
        hashing.tasks_of(flat[1].view(np.uint64), self.tasks, tasks)
        out: list[Any] = [pa.array(tasks), pa.array(flat[2])]
        for at, key in enumerate(self.layout.keys):
            valid = (flat[3] >> at) & 1 == 0
            if key.is_string:
                out.append(self._strings(flat[FIRST_KEY + at], valid, heap).cast(key.type))
            else:
                out.append(columns.column_of(flat[FIRST_KEY + at], key.type, valid))
        for at, cell in enumerate(self.layout.cells):
            valid = (flat[self.has] >> at) & 1 == 1 if cell.nullable else None
            out.append(columns.column_of(flat[self.has + 1 + at], cell.type, valid))
        return pa.RecordBatch.from_arrays(out, schema=self.layout.schema)

    def _strings(self, places: Words, valid: NDArray[np.bool_], heap: Words) -> pa.Array:
        offsets = np.zeros(len(places) + 1, np.int64)
        bytes_ = heap.view(np.uint8)
        machine.read_texts(places, valid, heap, bytes_, offsets, np.zeros(0, np.uint8))
        data = np.zeros(int(offsets[-1]), np.uint8)
        if len(data):
            machine.read_texts(places, valid, heap, bytes_, offsets, data)
        bits = pa.py_buffer(np.packbits(valid, bitorder="little"))
        buffers = [bits, pa.py_buffer(offsets), pa.py_buffer(data)]
        return pa.Array.from_buffers(pa.large_string(), len(places), buffers)
