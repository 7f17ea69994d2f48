"""Values as bytes: what a user passes in, what the log and Redis hold, and back.

Invariants:
- `encode` is injective within one type, and `decode` is its inverse: the same value and Python type come back.
- Type `any` is readable: integers, floats and strings are their plain text. Only what would read back as something
  else (the string "5", raw bytes) carries an escape: a zero byte and a letter.
- The other types (`str`, `bytes`, `int`, `float`) never escape: other clients see exactly the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kedge.errors import CorruptError, UsageError

Value = str | bytes | int | float
TYPES: Final = ("any", "str", "bytes", "int", "float")

_INT = re.compile(rb"-?[1-9][0-9]*|0")
_FLOAT_START = frozenset(b"-0123456789in")
_UNSURE = frozenset([b"\0", *[bytes([byte]) for byte in _FLOAT_START]])  # text that may need an escape starts so


def encode(value: Any, type_: str = "any") -> bytes:
    """The bytes of `value` in a structure of this type."""
    value = _plain(value)
    if type_ == "any":
        return _encode_any(value)
    if type_ == "str" and isinstance(value, str):
        return _utf8(value)
    if type_ == "bytes" and isinstance(value, bytes):
        return value
    if type_ == "int" and isinstance(value, int):
        return b"%d" % value
    if type_ == "float" and isinstance(value, int | float):
        return repr(float(value)).encode()
    raise UsageError(f"{value!r} is not of type {type_!r}, which this structure was created with.")


def encode_all(values: list[Any], type_: str = "any") -> list[bytes]:
    """`encode` for each of many; columns of one plain type go the short way."""
    kinds = set(map(type, values))
    if kinds == {str} and type_ in ("any", "str"):
        try:
            texts = [value.encode() for value in values]
        except UnicodeEncodeError:
            texts = [_utf8(value) for value in values]  # says which
        if type_ == "str":
            return texts
        return [text if text[:1] not in _UNSURE else _encode_any(text.decode()) for text in texts]
    if kinds == {int} and type_ in ("any", "int"):
        return [b"%d" % value for value in values]
    if kinds == {float} and type_ in ("any", "float"):
        return [repr(value).encode() for value in values]
    return [encode(value, type_) for value in values]


def decode(data: bytes, type_: str = "any") -> Value:
    """The value that `encode` made these bytes of."""
    try:
        return _DECODERS[type_](data)
    except (ValueError, KeyError) as error:
        raise CorruptError(f"{data[:40]!r} does not read as type {type_!r}: {error}.", code="value") from None


def encoder(type_: str) -> Callable[[Any], bytes]:
    """`encode` for one type, checked once."""
    if type_ not in TYPES:
        raise UsageError(f"There is no type {type_!r}. There are: {', '.join(TYPES)}.")
    return lambda value: encode(value, type_)


def _plain(value: Any) -> Value:
    if isinstance(value, np.generic):
        value = value.item()
    elif isinstance(value, pa.Scalar):
        value = value.as_py()
    if isinstance(value, bool) or not isinstance(value, str | bytes | int | float):
        raise UsageError(f"{value!r} can't be kept: values are bytes, strings, integers and floats.")
    return value


def _utf8(value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{value!r} has lone surrogates and is not text; pass bytes.") from None


def _encode_any(value: Value) -> bytes:
    if isinstance(value, int):
        return b"%d" % value
    if isinstance(value, float):
        return repr(value).encode()
    if isinstance(value, bytes):
        return b"\0b" + value
    data = _utf8(value)
    return b"\0s" + data if data[:1] == b"\0" or not isinstance(_natural(data), str) else data


def _natural(data: bytes) -> Value:
    """What plain text reads as."""
    if not data or data[0] not in _FLOAT_START:
        return data.decode()
    if _INT.fullmatch(data):
        return int(data)
    text = data.decode()
    try:
        number = float(text)
    except ValueError:
        return text
    return number if repr(number) == text else text


def _decode_any(data: bytes) -> Value:
    if data[:1] != b"\0":
        return _natural(data)
    return {b"s": bytes.decode, b"b": bytes}[data[1:2]](data[2:])


_DECODERS: dict[str, Callable[[bytes], Value]] = {
    "any": _decode_any,
    "str": bytes.decode,
    "bytes": bytes,
    "int": int,
    "float": float,
}
