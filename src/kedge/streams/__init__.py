"""Durable ordered rows in partitions: units, segments, append, read, recover."""

from __future__ import annotations

from kedge.streams.handle import Stream, stream
from kedge.streams.index import UnitInfo
from kedge.streams.layout import Lineage
from kedge.streams.named import FOLDER as RESULTS
from kedge.streams.named import decode as decode_named
from kedge.streams.named import encode as encode_named
from kedge.streams.positions import Subscription
from kedge.streams.repairing import Repaired, repair
from kedge.streams.ticket import Appended, Ticket
from kedge.streams.verifying import Checked, Problem, verify
from kedge.streams.where import Where

__all__ = [
    "RESULTS",
    "Appended",
    "Checked",
    "Lineage",
    "Problem",
    "Repaired",
    "Stream",
    "Subscription",
    "Ticket",
    "UnitInfo",
    "Where",
    "decode_named",
    "encode_named",
    "repair",
    "stream",
    "verify",
]
