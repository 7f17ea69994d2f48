"""A fuzz target: any bytes as a unit, with checksums made to match, are rows or CorruptError.

For a coverage-guided fuzzer (atheris, libFuzzer's interface) import `TestOneInput`; alone, it mutates a real unit:
    python tests/streams/fuzz_unit.py [ROUNDS] [SEED]
"""

from __future__ import annotations

import random
import struct
import sys

import numpy as np
import pyarrow as pa
import xxhash

from kedge.errors import CorruptError
from kedge.streams import unit

NAMES = ("i", "f", "b", "s", "k", "d", "n")
TYPES = (pa.int32(), pa.float64(), pa.bool_(), pa.string(), pa.string(), pa.decimal128(20, 3), pa.int8())
SCHEMA = pa.schema(list(zip(NAMES, TYPES, strict=True)))
SEED = unit.seed("5a" * 16, 0, 1, 1, 0)


def sample() -> bytes:
    """A unit with every layout."""
    rows = 40
    columns = [
        [v if v % 5 else None for v in range(rows)],
        [v / 3 for v in range(rows)],
        [v % 2 == 0 if v % 3 else None for v in range(rows)],
        [f"{v}é" for v in range(rows)],
        [f"key{v % 3}" for v in range(rows)],
        [None] * rows,
        [None] * rows,
    ]
    batch = pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)
    return unit.encode(batch, first_offset=0, seed=SEED).tobytes()


def stamped(data: bytes) -> np.ndarray:
    """The bytes with every checksum that is in reach made to match."""
    raw = np.frombuffer(data, np.uint8).copy()
    if raw.nbytes < 192:
        return raw
    header_bytes, columns, buffers = struct.unpack_from("<III", raw, 48)
    for index in range(min(buffers, 64)):
        at = 128 + 64 * (columns + index)
        if at + 64 > raw.nbytes:
            break
        start, size = struct.unpack_from("<QQ", raw, at + 40)
        if start + size <= raw.nbytes:
            stamp = xxhash.xxh3_64_intdigest(raw[start : start + size])
            raw[at + 56 : at + 64] = np.frombuffer(struct.pack("<Q", stamp), np.uint8)
    if 8 <= header_bytes <= raw.nbytes:
        stamp = xxhash.xxh3_64_intdigest(raw[: header_bytes - 8], SEED)
        raw[header_bytes - 8 : header_bytes] = np.frombuffer(struct.pack("<Q", stamp), np.uint8)
    return raw


def TestOneInput(data: bytes) -> None:
    """Rows or CorruptError; whatever else comes is a bug."""
    raw = stamped(data)
    try:
        header = unit.header(raw, seed=SEED)
        unit.decode(raw, header, SCHEMA)
    except CorruptError:
        return


def main(rounds: int, seed: int) -> None:
    """Mutate a real unit at random."""
    rng, whole = random.Random(seed), sample()
    for _ in range(rounds):
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 5)):
            at, size = rng.randrange(len(data)), rng.choice((1, 2, 4, 8))
            value = rng.choice((0, 1, 63, 255, 2**16 - 1, 2**31 - 1, 2**32 - 1, 2**63, rng.getrandbits(64)))
            piece = (value & (256**size - 1)).to_bytes(size, "little")
            data[at : at + size] = piece[: len(data) - at]
        TestOneInput(bytes(data))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000, int(sys.argv[2]) if len(sys.argv) > 2 else 0)
