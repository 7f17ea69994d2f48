"""Durable ordered rows in partitions: units, segments, append, read, recover."""

from __future__ import annotations

from kedge.streams.index import UnitInfo
from kedge.streams.layout import Lineage
from kedge.streams.stream import Stream, stream
from kedge.streams.ticket import Appended, Ticket

__all__ = ["Appended", "Lineage", "Stream", "Ticket", "UnitInfo", "stream"]
