"""Decimal-scaled floats: 68.451 as the integer 68451 and the scale 1000, packed by an integer codec.

Lossless: a value whose integer does not give back the same bits (NaN, -0.0, infinities, values with more digits) is
kept as it is in a list of exceptions. With an error bound, on request only: a value is an exception if it would
come back further away than that. Integers are 64 bits for float64 and 32 for float32.

`params` are the number of digits, and 0. `inner` names the codec of the integers (frame without it).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kedge.codec import parts, scratch
from kedge.codec.encoded import Bytes, Codec, Encoded, Values, corrupt, raw, target
from kedge.errors import UsageError
from kedge.jit import jit

DIGITS_MAX = 15


@jit
def _scale(data: Bytes, item: int, rows: int, scale: float, error: float, numbers: Bytes, spots: Values) -> int:
    """Write the integers to `numbers` and the places of exceptions to `spots`; -1 when there are too many for it.

    Adding 1.5 * 2**52 rounds to an integer that stands in the low bits: one addition, and it is vectorised.
    """
    doubles = data[: rows * 8 if item == 8 else 0].view(np.float64)
    singles = data[: rows * 4 if item == 4 else 0].view(np.float32)
    longs = numbers[: rows * 8 if item == 8 else 0].view(np.int64)
    shorts = numbers[: rows * 4 if item == 4 else 0].view(np.int32)
    magic = 6755399441055744.0
    top = 2147483647.0 if item == 4 else 1125899906842624.0
    given = np.empty(1024, np.float64)
    whole = np.empty(1024, np.float64)
    back = np.empty(1024, np.float64)
    given_bits = given.view(np.int64)
    back_bits = back.view(np.int64)
    found = 0
    last = 0.0
    for begin in range(0, rows, 1024):
        count = min(1024, rows - begin)
        if item == 8:
            block8 = doubles[begin : begin + count]
            for i in range(count):
                given[i] = block8[i]
        else:
            block4 = singles[begin : begin + count]
            for i in range(count):
                given[i] = block4[i]
        for i in range(count):
            scaled = given[i] * scale
            scaled = scaled if abs(scaled) < top else 0.0
            whole[i] = (scaled + magic) - magic
        if item == 8:
            for i in range(count):
                back[i] = whole[i] / scale
        else:
            for i in range(count):
                back[i] = np.float32(whole[i] / scale)
        bad = 0
        for i in range(count):
            bad += given_bits[i] != back_bits[i] and not abs(back[i] - given[i]) <= error
        if bad > 0:
            if found + bad > spots.shape[0]:
                return -1
            for i in range(count):
                if given_bits[i] != back_bits[i] and not abs(back[i] - given[i]) <= error:
                    spots[found] = begin + i
                    found += 1
                    whole[i] = last  # widens nothing
                last = whole[i]
        if item == 8:
            out8 = longs[begin : begin + count]
            for i in range(count):
                out8[i] = np.int64(whole[i])
        else:
            out4 = shorts[begin : begin + count]
            for i in range(count):
                out4[i] = np.int32(whole[i])
        last = whole[count - 1]
    return found


@jit
def _unscale(numbers: Bytes, item: int, rows: int, scale: float, data: Bytes) -> None:
    if item == 8:
        longs = numbers.view(np.int64)[:rows]
        doubles = data.view(np.float64)[:rows]
        for i in range(rows):
            doubles[i] = np.float64(longs[i]) / scale
    else:
        shorts = numbers.view(np.int32)[:rows]
        singles = data.view(np.float32)[:rows]
        for i in range(rows):
            singles[i] = np.float32(np.float64(shorts[i]) / scale)


def _encode(values: Values, inner: str = "", /) -> Encoded:
    encoded = encode_upto(values, best_digits(values), values.size, inner=inner)
    assert encoded is not None
    return encoded


def encode_upto(
    values: Values, digits: int, exceptions_max: int, *, error: float = -1.0, inner: str = ""
) -> Encoded | None:
    """Encode with so many digits, unless there are more than `exceptions_max` exceptions."""
    rows = values.size
    spots = scratch.array("decimal.spots", np.uint32, exceptions_max)
    numbers, found = scale(values, digits, spots, error)
    if found < 0:
        return None
    spots = spots[:found]
    packed = parts.encode(numbers, inner or "frame")
    kept = np.ascontiguousarray(values).view(f"i{values.itemsize}")[spots]
    body = parts.join((packed, rows), (parts.encode(spots, "delta"), found), (parts.encode(kept, "frame"), found))
    return Encoded(CODEC.code, (digits, 0, 0), body, None if found else _bounds(packed, digits, values))


def _bounds(numbers: Encoded, digits: int, values: Values) -> tuple[int, int] | None:
    """The bounds of the integers as those of the floats."""
    if numbers.bounds is None:
        return None
    scaled = np.array(numbers.bounds, np.float64) / 10.0**digits
    low, high = scaled.astype(values.dtype).view(f"i{values.itemsize}").tolist()
    return low, high


def scale(values: Values, digits: int, spots: Values | None = None, error: float = -1.0) -> tuple[Values, int]:
    """The integers (in scratch memory) and the number of exceptions; -1 when `spots` can't hold them."""
    if spots is None:
        spots = scratch.array("decimal.spots", np.uint32, values.size)
    integers = scratch.array("decimal.numbers", f"i{values.itemsize}", values.size)
    data = raw(values)
    found = _scale(data, values.itemsize, values.size, 10.0**digits, error, integers.view(np.uint8), spots)
    return integers, found


