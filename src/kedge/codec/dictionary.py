"""Dictionary: the distinct values in the order in which they first came, and a packed code per row.

`inner` names the codec of the codes (frame without it); the distinct values are framed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kedge.codec import kernels, parts, scratch
from kedge.codec.encoded import Bytes, Codec, Encoded, Values, corrupt
from kedge.codec.items import decode_items, items

_FIRST_TRY = (
    1 << 14
)  # entries: a table for as many as there are rows costs more to clear than most columns to encode


def _encode(values: Values, inner: str = "", /) -> Encoded:
    encoded = encode_upto(values, min(_FIRST_TRY, values.size), inner) or encode_upto(values, values.size, inner)
    assert encoded is not None
    return encoded


def encode_upto(values: Values, entries_max: int, inner: str = "") -> Encoded | None:
    """Encode unless there are more than `entries_max` distinct values; the search ends as soon as that shows."""
    entries = scratch.array("dictionary.entries", np.int64, entries_max)
    keys = scratch.array("dictionary.keys", np.int64, 1 << (2 * entries_max).bit_length())
    slots = scratch.array("dictionary.slots", np.uint32, keys.size)
    slots[:] = 0
    codes = scratch.array("dictionary.codes", np.uint32, values.size)
    data, item = items(values)
    known = kernels.find_codes(data, item, values.size, keys, slots, entries, codes)
    if known < 0:
        return None
    packed = parts.encode(entries[:known], "frame"), known
    body = parts.join(packed, (parts.encode(codes, inner or "frame"), values.size))
    return Encoded(CODEC.code, (0, 0, 0), body, packed[0].bounds)


def _decode(encoded: Encoded, dtype: np.dtype[Any], rows: int, out: Values | None, /) -> Values:
    first, second = parts.split(encoded, CODEC.name, 2, rows)
    if second[1] != rows:
        raise corrupt(CODEC.name, f"there are {second[1]} codes for {rows} rows")
    entries = parts.decode(first, np.int64, scratch.array("dictionary.entries", np.int64, first[1]))
    codes = parts.decode(second, np.uint32, scratch.array("dictionary.codes", np.uint32, rows))

    def fill(data: Bytes, item: int) -> None:
        if kernels.take_entries(data, item, rows, entries, codes):
            raise corrupt(CODEC.name, f"a code is not below {first[1]}, the number of entries")

    return decode_items(dtype, rows, out, fill)


CODEC = Codec(9, "dictionary", _encode, _decode)
