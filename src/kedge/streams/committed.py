"""The units of a run's result stream: what the run's ledger says is committed, and nothing else.

Every record of kind "batch", and the summary that stands for compacted ones, has a list `results` of
`{"partition", "offset", "rows", "file", "bytes", "min_us", "max_us"}`; `file` is relative to the stream's directory
and holds one unit at byte 0. Results of a partition follow each other without gaps, so a gap is corruption.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from kedge.errors import CorruptError
from kedge.host import Host, is_url
from kedge.ledger import Ledger
from kedge.streams import named
from kedge.streams.fetched import Fetched
from kedge.streams.index import UnitInfo

_FILES_MAPPED_MAX = 64


class Manifest:
    """The committed units of all partitions, read forward."""

    def __init__(self, host: Host, root: str, stream: str, partitions: int, run: str) -> None:
        self._host, self._root, self._stream, self._run = host, root, stream, run
        self._ledger = Ledger(host.store(run), host.rng, host.clock)
        self._next_slot = 0
        self.units: list[list[UnitInfo]] = [[] for _ in range(partitions)]
        self._maps: dict[str, memoryview] = {}
        self._fetched = Fetched(host.store(root), root) if is_url(root) else None

    @property
    def ends(self) -> list[int]:
        """The committed end of each partition at the last refresh."""
        return [known[-1].end if known else 0 for known in self.units]

    def refresh(self) -> None:
        """Read what was committed since."""
        tip = self._ledger.refresh()
        if tip is None or tip < self._next_slot:
            return
        floor, summary = self._ledger.floor()
        if floor > self._next_slot and summary is not None:
            self._take(summary.get("results", ()), f"the summary at slot {floor}")
        for record in self._ledger.records(self._next_slot):
            if record["kind"] == "batch":
                self._take(record.get("results", ()), f"slot {record['slot']}")
        self._next_slot = tip + 1

    def _take(self, results: Iterable[Mapping[str, Any]], where: str) -> None:
        for result in results:
            partition, offset, rows = int(result["partition"]), int(result["offset"]), int(result["rows"])
            known = self.units[partition] if 0 <= partition < len(self.units) else None
            if known is None or rows < 0:
                raise CorruptError(f"{self._run}/ledger, {where}: partition {partition} with {rows} rows can't be.")
            if not rows or (known and offset < known[-1].end):
                continue  # a summary repeats what the records said
            if known and offset > known[-1].end:
                raise CorruptError(
                    f"{self._run}/ledger, {where}: results of partition {partition} go on at offset {offset}, "
                    f"those before end at {known[-1].end}. Restore the run's directory.",
                    code="result-gap",
                )
            known.append(
                UnitInfo(
                    partition,
                    offset,
                    rows,
                    result.get("min_us"),
                    result.get("max_us"),
                    str(result["file"]),
                    0,
                    int(result["bytes"]),
                    named.seed(self._stream, str(result["file"])),
                )
            )

    def file(self, info: UnitInfo, columns: Sequence[int] | None = None) -> memoryview:
        """The bytes of a unit's file; with `columns`, those of the header and of these columns at least."""
        if self._fetched is not None:
            return self._fetched.unit(info, columns)
        if info.file not in self._maps:
            path = f"{self._root}/{info.file}"
            try:
                file = self._host.disk.open(path)
            except FileNotFoundError:
                raise CorruptError(
                    f"{path} is committed and not there. Restore it.", code="result-missing"
                ) from None
            try:
                if len(self._maps) >= _FILES_MAPPED_MAX:
                    del self._maps[next(iter(self._maps))]
                self._maps[info.file] = file.map()
            finally:
                file.close()
        return self._maps[info.file]

    def forget(self) -> None:
        """Give the mapped memory back."""
        self._maps.clear()
        if self._fetched is not None:
            self._fetched.forget()


class Units(Protocol):
    """What is committed, of all partitions."""

    @property
    def units(self) -> list[list[UnitInfo]]:
        """By partition, in order, as far as this was refreshed."""
        ...

    @property
    def ends(self) -> list[int]:
        """The end of each partition at the last refresh."""
        ...

    def refresh(self) -> None:
        """Read what was committed since."""
        ...

    def file(self, info: UnitInfo, columns: Sequence[int] | None = None) -> memoryview:
        """The bytes of a unit's file; with `columns`, those of the header and of these columns at least."""
        ...

    def forget(self) -> None:
        """Give the memory back."""
        ...


class CommittedIndex:
    """One partition of a manifest, as a reader sees it."""

    def __init__(self, manifest: Units, partition: int) -> None:
        self._manifest, self._partition = manifest, partition

    def refresh(self) -> int:
        """How far the partition is committed, now."""
        self._manifest.refresh()
        return self.end

    @property
    def end(self) -> int:
        """The committed end of the last refresh."""
        return self._manifest.ends[self._partition]

    @property
    def begin(self) -> int:
        """The first offset that is still there."""
        known = self._manifest.units[self._partition]
        return known[0].first_offset if known else 0

    def units(self, start: int, end: int) -> list[UnitInfo]:
        """The units that hold rows of [start, end), in order."""
        known = self._manifest.units[self._partition]
        low = max(0, bisect_right(known, start, key=lambda unit: unit.first_offset) - 1)
        high = bisect_right(known, end - 1, key=lambda unit: unit.first_offset)
        return [unit for unit in known[low:high] if unit.end > start]

    def file(self, info: UnitInfo, columns: Sequence[int] | None = None) -> memoryview:
        """The bytes of a unit's file; with `columns`, those of the header and of these columns at least."""
        return self._manifest.file(info, columns)

    def forget(self) -> None:
        """Give the mapped memory back."""
        self._manifest.forget()
