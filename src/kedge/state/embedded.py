"""The embedded backend: everything in this process; the table is always current, layers lead away from it.

Looking up an old value costs nothing here, so every layer but a full one is a complete delta whatever the scheme; a
scheme decides what is kept beside it (`command`: the raw calls) or in its place (`full`: an image of the
structure), and what a journal stores. The journal, if there is one, is told of everything durable (`journal.py`).

Invariant: state now = state at `line.at` + the open layers of the live structures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from kedge.errors import InternalError
from kedge.host import Clock
from kedge.state.cells import Cells, DictCells, IntCells, load_delta
from kedge.state.commands import Raw, Spec
from kedge.state.delta import PRESENT, CellDelta, Delta, Flags, IntDelta, Ints, Old, cells_of, chain, known
from kedge.state.line import Line, Version, groups
from kedge.state.readers import Overlay, Reader


@dataclass
class Layer:
    """What one version changed, by structure."""

    deltas: dict[str, Delta] = field(default_factory=dict[str, Delta])
    images: dict[str, Cells] = field(default_factory=dict[str, Cells])
    raws: list[Raw] = field(default_factory=list[Raw])

    @property
    def cells(self) -> int:
        """How many cells changed."""
        return sum(map(len, self.deltas.values()))

    @property
    def nbytes(self) -> int:
        """About how much memory it takes, sixteen bytes for a cell of an image; what retention by bytes goes by."""
        return sum(delta.nbytes for delta in self.deltas.values()) + 16 * sum(
            image.size for image in self.images.values()
        )


class Journal(Protocol):
    """Where an embedded store writes what must survive; every call returns when it is durable."""

    def check_writable(self) -> None:
        """An error before anything changes, when nothing can be written."""
        ...

    def checkpoint(self, version: Version, parent: int, layer: Layer, specs: dict[str, Spec]) -> Version:
        """A new version; returns it with the bytes that were stored."""
        ...

    def goto(self, version: int, last: int) -> None:
        """Another version is current; nothing is open, and no version is after `last`."""
        ...

    def flush(self, layer: Layer, parent: int, specs: dict[str, Spec]) -> None:
        """The open layer so far."""
        ...

    def compact(
        self, line: Line, layers: dict[int, Layer], oldest: Mapping[str, Reader], open_: Layer | None
    ) -> Line:
        """Only these versions and layers remain, from the state at the oldest one; `open_` was flushed."""
        ...

    def close(self) -> None:
        """Let go."""
        ...


class EmbeddedLive:
    """One structure of an embedded store."""

    def __init__(self, spec: Spec, owner: Embedded) -> None:
        self.spec, self._owner = spec, owner
        ints = spec.kind == "set" and spec.type in ("any", "int")
        self.cells: Cells = IntCells() if ints else DictCells()

    @property
    def scheme(self) -> str:
        """How changes are logged."""
        return self.spec.scheme

    def switch(self, scheme: str) -> None:
        """The log is the same for all schemes; what is kept beside it changes with the next call."""
        self._owner.check_writable()
        self.spec = replace(self.spec, scheme=scheme)
        self._owner.specs[self.spec.name] = self.spec

    def get(self, cells: list[bytes]) -> list[bytes | None]:
        """What each cell holds."""
        if isinstance(self.cells, IntCells):
            return _members(self.cells, cells)
        return [known(self.cells.get(cell)) for cell in cells]

    def get_ints(self, keys: Ints) -> Flags:
        """1 for each member that is there."""
        if isinstance(self.cells, IntCells):
            return self.cells.get_ints(keys)
        cells = self.cells
        return np.array([cells.get(b"%d" % key) is not None for key in keys.tolist()], np.uint8)

    def count(self) -> int:
        """How many cells hold something."""
        return self.cells.size

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """The cells that hold something."""
        return self.cells.items()

    def ints(self) -> Ints | None:
        """All members of a set of integers."""
        return self.cells.ints() if isinstance(self.cells, IntCells) else None

    def write(self, verb: str, args: list[bytes], news: Mapping[bytes, bytes | None]) -> None:
        """Put the cells; log the call under `command`."""
        self._owner.check_writable()
        if isinstance(self.cells, IntCells):
            self.cells = self.cells.widen()
        done = self.cells.put(news)
        wrote = done if self.spec.kind in ("counter", "list") or verb == "clear" else None
        self._owner.changed(self.spec, len(done), Raw(self.spec.name, verb, args, wrote))

    def write_ints(self, verb: str, keys: Ints) -> None:
        """The same for integer members, in bulk."""
        self._owner.check_writable()
        if not isinstance(self.cells, IntCells):
            cells = [b"%d" % key for key in keys.tolist()]
            self.write(verb, cells, dict.fromkeys(cells, PRESENT if verb == "add" else None))
            return
        changed = self.cells.put_ints(keys, verb == "add")
        self._owner.changed(self.spec, changed, Raw(self.spec.name, verb, keys))

    def load(self, delta: Delta) -> None:
        """Move the structure by a delta that is already logged."""
        self.cells = load_delta(self.cells, delta)

    def discard_open(self) -> None:
        """Back to the last checkpoint."""
        delta = self.cells.seal()
        self.load(delta.inverse())


def _members(cells: IntCells, asked: list[bytes]) -> list[bytes | None]:
    out: list[bytes | None] = []
    for cell in asked:
        value: Old = None
        if _is_int64(cell):
            value = cells.get(cell)
        out.append(known(value))
    return out


def _is_int64(cell: bytes) -> bool:
    """Whether this member could be in a table of integers: canonical text within 64 bits."""
    try:
        number = int(cell)
    except ValueError:
        return False
    return b"%d" % number == cell and -(1 << 63) <= number < 1 << 63


class Embedded:
    """A store in this process."""

    def __init__(self, clock: Clock) -> None:
        self.line = Line({0: Version(0, clock.now_us())})
        self.specs: dict[str, Spec] = {}
        self.layers: dict[int, Layer] = {}
        self.journal: Journal | None = None
        self.tick = 0  # grows with every change: snapshots notice
        self.dirty = False  # whether the open layer changed anything
        self._flushed = False  # whether some of it is durable
        self.unsettled = False  # whether versions that a change has dropped are still in the journal
        self._raws: list[Raw] = []
        self._live: dict[str, EmbeddedLive] = {}
        self._clock = clock

    # --- structures -----------------------------------------------------------------------------------------------

    def check_writable(self) -> None:
        """An error before anything changes, when it could not be made durable."""
        if self.journal is not None:
            self.journal.check_writable()

    def create(self, spec: Spec) -> None:
        """A new structure, empty at every version there is."""
        self.check_writable()
        self.specs[spec.name] = spec
        self._live[spec.name] = EmbeddedLive(spec, self)

    def live(self, name: str) -> EmbeddedLive:
        """A structure, to read and write."""
        return self._live[name]

    def changed(self, spec: Spec, cells: int, raw: Raw) -> None:
        """A call was made: the first change after a rollback drops the later versions."""
        if spec.scheme == "command":
            self._raws.append(raw)
        if cells:
            self.tick += 1
            self._diverge()

    def _diverge(self) -> None:
        self.dirty = True
        later = self.line.later()
        self.unsettled |= bool(later) and self.journal is not None
        for number in later:
            del self.layers[number]
        self.line.drop(later)

    # --- versions -------------------------------------------------------------------------------------------------

    def checkpoint(self, key: str | None) -> Version:
        """Close the open layer."""
        self.check_writable()
        self._diverge()
        parent, number = self.line.at, self.line.next
        layer = self._open_layer(seal=True)
        version = Version(number, self._clock.now_us(), layer.cells, 0, key)
        if self.journal is not None:
            version = self.journal.checkpoint(version, parent, layer, self.specs)
        else:
            version = replace(version, bytes=layer.nbytes)
        self.accept(version, layer)
        return version

    def accept(self, version: Version, layer: Layer) -> None:
        """Put a finished layer onto the line."""
        self.layers[version.number] = layer
        self.line.add(version)
        self._raws, self.dirty, self._flushed, self.unsettled = [], False, False, False
        self.tick += 1

    def _open_layer(self, *, seal: bool) -> Layer:
        layer = Layer(raws=list(self._raws))
        for name, live in self._live.items():
            delta = live.cells.seal() if seal else live.cells.open()
            before = self._image(self.line.at, name)
            if live.scheme == "full" and seal:
                layer.images[name] = before if before is not None and not len(delta) else live.cells.copy()
            if len(delta) and (live.scheme != "full" or before is None or not seal):
                layer.deltas[name] = delta
        return layer

    def reopen(self, deltas: dict[str, Delta], raws: list[Raw]) -> None:
        """Take up an open layer that was flushed: it is open again, on top of the current version."""
        for name, delta in deltas.items():
            live = self._live[name]
            if isinstance(live.cells, IntCells) and isinstance(delta, IntDelta):
                live.cells.put_ints(delta.where(1), True)
                live.cells.put_ints(delta.where(0), False)
                continue
            if isinstance(live.cells, IntCells):
                live.cells = live.cells.widen()
            live.cells.put(cells_of(delta).news())
        self._raws, self._flushed = list(raws), True
        if any(len(delta) for delta in deltas.values()):
            self.dirty = True
            self.line.drop(self.line.later())
        self.tick += 1

    def flush(self) -> None:
        """Make the open layer durable as well."""
        if self.journal is not None:
            self.journal.flush(self._open_layer(seal=False), self.line.at, self.specs)
            self._flushed, self.unsettled = True, False

    def goto(self, version: int) -> None:
        """Discard the open layer and make another version current."""
        self.check_writable()
        self.line.check(version)
        self.travel(version)
        if self.journal is not None:
            self.journal.goto(version, self.line.numbers()[-1])

    def travel(self, version: int) -> None:
        """`goto` without telling the journal."""
        for name, live in self._live.items():
            image = self._image(version, name)
            if image is not None and live.scheme == "full":
                live.cells = image.copy()
                continue
            live.discard_open()
            live.load(self.between(name, self.line.at, version))
        self.line.at = version
        self._raws, self.dirty, self._flushed, self.unsettled = [], False, False, False
        self.tick += 1

    def between(self, name: str, start: int, end: int) -> Delta:
        """The net change of a structure from one version to another, in either direction."""
        if start > end:
            return self.between(name, end, start).inverse()
        return chain(self.delta(number, name) for number in self.line.layers(start, end))

    def delta(self, number: int, name: str) -> Delta:
        """The net change that one version made; between two images it is their difference."""
        layer = self.layers[number]
        if name in layer.deltas or name not in layer.images:
            return layer.deltas.get(name, CellDelta())
        before = self._image(self.line.before(number) or 0, name)
        if before is None:
            return CellDelta()  # unchanged since a version that the structure did not exist at
        return difference(before, layer.images[name])

    def _image(self, number: int, name: str) -> Cells | None:
        layer = self.layers.get(number)
        return layer.images.get(name) if layer is not None else None

    def view(self, name: str, version: int) -> Reader:
        """A structure as it was (or will be again) at a version."""
        self.line.check(version)
        live = self._live[name]
        return Overlay(live, chain([live.cells.open().inverse(), self.between(name, self.line.at, version)]))

    def raws(self, number: int) -> list[Raw]:
        """The calls that were logged for a version."""
        return self.layers[number].raws

    def compact(self, stay: list[int]) -> None:
        """Keep only these versions; each takes over the layers of the dropped ones before it."""
        self.check_writable()
        if self.line.at not in stay:
            raise InternalError("compaction would drop the current version")
        layers: dict[int, Layer] = {}
        combined = groups(self.line, stay)
        for number, numbers in combined.items():
            layers[number] = self._combined(number, numbers)
        if stay[0] in self.layers:  # the oldest keeps its image, but leads nowhere
            layers[stay[0]] = Layer(images=self.layers[stay[0]].images)
        versions = self._versions(stay, layers)
        line = Line(versions, self.line.at, self.line.next)
        if self.journal is not None:
            oldest = {name: self.view(name, stay[0]) for name in self.specs}
            open_ = self._open_layer(seal=False) if self._flushed else None
            line = self.journal.compact(line, layers, oldest, open_)
        self.line, self.layers, self.unsettled = line, layers, False
        self.tick += 1

    def _combined(self, number: int, numbers: list[int]) -> Layer:
        last = self.layers[number]
        if len(numbers) == 1:
            return last
        layer = Layer(images=last.images, raws=[raw for one in numbers for raw in self.layers[one].raws])
        for name in self.specs:
            delta = chain(self.delta(one, name) for one in numbers)
            if len(delta):
                layer.deltas[name] = delta
        return layer

    def _versions(self, stay: list[int], layers: dict[int, Layer]) -> dict[int, Version]:
        versions = {number: self.line.versions[number] for number in stay}
        for number, layer in layers.items():
            if layer is not self.layers[number]:
                versions[number] = replace(versions[number], cells=layer.cells, bytes=layer.nbytes)
        return versions

    def close(self) -> None:
        """Let the journal and the tables go: structures and store name each other, so nothing else would soon."""
        if self.journal is not None:
            self.journal.close()
        self._live.clear()
        self.layers.clear()


def difference(before: Cells, after: Cells) -> Delta:
    """The net change between two images."""
    if isinstance(before, IntCells) and isinstance(after, IntCells):
        was, now = before.ints(), after.ints()
        gone, come = np.setdiff1d(was, now), np.setdiff1d(now, was)
        flags = np.repeat(np.array([1, 0], np.uint8), [len(gone), len(come)])
        return IntDelta(np.concatenate([gone, come]), flags, 1 - flags)
    old, new = dict(before.items()), dict(after.items())
    pairs = {cell: (old.get(cell), new.get(cell)) for cell in old.keys() | new.keys()}
    return CellDelta({cell: pair for cell, pair in pairs.items() if pair[0] != pair[1]})
