"""Durable appends, ours and others', and what the disk itself can take, on the same rows in the same place.

Throughput is that of whole units: everybody gets the same batches of 1,048,576 rows, one after the other, and makes
each durable with one sync; what is counted is raw row bytes per second until the last of them is durable. A gigabyte
of distinct batches is given several times, since the first tenth of a second goes into fresh memory; nobody compresses
one batch by another. Ours may have several appends under way, as its users have; the others are synchronous by nature
(Arrow compresses the columns of a batch on all cores). LMDB and RocksDB, which take rows one by one, get fewer and
smaller batches. Every store starts empty. Latency is that of small appends, one at a time.

What could limit ours is measured on the same rows: the codecs on as many threads as we have workers, with nothing
written; and the disk, by direct writes of as many bytes as ours come to, at the best of a few request sizes.
"""

from __future__ import annotations

import mmap
import os
import shutil
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kedge import codec
from kedge.bench import _samples
from kedge.streams import columns, stream
from kedge.streams.layout import ROWS_MAX
from kedge.streams.ticket import Ticket

Write = Callable[[Path, Sequence[pa.RecordBatch]], float]  # seconds from the first row to the last one durable

BATCH_ROWS = 1 << 16  # where an append is small
UNIT_ROWS = ROWS_MAX
UNDER_WAY = 64
CHUNKS = (1 << 20, 4 << 20)
DEPTH = 8


def batches(name: str, count: int, rows: int = BATCH_ROWS) -> list[pa.RecordBatch]:
    """Distinct batches of a stream."""
    return _samples.table(name, count * rows, seed=1).combine_chunks().to_batches(max_chunksize=rows)


def encoding(data: Sequence[pa.RecordBatch], threads: int, bandwidth: float, repeats: int) -> tuple[float, float]:
    """GB of raw rows per second of the codecs alone on so many threads, the best of a few runs; and the ratio."""
    choosers = codec.Choosers(bandwidth)

    def encode(batch: pa.RecordBatch) -> int:
        return sum(
            choosers.encode(index, columns.fixed_values(column)).body.size
            for index, column in enumerate(batch.columns)
        )

    raw = sum(batch.nbytes for batch in data)
    size, best = 0, 0.0
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(encode, data[: 2 * threads]))
        for _ in range(repeats):
            begun = time.perf_counter()
            size = sum(pool.map(encode, data))
            best = max(best, raw / (time.perf_counter() - begun) / 1e9)
    return best, raw / size


@contextmanager
def _fresh(folder: Path) -> Generator[Path]:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def rate(write: Write, folder: Path, data: Sequence[pa.RecordBatch],
         row_bytes: int, repeats: int) -> float:  # fmt: skip
    """GB of raw rows per second, the best of a few runs."""
    raw = sum(batch.num_rows for batch in data) * row_bytes
    rates: list[float] = []
    for _ in range(repeats):
        with _fresh(folder / "store") as place:
            rates.append(raw / write(place, data) / 1e9)
    return max(rates)


def kedge(threads: int) -> Write:
    """Our stream with so many workers, one partition, up to 64 appends under way."""

    def write(folder: Path, data: Sequence[pa.RecordBatch]) -> float:
        with stream(folder / "s", data[0].schema, event_time="ts", threads=threads) as out:
            out.recover()  # become the writer before the clock starts
            begun = time.perf_counter()
            tickets: list[Ticket] = []
            for k, batch in enumerate(data):
                tickets.append(out.append(batch))
                if k >= UNDER_WAY:
                    tickets[k - UNDER_WAY].wait()
            for ticket in tickets[-UNDER_WAY:]:
                ticket.wait()
            return time.perf_counter() - begun

    return write


def latencies_ms(folder: Path, data: Sequence[pa.RecordBatch], threads: int) -> list[float]:
    """From the call of `append` to the return of `wait`, one append at a time."""
    times: list[float] = []
    with _fresh(folder / "store") as place, stream(place / "s", data[0].schema, threads=threads) as out:
        out.append(data[0]).wait()
        for batch in data[1:]:
            begun = time.perf_counter()
            out.append(batch).wait()
            times.append((time.perf_counter() - begun) * 1000)
    return times


