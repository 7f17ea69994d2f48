"""A slow reader of encoded columns in plain Python integers, written from the words of the codecs' files.

It shares nothing with the package: no kernel, no helper, no constant. A column is a list of integers: the bits of an
item as a signed number.
"""

from __future__ import annotations

import struct
from fractions import Fraction

MASK = (1 << 64) - 1
SELECTORS = [
    (240, 0), (0, 64), (60, 1), (30, 2), (20, 3), (15, 4), (12, 5), (10, 6),
    (8, 7), (7, 8), (6, 10), (5, 12), (4, 15), (3, 20), (2, 30), (1, 60),
]  # fmt: skip


def signed(number: int, bits: int = 64) -> int:
    """The signed number that has the low bits of `number`."""
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> (bits - 1) else number


def decode(code: int, params: tuple[int, int, int], body: bytes, rows: int, item: int) -> list[int]:
    """The items of a column as signed integers of `item` bytes."""
    read = {
        0: lambda: [int.from_bytes(body[i * item : (i + 1) * item], "little") for i in range(rows)],
        1: lambda: _blocks(body, rows),
        2: lambda: _sums(_blocks(body, rows), params[0], 0, False),
        3: lambda: _sums(_blocks(body, rows), params[0], params[1], True),
        4: lambda: _xors(_blocks(body, rows), params[0]),
        5: lambda: _fixed(body, rows, params[0], params[1]),
        6: lambda: _simple8b(body, rows, params[0]),
        7: lambda: _varbyte(body, rows, params[0]),
        8: lambda: _runs(body),
        9: lambda: _dictionary(body),
    }[code]
    values = [signed(value, 8 * item) for value in read()]
    assert len(values) == rows
    return values


def decode_decimal(params: tuple[int, int, int], body: bytes, rows: int, item: int) -> list[float | int]:
    """The floats of a decimal column; an exception is the int that has its bits."""
    (whole, _), (where, n), (kept, _) = _parts(body)
    values: list[float | int] = [_nearest(number, params[0], item) for number in decode(*whole, rows, item)]
    spots = decode(*where, n, 4)
    for spot, bits in zip(spots, decode(*kept, n, item), strict=True):
        values[spot] = bits
    return values


def _nearest(number: int, digits: int, item: int) -> float:
    """The double next to number / 10**digits; for items of 4 bytes, rounded again to single."""
    double = float(Fraction(number, 10**digits))
    return struct.unpack("<f", struct.pack("<f", double))[0] if item == 4 else double


def _blocks(body: bytes, rows: int) -> list[int]:
    blocks = (rows + 1023) // 1024
    at = blocks * 8 + (blocks * 2 + 7) // 8 * 8
    values: list[int] = []
    for block in range(blocks):
        base = struct.unpack_from("<q", body, block * 8)[0]
        width, shift = body[blocks * 8 + block * 2], body[blocks * 8 + block * 2 + 1]
        count = min(1024, rows - block * 1024)
        size = ((count + 15) // 16 * width + 63) // 64 * 128
        values += [base + (number << shift) for number in _lanes(body[at : at + size], count, width)]
        at += size
    assert at == len(body)
    return values


def _fixed(body: bytes, rows: int, base: int, width: int) -> list[int]:
    values: list[int] = []
    at = 0
    while len(values) < rows:
        count = min(1024, rows - len(values))
        size = ((count + 15) // 16 * width + 63) // 64 * 128
        values += [base + number for number in _lanes(body[at : at + size], count, width)]
        at += size
    return values


def _lanes(packed: bytes, count: int, width: int) -> list[int]:
    """Sixteen lanes, word by word in turn; each lane is one long number."""
    lanes = [0] * 16
    for word in range(len(packed) // 8):
        lanes[word % 16] |= struct.unpack_from("<Q", packed, word * 8)[0] << (64 * (word // 16))
    return [(lanes[i % 16] >> (i // 16 * width)) & ((1 << width) - 1) for i in range(count)]


def _sums(changes: list[int], last: int, step: int, second: bool) -> list[int]:
    values: list[int] = []
    for change in changes:
        step = step + change if second else change
        last += step
        values.append(last)
    return values


def _xors(changes: list[int], last: int) -> list[int]:
    values: list[int] = []
    for change in changes:
        last = (last ^ change) & MASK
        values.append(last)
    return values


def _simple8b(body: bytes, rows: int, base: int) -> list[int]:
    words = list(struct.unpack(f"<{len(body) // 8}Q", body))
    values: list[int] = []
    while len(values) < rows:
        word = words.pop(0)
        count, bits = SELECTORS[word & 15]
        if word & 15 == 1:
            values.append(base + words.pop(0))
        else:
            values += [base + ((word >> (4 + k * bits)) & ((1 << bits) - 1)) for k in range(count)][
                : rows - len(values)
            ]
    assert not words
    return values


def _varbyte(body: bytes, rows: int, base: int) -> list[int]:
    values: list[int] = []
    number = shift = 0
    for byte in body:
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            values.append(base + number)
            number = shift = 0
    assert len(values) == rows
    return values


def _runs(body: bytes) -> list[int]:
    (first, n), (second, _) = _parts(body)
    return [
        value
        for value, length in zip(decode(*first, n, 8), decode(*second, n, 8), strict=True)
        for _ in range(length)
    ]


def _dictionary(body: bytes) -> list[int]:
    (first, n), (second, rows) = _parts(body)
    entries = decode(*first, n, 8)
    return [entries[code] for code in decode(*second, rows, 4)]


def _parts(body: bytes) -> list[tuple[tuple[int, tuple[int, int, int], bytes], int]]:
    count = struct.unpack_from("<Q", body)[0]
    at = 8 + 48 * count
    parts: list[tuple[tuple[int, tuple[int, int, int], bytes], int]] = []
    for k in range(count):
        code, rows, size, *params = struct.unpack_from("<QQQqqq", body, 8 + 48 * k)
        parts.append(((code, (params[0], params[1], params[2]), body[at : at + size]), rows))
        at += (size + 7) // 8 * 8
    assert at == len(body)
    return parts
