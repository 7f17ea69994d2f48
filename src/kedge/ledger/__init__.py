"""Dense commit records, claims of epochs, and the floor."""

from __future__ import annotations

from kedge.ledger.ledger import Ledger
from kedge.ledger.record import Record

__all__ = ["Ledger", "Record"]
