"""Run length: the value and the length of each run, both packed.

`inner` names the codec of the values; without it they are packed by frame or by delta, whichever is smaller.
Lengths are framed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kedge.codec import kernels, parts, scratch
from kedge.codec.encoded import Bytes, Codec, Encoded, Values, corrupt
from kedge.codec.items import decode_items, items


def _encode(values: Values, inner: str = "", /) -> Encoded:
    found = scratch.array("runs.values", np.int64, values.size + 1)
    lengths = scratch.array("runs.lengths", np.int64, values.size + 1)
    data, item = items(values)
    count = kernels.find_runs(data, item, values.size, found, lengths)
    found, lengths = found[:count], lengths[:count]
    tried = [parts.encode(found, name) for name in ((inner,) if inner else ("frame", "delta"))]
    smallest = min(tried, key=lambda part: part.body.size)
    body = parts.join((smallest, count), (parts.encode(lengths, "frame"), count))
    return Encoded(CODEC.code, (0, 0, 0), body, smallest.bounds)


def _decode(encoded: Encoded, dtype: np.dtype[Any], rows: int, out: Values | None, /) -> Values:
    first, second = parts.split(encoded, CODEC.name, 2, rows)
    if first[1] != second[1]:
        raise corrupt(CODEC.name, f"there are {first[1]} values and {second[1]} lengths")
    values = parts.decode(first, np.int64, scratch.array("runs.values", np.int64, first[1]))
    lengths = parts.decode(second, np.int64, scratch.array("runs.lengths", np.int64, second[1]))

    def fill(data: Bytes, item: int) -> None:
        if kernels.fill_runs(data, item, rows, values, lengths) != rows:
            raise corrupt(CODEC.name, f"the lengths of the runs do not add up to {rows}")

    return decode_items(dtype, rows, out, fill)


CODEC = Codec(8, "runs", _encode, _decode)
