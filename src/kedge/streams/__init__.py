"""Durable ordered rows in partitions: units, segments, append, read, recover."""

from __future__ import annotations

from kedge.streams.handle import Stream, stream
from kedge.streams.index import UnitInfo
from kedge.streams.layout import Lineage
from kedge.streams.positions import Subscription
from kedge.streams.repairing import Repaired, repair
from kedge.streams.ticket import Appended, Ticket
from kedge.streams.verifying import Checked, Problem, verify

__all__ = [
    "Appended",
    "Checked",
    "Lineage",
    "Problem",
    "Repaired",
    "Stream",
    "Subscription",
    "Ticket",
    "UnitInfo",
    "repair",
    "stream",
    "verify",
]
