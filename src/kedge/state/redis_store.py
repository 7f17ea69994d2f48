"""The backend on Redis 6.2 or newer, or Valkey: plain commands, one writer at a time, current values for everybody.

Every step that must be whole is one transaction behind the fence (`redis_link.py`): a call, a checkpoint, a move to
another version, a fold, a compaction. So a client that dies between any two commands leaves a store that opens to
its last checkpoint plus whole calls.

Invariants:
- A layer at or below a structure's base has every old value of it; layers above may be blind. `fold` completes
  layers and moves the base forwards in the same transaction.
- What is in memory equals what is in Redis while this writer's epoch is the newest.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from kedge.errors import CorruptError, InternalError, UsageError
from kedge.host import Clock
from kedge.state.commands import Raw, Spec, effect
from kedge.state.delta import CellDelta, Delta, chain, completed
from kedge.state.line import Line, Version, groups
from kedge.state.pack import Packed, blind, unpack
from kedge.state.pack import pack as pack_layer
from kedge.state.readers import Overlay, Reader, bounds
from kedge.state.redis_base import Keys, RedisBase
from kedge.state.redis_fold import complete_layers
from kedge.state.redis_layers import RedisLayers
from kedge.state.redis_link import Link, pack
from kedge.state.redis_live import CACHED_MAX, RedisLive

FORMAT = b"1"
BLIND = ("redo", "command")


@dataclass
class Staged:
    """A transaction in the making: commands, and the layers that it rewrites."""

    commands: list[bytes] = field(default_factory=list[bytes])
    layers: dict[int, Packed] = field(default_factory=dict[int, Packed])


class RedisStore:
    """A store on Redis."""

    unsettled = False  # a change and the versions that it drops are one transaction

    def __init__(self, link: Link, name: str, clock: Clock, *, read_only: bool) -> None:
        self.link, self.keys, self._clock = link, Keys(name), clock
        self.layers = RedisLayers(link, self.keys)
        self.specs, self.tick = dict[str, Spec](), 0
        self._live: dict[str, RedisLive] = {}
        self._raws: list[Raw] = []
        _check_server(link)
        if not read_only:
            epoch = b"%d" % link.call(b"INCR", self.keys.epoch)
            link.fence(self.keys.epoch, epoch)
        self._load(read_only)

    # --- opening --------------------------------------------------------------------------------------------------

    def _load(self, read_only: bool) -> None:
        keys = self.keys
        asked = [
            pack(b"HGETALL", keys.meta),
            pack(b"HGETALL", keys.versions),
            pack(b"LRANGE", keys.open, b"0", b"-1"),
        ]
        meta, versions, entries = self.link.moment(asked)
        fields = dict(zip(meta[::2], meta[1::2], strict=True))
        if not fields:
            if read_only:
                raise UsageError(f"There is no {self.link.where}.")
            self.layers.line = Line({0: Version(0, self._clock.now_us())})
            self._create_store()
            return
        if fields[b"format"] != FORMAT:
            raise CorruptError(
                f"{self.link.where}: format {fields[b'format']!r} is newer than this Kedge. Upgrade it."
            )
        self.layers.load_versions(versions[1::2], int(fields[b"at"]), int(fields[b"next"]))
        for name in sorted(fields):
            if name.startswith(b"s:"):
                self._load_structure(json.loads(fields[name]))
        self._load_open(entries)

    def _create_store(self) -> None:
        meta = pack(b"HSET", self.keys.meta, b"format", FORMAT, b"at", b"0", b"next", b"1")
        self.link.transaction([meta, self.layers.version_command(self.line.versions[0], [])])

    def _load_structure(self, record: dict[str, Any]) -> None:
        spec = Spec(*[record[key] for key in ("name", "kind", "type", "values", "scheme")])
        self.specs[spec.name] = spec
        live = RedisLive(spec, self, record["mode"], record["base"])
        self._live[spec.name] = live
        if live.blind:
            live.reload(self.layers.path(spec, live.base_at, self.line.at))

    def _load_open(self, entries: list[bytes]) -> None:
        """The open layer as its writer left it: whole calls in their order."""
        deltas: dict[str, list[Delta]] = {}
        for entry in entries:
            packed = unpack(entry, f"{self.link.where} open layer")
            for name, delta in packed.deltas.items():
                deltas.setdefault(name, []).append(delta)
            for raw in packed.raws:
                if self._live[raw.structure].mode == "command":
                    deltas.setdefault(raw.structure, []).append(effect(self.specs[raw.structure], raw))
            self._raws += packed.raws
        for name, parts in deltas.items():
            self._live[name].restore_open(chain(parts))

    @property
    def line(self) -> Line:
        """The versions that exist, and the current one."""
        return self.layers.line

    def raws(self, number: int) -> list[Raw]:
        """The calls that were logged for a version."""
        return self.layers.raws(number)

    # --- structures -----------------------------------------------------------------------------------------------

    def create(self, spec: Spec) -> None:
        """A new structure; its first layer logs deltas, whatever the scheme, unless it is a blind one."""
        mode = spec.scheme if spec.scheme in BLIND else "track"
        live = RedisLive(spec, self, mode, self.line.at)
        if self.link.call(b"EXISTS", live.base.key):
            key = live.base.key.decode()
            raise UsageError(f"{self.link.where} has a key {key} that is not this store's. Rename one of them.")
        self.link.transaction([self._structure_command(live)])
        self.specs[spec.name], self._live[spec.name] = spec, live

    def live(self, name: str) -> RedisLive:
        """A structure, to read and write."""
        return self._live[name]

    def append(
        self, live: RedisLive, entry: Delta | None, raws: list[Raw], commands: list[bytes], *, changed: bool
    ) -> None:
        """One call: its base commands and its entry in the open list. The first change drops the later versions."""
        staged = list(commands)
        if entry is not None or raws:
            deltas = {} if entry is None else {live.spec.name: entry}
            staged.append(pack(b"RPUSH", self.keys.open, pack_layer(Packed(deltas, raws))))
        later = self.line.later() if changed else []
        self.link.transaction(staged + self.layers.drop_commands(later))
        self._raws += raws
        if changed:
            self.tick += 1
            self.layers.forget(later)

    def switch(self, live: RedisLive, spec: Spec) -> None:
        """Another scheme: leaving a blind mode folds, entering one waits for a layer without changes."""
        if live.blind and spec.scheme not in BLIND:
            self._unblind(live, spec)
            return
        mode, base_at = live.mode, live.base_at
        if mode != "image" and spec.scheme in BLIND and not len(live.local.open()):
            mode, base_at = spec.scheme, base_at if live.blind else self.line.at
        self.link.transaction([self._structure_command(live, mode, base_at, spec)])
        if mode in BLIND and not live.blind:
            live.reload(CellDelta())
        live.spec, live.mode, live.base_at = spec, mode, base_at
        self.specs[spec.name] = spec

    def _unblind(self, live: RedisLive, spec: Spec) -> None:
        """Fold everything, the open layer too, and rewrite the open list with its old values."""
        name, staged = spec.name, Staged()
        numbers = self.line.layers(live.base_at, self.line.at)
        whole = complete_layers(live.base, [*[self.layers.delta(n, live.spec) for n in numbers], live.local.open()])
        self._stage_layers(staged, name, numbers, whole[:-1])
        staged.commands += live.base.write(chain(whole), bounds(live.base))
        opens = {one: part.local.open() for one, part in self._live.items() if part.mode in ("track", "redo")}
        opens[name] = whole[-1]
        kept = {one: delta for one, delta in opens.items() if len(delta)}
        raws = [raw for raw in self._raws if raw.structure != name]
        staged.commands.append(pack(b"DEL", self.keys.open))
        if kept or raws:
            staged.commands.append(pack(b"RPUSH", self.keys.open, pack_layer(Packed(kept, raws))))
        staged.commands.append(self._structure_command(live, "track", self.line.at, spec))
        self._carry_out(staged)
        live.spec, live.mode, live.base_at, self.specs[name] = spec, "track", self.line.at, spec
        live.forget()
        live.restore_open(whole[-1])
        self._raws = raws
        self.tick += 1

    # --- versions -------------------------------------------------------------------------------------------------

    def checkpoint(self, key: str | None) -> Version:
        """Close the open layer: one transaction that sends only packed bytes (and copies, for `full`)."""
        number, later = self.line.next, self.line.later()
        layer, commands, images = Packed(raws=self._raws), self.layers.drop_commands(later), list[str]()
        for name, live in self._live.items():
            if live.mode == "image" or live.spec.scheme == "full":
                images.append(name)
                commands += self._copy(live.base.key, self.keys.image(number, name), live)
            delta = live.local.open()
            if len(delta) and live.mode in ("track", "redo"):
                layer.deltas[name] = blind(delta) if live.blind else delta
        blob = pack_layer(layer)
        cells = sum(len(live.local.open()) for live in self._live.values())
        version = Version(number, self._clock.now_us(), cells, len(blob), key)
        commands += [
            pack(b"HSET", self.keys.layers, b"%d" % number, blob),
            self.layers.version_command(version, images),
            pack(b"HSET", self.keys.meta, b"at", b"%d" % number, b"next", b"%d" % (number + 1)),
            pack(b"DEL", self.keys.open),
        ]
        settled = self._settled(number, images)
        self.link.transaction(commands + [self._structure_command(*one) for one in settled])
        self.layers.forget(later)
        self.layers.remember(number, layer, images)
        self.line.add(version)
        for live in self._live.values():
            live.seal()
        self._settle(settled)
        self._raws = []
        self.tick += 1
        if any(live.blind and live.cached() > CACHED_MAX for live in self._live.values()):
            self.fold()
        return version

    def _settled(self, number: int, images: list[str]) -> list[tuple[RedisLive, str, int]]:
        """The structures whose mode or base changes with a new layer on top of `number`."""
        found: list[tuple[RedisLive, str, int]] = []
        for name, live in self._live.items():
            scheme = live.spec.scheme
            mode = scheme if scheme in BLIND else "image" if scheme == "full" and name in images else "track"
            if mode != live.mode:
                found.append((live, mode, live.base_at if live.blind else number))
        return found

    def _settle(self, settled: list[tuple[RedisLive, str, int]]) -> None:
        for live, mode, base_at in settled:
            if mode in BLIND and not live.blind:
                live.reload(CellDelta())
            live.mode, live.base_at = mode, base_at

    def flush(self) -> None:
        """Nothing to do: every call is in Redis already."""

    def goto(self, version: int) -> None:
        """Discard the open layer and make another version current, in one transaction."""
        self.line.check(version)
        staged = Staged()
        resets: list[tuple[RedisLive, int, str]] = []
        for name, live in self._live.items():
            mode, base_at = self._move(name, live, version, staged)
            resets.append((live, base_at, mode))
            if mode != live.mode or base_at != live.base_at:
                staged.commands.append(self._structure_command(live, mode, base_at))
        staged.commands += [
            pack(b"HSET", self.keys.meta, b"at", b"%d" % version),
            pack(b"DEL", self.keys.open),
        ]
        self._carry_out(staged)
        self.line.at = version
        for live, base_at, mode in resets:
            live.mode, live.base_at = mode, base_at
            if live.blind:
                live.reload(self.layers.path(live.spec, base_at, version))
            else:
                live.forget()
        self._raws = []
        self.tick += 1

    def _move(self, name: str, live: RedisLive, version: int, staged: Staged) -> tuple[str, int]:
        """Stage one structure's way to a version; returns the mode and base that it has there."""
        scheme, at, imaged = live.spec.scheme, self.line.at, name in self.layers.images.get(version, [])
        ends = scheme if scheme in BLIND else "image" if scheme == "full" and imaged else "track"
        if live.blind:
            if version >= live.base_at:
                return ends, live.base_at
            back = self.layers.path(live.spec, version, live.base_at).inverse()
            staged.commands += live.base.write(back, bounds(live.base))
            return ends, version
        if imaged and (scheme == "full" or live.mode == "image"):
            staged.commands += self._copy(self.keys.image(version, name), live.base.key, live)
            return ends, version
        start, base = self._undo_open(name, live, staged)
        if version > at:
            numbers = self.line.layers(at, version)
            whole = complete_layers(base, [self.layers.delta(number, live.spec) for number in numbers])
            self._stage_layers(staged, name, numbers, whole)
            path = chain(whole)
        else:
            path = self.layers.path(live.spec, version, at).inverse()
        staged.commands += live.base.write(chain([start, path]), bounds(base))
        return ends, version

    def _undo_open(self, name: str, live: RedisLive, staged: Staged) -> tuple[Delta, RedisBase]:
        """What leads from the base as it is to the current version; an image is put back at once."""
        if live.mode != "image":
            return live.local.open().inverse(), live.base
        image = self.keys.image(self.line.at, name)
        staged.commands += self._copy(image, live.base.key, live)
        return CellDelta(), RedisBase(live.spec, self.link, self.keys, image)

    def between(self, name: str, start: int, end: int) -> Delta:
        """The net change from one version to another, with every old value."""
        if start > end:
            return self.between(name, end, start).inverse()
        return completed(self.layers.path(self.specs[name], start, end), self._fetch(name, start))

    def _fetch(self, name: str, version: int) -> Any:
        return lambda cells: self.view(name, version).get(cells)

    def view(self, name: str, version: int) -> Reader:
        """A structure at a version: its image, or its base with what lies between."""
        self.line.check(version)
        live = self._live[name]
        if name in self.layers.images.get(version, []):
            return RedisBase(live.spec, self.link, self.keys, self.keys.image(version, name))
        if live.blind:
            if version >= live.base_at:
                return Overlay(live.base, self.layers.path(live.spec, live.base_at, version))
            return Overlay(live.base, self.layers.path(live.spec, version, live.base_at).inverse())
        at = self.line.at
        back = live.local.open().inverse() if live.mode == "track" else CellDelta()
        base: Reader = live.base
        if live.mode == "image":
            base = RedisBase(live.spec, self.link, self.keys, self.keys.image(at, name))
        forwards = version >= at
        path = self.layers.path(live.spec, min(at, version), max(at, version))
        return Overlay(base, chain([back, path if forwards else path.inverse()]))

    # --- compaction -----------------------------------------------------------------------------------------------

    def fold(self) -> None:
        """Bring every base in log mode up to the current version; what is open stays open."""
        staged, at = Staged(), self.line.at
        moved = [live for live in self._live.values() if live.blind and live.base_at < at]
        for live in moved:
            numbers = self.line.layers(live.base_at, at)
            whole = complete_layers(live.base, [self.layers.delta(number, live.spec) for number in numbers])
            self._stage_layers(staged, live.spec.name, numbers, whole)
            staged.commands += live.base.write(chain(whole), bounds(live.base))
            staged.commands.append(self._structure_command(live, base_at=at))
        if not moved:
            return
        self._carry_out(staged)
        for live in moved:
            live.base_at = at
            open_ = live.local.open()
            live.reload(CellDelta())
            live.restore_open(open_)
        self.tick += 1

    def compact(self, stay: list[int]) -> None:
        """Keep only these versions; each takes over the layers of the dropped ones before it."""
        if self.line.at not in stay:
            raise InternalError("compaction would drop the current version")
        self.fold()
        combined = groups(self.line, stay)
        layers = {number: self._combined(number, numbers) for number, numbers in combined.items()}
        dropped = [number for number in self.line.numbers() if number not in stay]
        versions = {number: self.line.versions[number] for number in stay}
        commands = self.layers.drop_commands(dropped)
        if stay[0] in self.line.numbers()[1:]:
            commands.append(pack(b"HDEL", self.keys.layers, b"%d" % stay[0]))
        for number, layer in layers.items():
            if len(combined[number]) > 1:
                blob, cells = pack_layer(layer), sum(map(len, layer.deltas.values()))
                versions[number] = replace(versions[number], cells=cells, bytes=len(blob))
                commands.append(pack(b"HSET", self.keys.layers, b"%d" % number, blob))
                commands.append(self.layers.version_command(versions[number], self.layers.images.get(number, [])))
        self.link.transaction(commands)
        self.layers.cached = layers
        self.layers.images = {number: self.layers.images.get(number, []) for number in stay}
        self.layers.line = Line(versions, self.line.at, self.line.next)
        self.tick += 1

    def _combined(self, number: int, numbers: list[int]) -> Packed:
        if len(numbers) == 1:
            return self.layers.layer(number)
        packed = Packed(raws=[raw for one in numbers for raw in self.layers.layer(one).raws])
        for name, spec in self.specs.items():
            delta = chain(self.layers.delta(one, spec) for one in numbers)
            if len(delta) or any(raw.structure == name for raw in packed.raws):  # else the calls would speak for it
                packed.deltas[name] = delta
        return packed

    # --- pieces of transactions -----------------------------------------------------------------------------------

    def _carry_out(self, staged: Staged) -> None:
        """Do what is staged, with the layers in their new form."""
        for number, layer in staged.layers.items():
            staged.commands.append(pack(b"HSET", self.keys.layers, b"%d" % number, pack_layer(layer)))
        self.link.transaction(staged.commands)
        self.layers.cached.update(staged.layers)

    def _stage_layers(self, staged: Staged, name: str, numbers: list[int], deltas: list[Delta]) -> None:
        """Rewrite layers with the complete deltas of one structure, where that is news."""
        for number, delta in zip(numbers, deltas, strict=True):
            if self.layers.layer(number).deltas.get(name) is delta:
                continue
            layer = staged.layers.get(number) or self.layers.layer(number)
            staged.layers[number] = Packed({**layer.deltas, name: delta}, layer.raws)

    def _copy(self, source: bytes, target: bytes, live: RedisLive) -> list[bytes]:
        """Replace one key by another's contents, also when that is nothing; a list's bounds go along."""
        commands = [pack(b"DEL", target), pack(b"COPY", source, target)]
        if live.spec.kind == "list":
            head, tail = bounds(RedisBase(live.spec, self.link, self.keys, source))
            commands.append(pack(b"HSET", self.keys.bounds, target, b"%d,%d" % (head, tail)))
        return commands

    def _structure_command(
        self, live: RedisLive, mode: str | None = None, base_at: int | None = None, spec: Spec | None = None
    ) -> bytes:
        """What a structure is, in the store's meta; the arguments are what will be."""
        base = live.base_at if base_at is None else base_at
        record = {**asdict(spec or live.spec), "mode": mode or live.mode, "base": base}
        value = json.dumps(record, separators=(",", ":")).encode()
        return pack(b"HSET", self.keys.meta, b"s:" + live.spec.name.encode(), value)

    def close(self) -> None:
        """Close the connection."""
        self.link.close()


