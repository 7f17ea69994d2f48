"""Checks every byte of a stream that counts, and names what is wrong: file, byte, what, and the rows behind it.

Bodies are checked by checksum and decoded; the zeros between and after bodies, which no reader looks at, are
checked too. It changes nothing and takes no lock, so it may run beside a writer.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from kedge import host as hosts
from kedge.errors import CorruptError
from kedge.host import Host
from kedge.streams import description, unit
from kedge.streams.committed import Manifest
from kedge.streams.decisions import PREFIX, ledger
from kedge.streams.files import PartitionFiles
from kedge.streams.index import header_of
from kedge.streams.layout import Header, aligned
from kedge.streams.positions import FLOOR, FOLDER, Positions
from kedge.streams.recovery import check_bodies
from kedge.streams.segment import PAGE, SegmentName, header_at, parse_header


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong."""

    file: str
    what: str  # begins with "byte N: "
    partition: int | None = None
    first_offset: int | None = None  # the first row that it may concern

    def __str__(self) -> str:
        rows = "" if self.first_offset is None else f" (from offset {self.first_offset} on)"
        return f"{self.file}: {self.what}{rows}"


@dataclass
class Checked:
    """What was looked at, and what was found."""

    units: int = 0
    rows: int = 0
    rows_lost: int = 0  # that an earlier repair could not keep
    bytes: int = 0
    problems: list[Problem] = field(default_factory=list[Problem])


def verify(path: str | os.PathLike[str], *, host: Host | None = None) -> Checked:
    """Check a stream: its segments or objects, or the units that its run has committed."""
    return check(host or hosts.local(), description.normal(os.fspath(path)))


def check(host: Host, path: str) -> Checked:
    """The same, on a given host."""
    checked = Checked()
    what = _description(host, path, checked)
    if what is None:
        return checked
    if what.objects:
        from kedge.streams.object_check import check_objects

        check_objects(host, path, what, checked)
        return checked
    _documents(host, path, what.partitions, checked)
    if what.run is not None:
        _results(host, path, what, what.run, checked)
        return checked
    for partition in range(what.partitions):
        _partition(PartitionFiles(host, path, what.id, partition), what.schema, checked)
    return checked


def _description(host: Host, path: str, checked: Checked) -> description.Description | None:
    found: list[description.Description] = []
    for name in (description.NAME, description.COPY):
        try:
            what = description.load(host, path, name)
        except CorruptError as error:
            checked.problems.append(Problem(name, f"byte 0: {error}"))
            continue
        if what is None:
            checked.problems.append(Problem(name, "byte 0: it is not there"))
        else:
            found.append(what)
    return found[0] if found else None


def _documents(host: Host, path: str, partitions: int, checked: Checked) -> None:
    positions = Positions(host, path, partitions)
    try:
        positions.floors()
    except (CorruptError, ValueError, KeyError) as error:
        checked.problems.append(Problem(FLOOR, f"byte 0: {error}"))
    try:
        ledger(host, path).refresh()
    except CorruptError as error:
        checked.problems.append(Problem(PREFIX, f"byte 0: {error}"))
    for name in positions.names():
        try:
            positions.read(name)
        except (CorruptError, ValueError, KeyError) as error:
            checked.problems.append(Problem(f"{FOLDER}/{name}.json", f"byte 0: {error}"))


def _partition(files: PartitionFiles, schema: pa.Schema, checked: Checked) -> None:
    for epoch in files.epochs.listed():
        for page in files.epochs.spoiled(epoch):
            file = f"{files.relative}/epochs/{epoch:016d}"
            checked.problems.append(Problem(file, f"byte {page}: a slot does not check", files.partition))
    try:
        _, slot = files.epochs.current()
    except CorruptError as error:
        checked.problems.append(Problem(f"{files.relative}/epochs", f"byte 0: {error}", files.partition, 0))
        return
    if slot is None or not slot.segment:
        return
    names = files.chain(slot)
    if not names:
        what = f"byte 0: segment {slot.segment} of epoch {slot.segment_epoch} is not there"
        checked.problems.append(Problem(f"{files.relative}/segments", what, files.partition, 0))
    for index, name in enumerate(names):
        end = names[index + 1].first_offset if index + 1 < len(names) else slot.end
        _segment(files, name, end, schema, checked)


def _results(host: Host, path: str, what: description.Description, run: str, checked: Checked) -> None:
    """The units that the run's ledger names."""
    manifest = Manifest(host, path, what.id, what.partitions, run)
    try:
        manifest.refresh()
    except CorruptError as error:
        checked.problems.append(Problem(f"{run}/ledger", f"byte 0: {error}"))
    for info in (info for units in manifest.units for info in units):
        try:
            buffer = manifest.file(info)
            header = header_of(buffer, info)
        except CorruptError as error:
            checked.problems.append(Problem(info.file, str(error), info.partition, info.first_offset))
            continue
        for problem in unit_problems(buffer, header, 0, what.schema):
            checked.problems.append(Problem(info.file, problem, info.partition, info.first_offset))
        checked.units += 1
        checked.rows += header.rows
        checked.bytes += header.bytes


def _segment(files: PartitionFiles, name: SegmentName, end: int, schema: pa.Schema, checked: Checked) -> None:
    buffer = files.map(name)
    file = f"{files.relative}/segments/{name}"
    offset = name.first_offset
    try:
        position, _ = parse_header(buffer, files.stream, files.partition, name)
    except CorruptError as error:
        checked.problems.append(Problem(file, str(error), files.partition, offset))
        position = PAGE
    while offset < end:
        try:
            header = header_at(buffer, files.place(name), position, offset)
        except CorruptError as error:
            checked.problems.append(Problem(file, str(error), files.partition, offset))
            return
        if header.lost:
            checked.rows_lost += header.rows
            position, offset = position + aligned(header.bytes, PAGE), header.end
            continue
        for what in unit_problems(buffer, header, position, schema):
            checked.problems.append(Problem(file, what, files.partition, offset))
        checked.units += 1
        checked.rows += header.rows
        checked.bytes += header.bytes
        position += aligned(header.bytes, PAGE)
        offset = header.end
    if len(buffer) < position:  # zeros are missing: no row, but readers want the pages whole
        what = f"byte {len(buffer)}: cut, {position} bytes were written"
        checked.problems.append(Problem(file, what, files.partition, end))


def unit_problems(buffer: memoryview, header: Header, position: int, schema: pa.Schema) -> Iterator[str]:
    """What is wrong with a unit whose header checks."""
    try:
        check_bodies(buffer, header, position)
        unit.decode(buffer, header, schema, start=position)
    except CorruptError as error:
        yield str(error)
        return
    at = header.header_bytes
    for start, size in zip(header.buffers["start"].tolist(), header.buffers["bytes"].tolist(), strict=True):
        yield from _not_zero(buffer, position + at, position + start)
        at = start + size
    yield from _not_zero(buffer, position + at, position + aligned(header.bytes, PAGE))


def _not_zero(buffer: memoryview, start: int, end: int) -> Iterator[str]:
    gap = bytes(buffer[start:end])
    if gap.strip(b"\0"):
        yield f"byte {start + len(gap) - len(gap.lstrip(bytes(1)))}: not zero between bodies; no row is concerned"
