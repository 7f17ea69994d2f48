"""No bytes make a decoder crash, read outside its arrays or ask for more memory than the column it stands for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fuzz import fuzz

from kedge import codec
from kedge.errors import CorruptError


def test_damaged_columns(lane: Any) -> None:
    refused = [fuzz(seed) for seed in lane.seeds(1500, 10_000, 300_000)]
    assert 0.2 < sum(refused) / len(refused) < 1.0


@pytest.mark.slow
def test_kernels_stay_inside_their_arrays(tmp_path: Path, lane: Any) -> None:
    """The same with Numba's own bounds checks compiled in, in a process of its own."""
    script = Path(__file__).with_name("fuzz.py")
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    count = len(lane.seeds(500, 3000, 60_000))
    done = subprocess.run(
        [sys.executable, str(script), "100000", str(count)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("name", [name for name in codec.BY_NAME if name not in ("lz4", "zstd", "snappy")])
def test_every_cut_is_found(name: str) -> None:
    values = np.repeat(np.arange(300), 7)[:2000] * (0.5 if name == "decimal" else 1)
    encoded = codec.encode(values, name)
    for size in range(0, encoded.body.size, 1 + encoded.body.size // 200):
        with pytest.raises(CorruptError, match=r"does not decode.*kedge stream verify"):
            codec.decode(codec.Encoded(encoded.codec, encoded.params, encoded.body[:size]), values.dtype, 2000)


def test_a_short_result_of_a_compressor_is_found() -> None:
    for name in ("lz4", "zstd", "snappy"):
        encoded = codec.encode(np.arange(1000), name)
        for rows in (0, 999, 1001, 100_000):
            if rows:
                with pytest.raises(CorruptError):
                    codec.decode(encoded, np.dtype(np.int64), rows)


def test_nesting_ends() -> None:
    inside = codec.encode(np.repeat(np.arange(50), 40), "runs")
    for code in (8, 9, 10, 11, 13, 14, 1 << 62):  # runs itself, what may hold runs, what is no part, unknown
        body = inside.body.copy()
        body[8:16].view(np.uint64)[0] = code
        with pytest.raises(CorruptError, match="part 0"):
            codec.decode(codec.Encoded(inside.codec, inside.params, body), np.dtype(np.int64), 2000)


def test_a_part_can_not_ask_for_memory() -> None:
    inside = codec.encode(np.zeros(2000, np.int64), "runs")
    for k in (0, 1):
        body = inside.body.copy()
        body[8 + 48 * k + 8 :][:8].view(np.uint64)[0] = 1 << 50  # rows of a part
        with pytest.raises(CorruptError, match=f"part {k}"):
            codec.decode(codec.Encoded(inside.codec, inside.params, body), np.dtype(np.int64), 2000)


def test_unknown_codec() -> None:
    with pytest.raises(CorruptError, match="number 99"):
        codec.decode(codec.Encoded(99, (0, 0, 0), np.zeros(8, np.uint8)), np.dtype(np.int64), 1)
