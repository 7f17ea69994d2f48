"""The files of one partition by their names: what writer, readers, recovery and repair share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kedge.host import Host
from kedge.streams.epoch import Epochs, Slot
from kedge.streams.segment import Place, SegmentName, chain

SEGMENT_BYTES = 64 << 20


@dataclass(frozen=True)
class PartitionFiles:
    """One partition's directory."""

    host: Host
    root: str  # the stream's directory
    stream: str
    partition: int
    segment_bytes: int = SEGMENT_BYTES

    @property
    def folder(self) -> str:
        """The partition's directory."""
        return f"{self.root}/{self.relative}"

    @property
    def relative(self) -> str:
        """The partition's directory, from the stream's."""
        return f"partitions/{self.partition:04d}"

    @property
    def segments_folder(self) -> str:
        """Where the segments are."""
        return f"{self.folder}/segments"

    @property
    def epochs(self) -> Epochs:
        """Claims and durable ends."""
        return Epochs(self.host, f"{self.folder}/epochs", self.stream, self.partition)

    def names(self) -> list[str]:
        """What lies in the directory of segments."""
        try:
            return self.host.disk.list(self.segments_folder)
        except FileNotFoundError:
            return []

    def chain(self, slot: Slot) -> list[SegmentName]:
        """The segments that count."""
        return chain(self.names(), slot.segment, slot.segment_epoch)

    def path(self, name: SegmentName) -> str:
        """A segment's file."""
        return f"{self.segments_folder}/{name}"

    def place(self, name: SegmentName) -> Place:
        """What seeds its units."""
        return Place(self.stream, self.partition, name)

    def map(self, name: SegmentName) -> memoryview:
        """A segment's bytes as they are now."""
        file = self.host.disk.open(self.path(name))
        try:
            return file.map()
        finally:
            file.close()


Report = Callable[[str], None]
