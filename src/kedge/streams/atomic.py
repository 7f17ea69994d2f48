"""One append to several partitions that happens in all of them or in none.

The units are written to every partition with a flag that says: I count only if the ledger says so. Then one record
in the stream's own ledger commits them all, and only then does each partition publish its end.

Invariants:
- The data of all partitions is durable, and every epoch still held, before the record is put.
- Recovery that finds flagged units after a partition's last slot first claims the ledger: from then on whoever
  wrote them can't commit them any more. It keeps those that a record names (partition, offset, epoch), and cuts
  the others.
- Records are compacted only after the slots of the partitions they name have been made durable.

Readers may see the partitions advance one after the other; after a crash they see all or none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kedge.host import Host
from kedge.streams.decisions import ledger
from kedge.streams.ticket import Appended
from kedge.streams.writer import PartitionWriter

COMPACT_EVERY = 256


@dataclass(frozen=True)
class Share:
    """What one partition gets."""

    partition: int
    writer: PartitionWriter
    units: Sequence[NDArray[np.uint8]]
    result: Appended

    @property
    def rows(self) -> int:
        """How many rows."""
        return self.result.end - self.result.first_offset


class AtomicAppends:
    """Commits appends to several partitions; the caller has stopped everything else on them."""

    def __init__(self, host: Host, root: str) -> None:
        self._ledger = ledger(host, root)
        self._ledger.claim()
        self._since = 0

    def append(self, shares: Sequence[Share], producer: str | None, sequence: int | None) -> None:
        """Write all shares, commit them with one record, then let them be seen."""
        for share in shares:
            share.writer.write(share.units, share.rows, producer, sequence)
        for share in shares:
            share.writer.prepare()
        slot = self._ledger.commit({"kind": "append", "parts": [_part(share) for share in shares]})
        self._since += 1
        compact = self._since >= COMPACT_EVERY
        for share in shares:
            share.writer.publish(durable=compact)
        if compact:
            self._ledger.compact(slot, {"kind": "compacted"})
            self._since = 0


def _part(share: Share) -> Mapping[str, int]:
    return {
        "partition": share.partition,
        "offset": share.result.first_offset,
        "rows": share.rows,
        "epoch": share.writer.epoch,
    }