def encode_within(values: Values, error: float) -> Encoded:
    """Lossy, on request: every value comes back within `error`, exceptions exactly.

    >>> encoded = encode_within(np.array([0.1234, np.nan, 7.5]), 0.005)
    >>> _decode(encoded, np.dtype(float), 3, None).tolist()
    [0.12, nan, 7.5]
    """
    if values.dtype.kind != "f" or values.itemsize < 4:
        raise UsageError(f"An error bound is for float32 and float64, not for {values.dtype}.")
    if not error > 0 or math.isinf(error):
        raise UsageError(f"The error bound must be positive and finite, not {error}.")
    digits = min(max(0, math.ceil(-math.log10(2 * error))), DIGITS_MAX)
    encoded = encode_upto(values, digits, values.size, error=error)
    assert encoded is not None
    return encoded


def best_digits(values: Values) -> int:
    """The fewest digits with which the fewest values of a sample are exceptions."""
    sample = values if values.size <= 1024 else values[:: values.size // 1024]
    top = 2.0**31 - 1 if values.itemsize == 4 else 2.0**50
    best, fewest = 0, sample.size + 1
    with np.errstate(all="ignore"):
        wide = sample.astype(np.float64)
        for digits in range(DIGITS_MAX + 1):
            whole = np.rint(wide * 10.0**digits)
            back = (whole / 10.0**digits).astype(values.dtype)
            wrong = int(np.count_nonzero((back != sample) | ~(np.abs(whole) < top)))
            if wrong < fewest:
                best, fewest = digits, wrong
            if fewest == 0:
                break
    return best


def _decode(encoded: Encoded, dtype: np.dtype[Any], rows: int, out: Values | None, /) -> Values:
    if dtype.kind != "f" or dtype.itemsize < 4 or not 0 <= encoded.params[0] <= DIGITS_MAX:
        raise corrupt(CODEC.name, f"{encoded.params[0]} digits of {dtype}")
    whole, where, kept = parts.split(encoded, CODEC.name, 3, rows)
    if whole[1] != rows or where[1] != kept[1]:
        raise corrupt(
            CODEC.name, f"there are {whole[1]} integers for {rows} rows, {where[1]} and {kept[1]} exceptions"
        )
    integers = np.dtype(f"i{dtype.itemsize}")
    numbers = parts.decode(whole, integers, scratch.array("decimal.numbers", integers, rows))
    out = target(dtype, rows, out)
    _unscale(numbers.view(np.uint8), dtype.itemsize, rows, 10.0 ** encoded.params[0], out.view(np.uint8))
    if where[1]:
        spots = parts.decode(where, np.uint32)
        if int(spots.max()) >= rows:
            raise corrupt(CODEC.name, f"an exception is at row {spots.max()} of {rows}")
        out.view(integers)[spots] = parts.decode(kept, integers)
    return out


CODEC = Codec(10, "decimal", _encode, _decode, kinds="f")
