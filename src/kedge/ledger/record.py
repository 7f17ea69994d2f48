"""The bytes of one record: a line of JSON whose last member is a checksum over the slot and all before it.

    {"format":1,"slot":42,"epoch":3,"kind":"batch",...,"xxh3_64":"0123456789abcdef"}

The slot seeds the checksum, so that a record copied under another name does not check. Every released format stays
readable; a newer one is refused with a word on what to do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias, cast

import xxhash

from kedge.errors import CorruptError, UsageError

Record: TypeAlias = dict[str, Any]

FORMAT = 1
_SUFFIX = ',"xxh3_64":"{:016x}"}}'
_SUFFIX_BYTES = len(_SUFFIX.format(0))
_OWN = ("format", "xxh3_64")


def encode(record: Mapping[str, Any], slot: int, epoch: int) -> bytes:
    """The bytes of `record` in `slot`."""
    for key, value in (("slot", slot), ("epoch", epoch)):
        if record.get(key, value) != value:
            raise UsageError(f"The ledger sets a record's {key!r} to {value}; its writer gave {record[key]!r}.")
    if any(key in record for key in _OWN):
        raise UsageError(f"A record may not have the members {', '.join(_OWN)}: the ledger writes them.")
    whole = {"format": FORMAT, **record, "slot": slot, "epoch": epoch}
    try:
        text = json.dumps(whole, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UsageError(f"A ledger record must be plain JSON: {error}.") from error
    body = text[:-1].encode()
    return body + _SUFFIX.format(checksum(body, slot)).encode()


def decode(data: bytes, slot: int, name: str) -> Record:
    """The record in `data`, checked; `name` is the object, for the error."""
    body, suffix = data[:-_SUFFIX_BYTES], data[-_SUFFIX_BYTES:]
    if suffix != _SUFFIX.format(checksum(body, slot)).encode():
        raise CorruptError(
            f"{name} ({len(data)} bytes): checksum mismatch. Restore this object from a copy of "
            "the run's directory; without it the run can't go on past the record before.",
            code="ledger-checksum",
        )
    record = cast(Record, json.loads(body + b"}"))
    if record["format"] != FORMAT:
        raise CorruptError(
            f"{name}: format {record['format']} is newer than this Kedge reads ({FORMAT}). Upgrade Kedge.",
            code="ledger-format",
        )
    del record["format"]
    return record


def checksum(body: bytes, slot: int) -> int:
    """xxh3_64 over the content, seeded with the slot."""
    return xxhash.xxh3_64_intdigest(body, seed=slot)
