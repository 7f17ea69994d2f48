"""Columns inside a body: how a codec that makes smaller columns of a column stores them.

Body: a count (8 bytes); per part its codec, rows, bytes and parameters (48 bytes); then the parts' bodies, each
padded to 8 bytes. So nesting is described where it happens, and a part is an `Encoded` like any other.

Invariants:
- A part's codec number is smaller than its parent's: nesting ends, whatever a hostile body says.
- A part has at most as many rows as its parent: no body can ask for more memory than the column it stands for.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import numpy as np

from kedge.codec import scratch
from kedge.codec.encoded import Bytes, Codec, Encoded, Values, corrupt, readable

_COUNT = struct.Struct("<Q")
_PART = struct.Struct("<QQQqqq")  # codec, rows, bytes, params

by_code: dict[int, Codec] = {}  # filled by the registry, which knows all codecs
by_name: dict[str, Codec] = {}


def encode(values: Values, inner: str) -> Encoded:
    """A part by the codec named `inner` ("a" or "a>b"), or as it is where that is smaller."""
    name, _, rest = inner.partition(">")
    encoded = by_name[name].encode(values, rest)
    if scratch.lent():  # the next part is packed in the same place
        encoded = replace(encoded, body=encoded.body.copy())
    return encoded if encoded.body.size < values.nbytes else by_name["plain"].encode(values)


def join(*parts: tuple[Encoded, int]) -> Bytes:
    """One body of parts and their numbers of rows."""
    head = [_COUNT.pack(len(parts))]
    head += [_PART.pack(part.codec, rows, part.body.size, *part.params) for part, rows in parts]
    at = _COUNT.size + _PART.size * len(parts)
    body = np.zeros(at + sum(-(-part.body.size // 8) * 8 for part, _ in parts), np.uint8)
    body[:at] = np.frombuffer(b"".join(head), np.uint8)
    for part, _ in parts:
        body[at : at + part.body.size] = part.body
        at += -(-part.body.size // 8) * 8
    return body


def split(parent: Encoded, name: str, count: int, rows_max: int) -> list[tuple[Encoded, int]]:
    """The `count` parts of a body, each with its rows."""
    body = readable(parent.body)
    at = _COUNT.size + _PART.size * count
    table = body[:at].tobytes()
    if body.size < at or _COUNT.unpack_from(table)[0] != count:
        raise corrupt(name, f"{body.size} bytes do not begin with a table of {count} parts")
    parts: list[tuple[Encoded, int]] = []
    for index in range(count):
        code, rows, size, *params = _PART.unpack_from(table, _COUNT.size + _PART.size * index)
        if code >= parent.codec or code not in by_code or rows > rows_max or size > body.size - at:
            raise corrupt(name, f"part {index} is said to be {rows} rows in {size} bytes of codec {code}")
        parts.append((Encoded(code, (params[0], params[1], params[2]), body[at : at + size]), rows))
        at += -(-size // 8) * 8
    return parts


def decode(part: tuple[Encoded, int], dtype: Any, out: Values | None = None) -> Values:
    """The values of a part."""
    encoded, rows = part
    return by_code[encoded.codec].decode(encoded, np.dtype(dtype), rows, out)
