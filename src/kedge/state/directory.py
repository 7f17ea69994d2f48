"""The journal of an embedded store: a directory with a ledger, crash-safe at every I/O call.

    ledger/          one record per checkpoint, move, flush or compaction (kedge.ledger: dense, fenced, checksummed)
    objects/         what is too large for a record: packed layers, images, bases

Invariants:
- An object is durable before the record that names it is put; an object that no record names is garbage and is
  swept when the store is opened for writing.
- A `base` record stands for everything before it: the state at the oldest version and every layer since. Opening
  replays layers forwards from there, so that a layer may be blind (redo) or just calls (command).
- Calls are durable with the next checkpoint or `flush()`, not one by one.

What it does not do: share. The newest opener's claim fences the older writer, whose next record is a ConflictError.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from kedge.errors import ClosedError, CorruptError, UnavailableError, UsageError
from kedge.host import Host
from kedge.ledger import Ledger
from kedge.state.cells import Cells, DictCells, IntCells, load_delta
from kedge.state.commands import Raw, Spec, effect, told
from kedge.state.delta import CellDelta, Delta, IntDelta, chain, completed
from kedge.state.embedded import Embedded, Layer, difference
from kedge.state.line import Line, Version
from kedge.state.pack import Packed, blind, pack, unpack
from kedge.state.readers import Reader

INLINE_MAX = 16_384  # bytes of a blob that go into the record itself
FORMAT = 1


class DirectoryJournal:
    """What an embedded store writes into its directory."""

    def __init__(self, root: str, host: Host, *, read_only: bool) -> None:
        self.root, self._rng = root, host.rng
        self._store = host.store(root)
        self._ledger = Ledger(self._store, host.rng, host.clock)
        self._read_only, self._dead = read_only, ""
        self._tip: int | None = None
        if read_only:
            self._tip = self._ledger.refresh()
            if self._tip is None:
                raise UsageError(f"There is no store in {root}.")
        else:
            self._ledger.claim()

    # --- opening --------------------------------------------------------------------------------------------------

    def open(self, owner: Embedded) -> None:
        """Bring an empty store to where the records lead."""
        records = [record for record in self._ledger.records() if record["kind"] != "claim"]
        bases = [at for at, record in enumerate(records) if record["kind"] == "base"]
        made = [record["version"]["at_us"] for record in records if record["kind"] == "checkpoint"]
        owner.line.versions[0] = Version(
            0, min([owner.line.versions[0].at_us, *made])
        )  # no record says when it began
        for record in records[bases[-1] if bases else 0 :]:
            if record["store"] != FORMAT:
                raise CorruptError(
                    f"{self.root}: store format {record['store']} is newer than this Kedge. Upgrade it."
                )
            getattr(self, f"_read_{record['kind']}")(owner, record)
        if not self._read_only:
            self._sweep(records[bases[-1] if bases else 0 :])

    def moved_on(self) -> bool:
        """Whether a writer has added records since this reader came: what it misses may have been compacted away."""
        return self._read_only and self._ledger.refresh() != self._tip

    def _read_base(self, owner: Embedded, record: dict[str, Any]) -> None:
        self._specs(owner, record)
        oldest = Version(**record["oldest"])
        owner.line = Line({oldest.number: oldest}, oldest.number, record["next"])
        for name, delta in self._blob(record["base"], "base").deltas.items():
            owner.live(name).load(delta)
        self._images(owner, oldest.number, record["images"])
        for step in record["layers"]:
            self._read_checkpoint(owner, {**step, "specs": record["specs"], "parent": owner.line.at})
        owner.travel(record["at"])
        owner.line.next = record["next"]
        if record.get("open") is not None:
            self._read_open(owner, {"specs": record["specs"], "parent": record["at"], "layer": record["open"]})

    def _read_checkpoint(self, owner: Embedded, record: dict[str, Any]) -> None:
        self._specs(owner, record)
        self._leave(owner, record["parent"])
        version = Version(**record["version"])
        packed = self._blob(record["layer"], f"layer {version.number}")
        layer = Layer(raws=packed.raws)
        owner.line.drop(owner.line.later())
        for name, spec in owner.specs.items():
            live, image = owner.live(name), None
            if name in record["images"]:
                image = self._image(spec, record["images"][name])
            layer_delta = self._delta(spec, packed)
            if image is not None:
                layer.images[name] = image
                if not len(layer_delta):
                    layer_delta = difference(live.cells, image)
            whole = completed(layer_delta, live.get)
            if len(whole):
                layer.deltas[name] = whole
                live.load(whole)
        owner.accept(version, layer)

    def _delta(self, spec: Spec, packed: Packed) -> Delta:
        if spec.name in packed.deltas:
            return packed.deltas[spec.name]
        return chain(effect(spec, raw) for raw in packed.raws if raw.structure == spec.name)

    def _read_goto(self, owner: Embedded, record: dict[str, Any]) -> None:
        owner.travel(record["version"])
        owner.line.drop([number for number in owner.line.numbers() if number > record["last"]])

    def _read_open(self, owner: Embedded, record: dict[str, Any]) -> None:
        self._specs(owner, record)
        self._leave(owner, record["parent"])
        packed = self._blob(record["layer"], "open layer")
        owner.reopen(packed.deltas, packed.raws)

    def _leave(self, owner: Embedded, parent: int) -> None:
        """Go to the version that a record builds on; an open layer that was flushed gives way."""
        if owner.line.at != parent or owner.dirty:
            owner.travel(parent)

    def _specs(self, owner: Embedded, record: dict[str, Any]) -> None:
        for one in record["specs"]:
            spec = Spec(**one)
            if spec.name not in owner.specs:
                owner.create(spec)
            elif owner.specs[spec.name] != spec:
                owner.live(spec.name).switch(spec.scheme)

    def _images(self, owner: Embedded, number: int, images: dict[str, Any]) -> None:
        found = {name: self._image(owner.specs[name], reference) for name, reference in images.items()}
        if found:
            owner.layers[number] = Layer(images=found)

    def _image(self, spec: Spec, reference: dict[str, str]) -> Cells:
        cells: Cells = IntCells() if spec.kind == "set" and spec.type in ("any", "int") else DictCells()
        for delta in self._blob(reference, f"image of {spec.name!r}").deltas.values():
            cells = load_delta(cells, delta)
        return cells

    # --- writing --------------------------------------------------------------------------------------------------

    def checkpoint(self, version: Version, parent: int, layer: Layer, specs: dict[str, Spec]) -> Version:
        """One record, after the objects that it names."""
        step = self._step(version, layer, specs)
        self._commit({"kind": "checkpoint", "parent": parent, "specs": _specs(specs), **step})
        return Version(**step["version"])

    def _step(self, version: Version, layer: Layer, specs: dict[str, Spec]) -> dict[str, Any]:
        deltas = {
            name: blind(delta) if specs[name].scheme == "redo" else delta
            for name, delta in layer.deltas.items()
            if specs[name].scheme != "command" or not told(specs[name], _of(layer.raws, name), delta)
        }
        blob = pack(Packed(deltas, layer.raws))
        images = {name: pack(Packed({name: whole(cells)})) for name, cells in layer.images.items()}
        size = len(blob) + sum(map(len, images.values()))
        record = {**asdict(version), "bytes": size}
        refs = {name: self._put(image) for name, image in images.items()}
        return {"version": record, "layer": self._put(blob), "images": refs}

    def goto(self, version: int, last: int) -> None:
        """One record; versions that a change has dropped since the last record stay dropped."""
        self._commit({"kind": "goto", "version": version, "last": last})

    def flush(self, layer: Layer, parent: int, specs: dict[str, Spec]) -> None:
        """The open layer, whole, in one record."""
        blob = pack(Packed(layer.deltas, layer.raws))
        self._commit({"kind": "open", "parent": parent, "specs": _specs(specs), "layer": self._put(blob)})

    def compact(
        self, line: Line, layers: dict[int, Layer], oldest: Mapping[str, Reader], open_: Layer | None
    ) -> Line:
        """A new base: the state at the oldest version, and the layers from there; then the records before it go."""
        specs = {name: reader.spec for name, reader in oldest.items()}
        numbers = line.numbers()
        base = pack(Packed({name: contents(reader) for name, reader in oldest.items()}))
        images = layers[numbers[0]].images if numbers[0] in layers else {}
        steps = [self._step(line.versions[number], layers[number], specs) for number in numbers[1:]]
        flushed = None if open_ is None else self._put(pack(Packed(open_.deltas, open_.raws)))
        slot = self._commit(
            {
                "kind": "base",
                "open": flushed,  # in the same record: a crash after it must not lose what was flushed
                "oldest": asdict(line.versions[numbers[0]]),
                "base": self._put(base),
                "images": {name: self._put(pack(Packed({name: whole(cells)}))) for name, cells in images.items()},
                "layers": steps,
                "at": line.at,
                "next": line.next,
                "specs": _specs(specs),
            }
        )
        self._ledger.compact(slot, {"kind": "below-base"})
        self._sweep([record for record in self._ledger.records(slot) if record["kind"] != "claim"])
        versions = {numbers[0]: line.versions[numbers[0]]}
        versions |= {step["version"]["number"]: Version(**step["version"]) for step in steps}
        return Line(versions, line.at, line.next)

    def close(self) -> None:
        """Nothing is held."""
        self._dead = self._dead or "it was closed"

    # --- objects --------------------------------------------------------------------------------------------------

    def check_writable(self) -> None:
        """Nothing changes in a store that was opened to read, or whose last write failed."""
        if self._read_only:
            raise UsageError(
                f"The store in {self.root} was opened read-only. Open it without `read_only` to write."
            )
        if self._dead:
            raise ClosedError(f"The store in {self.root} is closed: {self._dead}. Open it again.")

    def _commit(self, record: dict[str, Any]) -> int:
        self.check_writable()
        try:
            return self._ledger.commit({"store": FORMAT, **record})
        except OSError as error:
            raise self._failed(error) from error
        except BaseException as error:
            self._dead = f"a write failed ({error})"
            raise

    def _put(self, blob: bytes) -> dict[str, str]:
        """A reference to a blob: the blob itself when it is small."""
        if len(blob) <= INLINE_MAX:
            return {"inline": base64.b64encode(blob).decode()}
        self.check_writable()
        name = f"objects/{self._rng.token()}"
        try:
            self._store.put(name, blob)
        except OSError as error:
            raise self._failed(error) from error
        except BaseException as error:
            self._dead = f"a write failed ({error})"
            raise
        return {"object": name}

    def _failed(self, error: OSError) -> UnavailableError:
        """After a write that may or may not be there, nothing more is written."""
        self._dead = f"a write failed ({error.strerror or error})"
        return UnavailableError(
            f"{self.root}: {self._dead}. The store stays as it was at its last checkpoint: mend that and open it "
            "again."
        )

    def _blob(self, reference: dict[str, str], what: str) -> Packed:
        if "inline" in reference:
            return unpack(base64.b64decode(reference["inline"]), f"{self.root} {what}")
        name = reference["object"]
        try:
            return unpack(self._store.get(name), f"{self.root}/{name} ({what})")
        except FileNotFoundError:
            raise CorruptError(f"{self.root}/{name} ({what}) is missing. Restore it from a copy.") from None

    def _sweep(self, records: list[dict[str, Any]]) -> None:
        """Delete the objects that no record names."""
        named: set[str] = set()
        stack: list[Any] = list(records)
        while stack:
            one = stack.pop()
            if isinstance(one, dict):
                if "object" in one:
                    named.add(one["object"])
                stack += one.values()
            elif isinstance(one, list):
                stack += one
        for name in self._store.list("objects"):
            if name not in named:
                self._store.delete(name)


def _specs(specs: dict[str, Spec]) -> list[dict[str, Any]]:
    return [asdict(spec) for spec in specs.values()]


def _of(raws: list[Raw], name: str) -> list[Raw]:
    return [raw for raw in raws if raw.structure == name]


def whole(cells: Cells) -> Delta:
    """Everything in a structure, as a change from nothing."""
    if isinstance(cells, IntCells):
        keys = cells.ints()
        return IntDelta(keys, (keys * 0).astype("u1"), (keys * 0 + 1).astype("u1"))
    return CellDelta({cell: (None, value) for cell, value in cells.items()})


def contents(reader: Reader) -> Delta:
    """The same of a reader."""
    keys = reader.ints()
    if keys is not None:
        return IntDelta(keys, (keys * 0).astype("u1"), (keys * 0 + 1).astype("u1"))
    return CellDelta({cell: (None, value) for cell, value in reader.items()})


def open_directory(root: str, host: Host, *, read_only: bool) -> Embedded:
    """The embedded store that a directory keeps."""
    try:
        while True:
            owner = Embedded(host.clock)
            journal = DirectoryJournal(root, host, read_only=read_only)
            try:
                journal.open(owner)
                break
            except CorruptError:
                if not journal.moved_on():
                    raise
    except (NotADirectoryError, FileExistsError):
        raise UsageError(f"{root} is a file, and a store is a directory. Name another place.") from None
    except OSError as error:
        raise UnavailableError(
            f"{root} can't be opened: {error.strerror or error}. Mend that and try again."
        ) from None
    owner.journal = journal
    return owner