def _check_server(link: Link) -> None:
    """Refuse a server that lacks commands which every call needs (COPY, SMISMEMBER, ZMSCORE)."""
    lines = link.call(b"INFO", b"server").splitlines()
    named = [line.partition(b":")[2].decode() for line in lines if line.startswith(b"redis_version:")]
    parts = named[0].split(".")[:2] if named else []
    if len(parts) == 2 and all(part.isdigit() for part in parts) and (int(parts[0]), int(parts[1])) < (6, 2):
        raise UsageError(f"{link.where} is Redis {named[0]}. A store needs 6.2 or newer, or Valkey: upgrade it.")


def open_redis(url: str, clock: Clock, *, read_only: bool, connection: Any = None) -> RedisStore:
    """Open the store that a URL names; `?name=` tells several stores of one database apart."""
    base, _, query = url.replace("valkey://", "redis://", 1).partition("?")
    options: dict[str, str] = dict([part.split("=", 1) for part in query.split("&") if "=" in part])
    name = options.pop("name", "kedge")
    if not name or ":" in name:
        raise UsageError(f"{name!r} can't name a store: use text without ':'.")
    rest = "&".join(f"{key}={value}" for key, value in options.items())
    where = base.rpartition("@")[2] if "@" in base else base
    link = Link(base + ("?" + rest if rest else ""), f"store {name!r} on {where}", connection)
    try:
        return RedisStore(link, name, clock, read_only=read_only)
    except BaseException:
        link.close()
        raise
