"""The stream's own ledger, as recovery reads it: which appends to several partitions count (see `atomic`)."""

from __future__ import annotations

from kedge.host import Host
from kedge.ledger import Ledger

PREFIX = "atomic"


def ledger(host: Host, root: str) -> Ledger:
    """The stream's own ledger."""
    return Ledger(host.store(root), host.rng, host.clock, PREFIX)


class Decisions:
    """What recovery asks: whether a flagged append was committed. Claims the ledger at the first question."""

    def __init__(self, host: Host, root: str, partition: int) -> None:
        self._host, self._root, self._partition = host, root, partition
        self._committed: set[tuple[int, int]] | None = None

    def committed(self, offset: int, epoch: int) -> bool:
        """Whether the flagged append that begins at `offset`, written in `epoch`, counts."""
        if self._committed is None:
            there = ledger(self._host, self._root)
            there.claim()
            self._committed = {
                (part["offset"], part["epoch"])
                for record in there.records()
                if record["kind"] == "append"
                for part in record["parts"]
                if part["partition"] == self._partition
            }
        return (offset, epoch) in self._committed
