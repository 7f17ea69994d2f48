"""Columns that codecs find hard, by dtype and pattern, from a seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

DTYPES = ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8")
ROWS = (0, 1, 2, 15, 16, 17, 1023, 1024, 1025, 2100)

Column = NDArray[Any]
Make = Callable[[np.random.Generator, int, np.dtype[Any]], Column]


def _bits(rng: np.random.Generator, rows: int, dtype: np.dtype[Any]) -> Column:
    """Any bit pattern: extremes, NaN payloads, denormals."""
    if dtype.kind == "b":
        return rng.integers(0, 2, rows).astype(bool)
    return rng.integers(0, 256, rows * dtype.itemsize, dtype=np.uint8).view(dtype)


def _edges(rng: np.random.Generator, rows: int, dtype: np.dtype[Any]) -> Column:
    """Smallest, largest, zero and their neighbours; for floats also what is no number."""
    if dtype.kind == "b":
        edges = np.array([False, True])
    elif dtype.kind == "f":
        size = dtype.itemsize
        odd = np.array([-1, -2, 1, 1 << (8 * size - 2)], f"i{size}").view(dtype)  # NaN payloads, a denormal, 2.0
        info = np.finfo(dtype)
        plain = [0.0, -0.0, np.nan, np.inf, -np.inf, info.max, info.min, info.tiny, info.smallest_subnormal, 1 / 3]
        edges = np.concatenate([np.array(plain, dtype), odd])
    else:
        info = np.iinfo(dtype)
        edges = np.array([info.min, info.max, 0, 1, info.max - 1, info.min + 1, info.max // 2], dtype)
    return edges[rng.integers(0, edges.size, rows)]


def _steps(rng: np.random.Generator, rows: int, dtype: np.dtype[Any]) -> Column:
    return np.cumsum(rng.integers(0, 5, rows)).astype(dtype)


def _outliers(rng: np.random.Generator, rows: int, dtype: np.dtype[Any]) -> Column:
    """Zeros, and now and then a value of any size: stretches of 60 to 240 zeros are simple-8b's corner."""
    return np.where(rng.random(rows) < 0.01, _bits(rng, rows, dtype), np.zeros(rows, dtype))


PATTERNS: dict[str, Make] = {
    "bits": _bits,
    "edges": _edges,
    "steps": _steps,
    "outliers": _outliers,
    "equal": lambda rng, rows, dtype: np.repeat(_bits(rng, 1, dtype), rows),
    "ramp": lambda rng, rows, dtype: np.arange(rows).astype(dtype),
    "small": lambda rng, rows, dtype: rng.integers(0, 100, rows).astype(dtype),
    "signs": lambda rng, rows, dtype: rng.integers(-50, 50, rows).astype(dtype),
    "runs": lambda rng, rows, dtype: np.repeat(_bits(rng, rows, dtype), rng.integers(1, 40, rows))[:rows],
    "few": lambda rng, rows, dtype: _bits(rng, 7, dtype)[rng.integers(0, 7, rows)],
    "cents": lambda rng, rows, dtype: (rng.integers(-9999, 9999, rows) / 100).astype(dtype),
}


def column(seed: int, pattern: str, dtype: str, rows: int) -> Column:
    """One column."""
    return PATTERNS[pattern](np.random.default_rng(seed), rows, np.dtype(dtype))
