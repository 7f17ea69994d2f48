"""What a sample says about a column: one fused pass, from which the sizes under most codecs follow.

A sample is four stretches of 1,024 neighbouring values, for widths and runs, and 4,096 single values from all over
the column, for the number of distinct ones (neighbours are too alike, or too different, to tell). Widths are taken
per stretch exactly as the block kernels take them, so that what is estimated is what will be written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kedge.codec.encoded import Values
from kedge.codec.items import widen
from kedge.jit import jit

STRETCH = 1024
STRETCHES = 4
_SLOTS = 16384  # a power of two above twice the sample
# Where single values are taken, as fractions of 2**32: even steps would fall into step with data that repeats.
_PLACES = np.sort(np.random.default_rng(0).integers(0, 1 << 32, STRETCH * STRETCHES))


@dataclass(frozen=True, slots=True)
class Stats:
    """Figures of a sample; bits are per value."""

    rows: int  # of the sample
    frame_bits: float
    delta_bits: float
    delta2_bits: float
    xor_bits: float
    run_bits: float  # to pack the value of one run
    length_bits: float  # to pack the length of one run
    runs: float  # per row
    distinct: int  # estimated for the column: Chao's estimator of what the sample did not see


@jit
def _bits(span: Any) -> int:
    width = 0
    while span != 0:
        span >>= np.uint64(1)
        width += 1
    return width


@jit
def _look(sample: Values, spread: Values, slots: Values, counts: Values, bits: Values) -> None:
    """`bits`: frame, delta, delta2, xor (sums over stretches), runs, distinct, seen once, seen twice, longest."""
    longest = 0
    for begin in range(0, sample.shape[0], 1024):
        stretch = sample[begin : begin + 1024]
        size = stretch.shape[0]
        last = stretch[0]
        step = stretch[min(1, size - 1)] - last
        low = last
        high = last
        low1 = step
        high1 = step
        low2 = np.int64(0)
        high2 = np.int64(0)
        seen = np.uint64(0)
        runs = 1
        begun = 0
        for i in range(size):
            value = stretch[i]
            if i > 0:
                change = value - last
                seen |= np.uint64(value ^ last)
                low1 = min(low1, change)
                high1 = max(high1, change)
                low2 = min(low2, change - step)
                high2 = max(high2, change - step)
                if change != 0:
                    runs += 1
                    longest = max(longest, i - begun)
                    begun = i
                low = min(low, value)
                high = max(high, value)
                step = change
                last = value
        longest = max(longest, size - begun)
        tail = 0
        while tail < 63 and (seen >> np.uint64(tail)) & np.uint64(1) == 0:
            tail += 1
        bits[0] += _bits(np.uint64(high - low)) * size
        bits[1] += _bits(np.uint64(high1 - low1)) * size
        bits[2] += _bits(np.uint64(high2 - low2)) * size
        bits[3] += _bits(seen >> np.uint64(tail)) * size
        bits[4] += runs
    bits[8] = longest
    for value in spread:
        slot = np.uint64(value) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(50)
        while counts[slot] > 0 and slots[slot] != value:
            slot = (slot + np.uint64(1)) & np.uint64(16383)
        if counts[slot] == 0:
            slots[slot] = value
            bits[5] += 1
            bits[6] += 1
        elif counts[slot] == 1:
            bits[6] -= 1
            bits[7] += 1
        elif counts[slot] == 2:
            bits[7] -= 1
        counts[slot] += np.uint16(1)


def take(values: Values) -> tuple[Values, Values]:
    """The sample of a column, stretches and single values: all of it, twice, when it is short."""
    rows = values.size
    if rows <= STRETCH * STRETCHES:
        return values, values
    starts = [(rows - STRETCH) * k // (STRETCHES - 1) for k in range(STRETCHES)]
    return np.concatenate([values[start : start + STRETCH] for start in starts]), values[_PLACES * rows >> 32]


def look(sample: tuple[Values, Values], column_rows: int) -> Stats:
    """The figures of a sample of a column that has so many rows; the sample is not empty."""
    sums: NDArray[np.float64] = np.zeros(9)
    stretches, spread = sample
    _look(widen(stretches), widen(spread), np.empty(_SLOTS, np.int64), np.zeros(_SLOTS, np.uint16), sums)
    rows = stretches.size
    frame, delta, delta2, xor, runs, known, once, twice, longest = sums.tolist()
    unseen = once * (once - 1) / (2 * (twice + 1)) if rows < column_rows else 0.0
    return Stats(
        rows=rows,
        frame_bits=frame / rows,
        delta_bits=delta / rows,
        delta2_bits=delta2 / rows,
        xor_bits=xor / rows,
        run_bits=min(frame, delta) / rows + (runs < rows / 2),  # a block of runs spans more than one of rows
        length_bits=float(int(longest - 1).bit_length()),
        runs=runs / rows,
        distinct=min(int(known + unseen), column_rows),
    )
