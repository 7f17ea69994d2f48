"""Large aligned writes go around the page cache, and everything reads the same afterwards."""

from __future__ import annotations

import pathlib

import numpy as np

from kedge import host as hosts
from kedge.host.disk import DIRECT_BYTES, PAGE_BYTES


def aligned(size: int, seed: int) -> np.ndarray:
    room = np.random.default_rng(seed).integers(0, 256, size + PAGE_BYTES, dtype=np.uint8)
    skip = -room.ctypes.data % PAGE_BYTES
    return room[skip : skip + size]


def test_direct_and_other_writes_read_back(tmp_path: pathlib.Path) -> None:
    file = hosts.local().disk.open(str(tmp_path / "f"), "create")
    file.allocate(4 * DIRECT_BYTES)
    before = file.map()
    assert bytes(before[:8]) == bytes(8)
    pieces = [
        (0, aligned(PAGE_BYTES, 1)),
        (PAGE_BYTES, aligned(DIRECT_BYTES, 2)),  # direct, on a page that is mapped
        (PAGE_BYTES + DIRECT_BYTES, aligned(DIRECT_BYTES, 3)[1:]),  # memory that is not aligned
        (PAGE_BYTES + 2 * DIRECT_BYTES, aligned(DIRECT_BYTES + 7, 4)),  # not whole pages
    ]
    for offset, piece in pieces:
        file.write(piece, offset)
    file.sync()
    after = file.map()
    for offset, piece in pieces:
        assert file.read(piece.nbytes, offset) == piece.tobytes()
        assert bytes(before[offset : offset + piece.nbytes]) == bytes(after[offset : offset + piece.nbytes])
        assert bytes(after[offset : offset + piece.nbytes]) == piece.tobytes()
    file.close()
    file.close()