def arrow_lz4(folder: Path, data: Sequence[pa.RecordBatch]) -> float:
    """An Arrow IPC stream with LZ4, synced after each batch."""
    begun = time.perf_counter()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with (folder / "rows.arrow").open("wb", buffering=0) as file:
        with pa.ipc.new_stream(file, data[0].schema, options=options) as writer:
            for batch in data:
                writer.write_batch(batch)
                os.fdatasync(file.fileno())
        os.fdatasync(file.fileno())
    return time.perf_counter() - begun


def parquet(folder: Path, data: Sequence[pa.RecordBatch]) -> float:
    """A Parquet file for each batch, synced, and its name too."""
    begun = time.perf_counter()
    directory = os.open(folder, os.O_RDONLY)
    for k, batch in enumerate(data):
        with (folder / f"{k}.parquet").open("wb") as file:
            pq.write_table(pa.Table.from_batches([batch]), file)
            file.flush()
            os.fdatasync(file.fileno())
        os.fsync(directory)
    os.close(directory)
    return time.perf_counter() - begun


def _records(batch: pa.RecordBatch) -> list[bytes]:
    """The rows of a batch as fixed-size records."""
    columns = [column.to_numpy(zero_copy_only=False) for column in batch.columns]
    packed = np.concatenate(
        [np.ascontiguousarray(column).view(np.uint8).reshape(batch.num_rows, -1) for column in columns], axis=1
    )
    raw, row_bytes = packed.tobytes(), packed.shape[1]
    return [raw[at : at + row_bytes] for at in range(0, len(raw), row_bytes)]


def lmdb(folder: Path, data: Sequence[pa.RecordBatch]) -> float:
    """LMDB: a key and a record for each row, in key order, a synced transaction for each batch."""
    import lmdb as store

    environment = store.open(str(folder / "lmdb"), map_size=1 << 34)
    begun = time.perf_counter()
    at = 0
    for batch in data:
        rows = _records(batch)
        keys = np.arange(at, at + len(rows), dtype=">u8").tobytes()
        with environment.begin(write=True) as transaction:
            pairs = ((keys[8 * k : 8 * k + 8], row) for k, row in enumerate(rows))
            transaction.cursor().putmulti(pairs, append=True)
        at += len(rows)
    seconds = time.perf_counter() - begun
    environment.close()
    return seconds


def rocks(folder: Path, data: Sequence[pa.RecordBatch]) -> float:
    """RocksDB: a key and a record for each row, a synced write batch for each batch."""
    import rocksdict

    database = rocksdict.Rdict(str(folder / "rocks"), rocksdict.Options(raw_mode=True))
    begun = time.perf_counter()
    synced = rocksdict.WriteOptions()
    synced.sync = True
    at = 0
    for batch in data:
        write = rocksdict.WriteBatch(raw_mode=True)
        for row in _records(batch):
            write.put(at.to_bytes(8, "big"), row)
            at += 1
        database.write(write, synced)
    seconds = time.perf_counter() - begun
    database.close()
    return seconds


def raw_disk_gb_s(folder: Path, size: int, repeats: int) -> float:
    """Direct writes, eight under way, into a preallocated file, and a sync; without direct I/O, buffered."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "raw"
    best = 0.0
    for chunk in CHUNKS * repeats:
        buffer = mmap.mmap(-1, chunk)  # aligned to a page
        buffer[:] = np.random.default_rng(0).integers(0, 256, chunk, dtype=np.uint8).tobytes()
        path.unlink(missing_ok=True)
        file = _open_direct(path)
        os.posix_fallocate(file, 0, size)
        os.fsync(file)
        with ThreadPoolExecutor(DEPTH) as pool:
            begun = time.perf_counter()
            list(pool.map(partial(os.pwrite, file, buffer), range(0, size, chunk)))
            os.fdatasync(file)
            best = max(best, size / (time.perf_counter() - begun) / 1e9)
        os.close(file)
    path.unlink()
    return best


def _open_direct(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT
    try:
        return os.open(path, flags | os.O_DIRECT, 0o600)
    except OSError:
        return os.open(path, flags, 0o600)
