"""Small JSON files that people may read and that check themselves: a checksum over the canonical form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kedge.errors import CorruptError
from kedge.streams.layout import checksum


def pack(body: Mapping[str, Any]) -> bytes:
    """The file's bytes."""
    return (json.dumps({**body, "checksum": _sum(body)}, indent=1) + "\n").encode()


def parse(raw: bytes, path: str) -> dict[str, Any]:
    """Read it back; CorruptError when it does not check."""
    try:
        body = json.loads(raw)
        if body.pop("checksum") != _sum(body) or pack(body) != raw:
            raise ValueError("the checksum does not match")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptError(
            f"{path} at byte 0: {error}. Run `kedge stream repair` on its stream.", code="document"
        ) from error
    return body


def _sum(body: Mapping[str, Any]) -> str:
    return f"{checksum(json.dumps(body, sort_keys=True).encode()):016x}"
