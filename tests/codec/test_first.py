"""Every codec gives back every bit of every dtype."""

from __future__ import annotations

import numpy as np
import pytest

from kedge import codec
from kedge.errors import CorruptError

DTYPES = ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8")


@pytest.mark.parametrize("name", [*codec.BY_NAME, None])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [0, 1, 15, 16, 17, 1023, 1024, 1025, 3000])
def test_round_trip(name: str | None, dtype: str, rows: int) -> None:
    rng = np.random.default_rng(rows)
    small = rng.integers(0, 2 if dtype == "?" else 100, rows).astype(dtype)
    bits = rng.integers(0, 2 if dtype == "?" else 256, rows * np.dtype(dtype).itemsize, dtype=np.uint8).view(dtype)
    for values in (small, bits, small[::2]):
        encoded = codec.encode(values, name)
        assert codec.decode(encoded, values.dtype, values.size).tobytes() == values.tobytes()


def test_cut_body() -> None:
    encoded = codec.encode(np.arange(5000), "frame")
    for size in range(0, encoded.body.size, 7):
        with pytest.raises(CorruptError):
            codec.decode(codec.Encoded(encoded.codec, encoded.params, encoded.body[:size]), np.dtype("i8"), 5000)
