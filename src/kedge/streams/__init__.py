"""Durable ordered rows in partitions: units, segments, append, read, recover."""

from __future__ import annotations

from kedge.streams.index import UnitInfo
from kedge.streams.layout import Lineage
from kedge.streams.named import FOLDER as RESULTS
from kedge.streams.named import decode as decode_named
from kedge.streams.named import encode as encode_named
from kedge.streams.stream import Stream, stream
from kedge.streams.ticket import Appended, Ticket

__all__ = [
    "RESULTS",
    "Appended",
    "Lineage",
    "Stream",
    "Ticket",
    "UnitInfo",
    "decode_named",
    "encode_named",
    "stream",
]
