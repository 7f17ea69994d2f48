"""The versions of a store on Redis and their layers: what is on the line, what is stored for each, and where.

Invariants: `line`, `images` and what is cached equal what is in Redis while this writer's epoch is the newest. An
image-only layer (scheme `full`) stands between two images; its delta is their difference.
"""

from __future__ import annotations

import json

from kedge.errors import CorruptError
from kedge.state.commands import Raw, Spec, effect
from kedge.state.delta import CellDelta, Delta, chain
from kedge.state.line import Line, Version
from kedge.state.pack import Packed, unpack
from kedge.state.redis_base import Keys, RedisBase
from kedge.state.redis_fold import difference
from kedge.state.redis_link import Link, pack

CACHED_MAX = 256  # layers kept in memory


class RedisLayers:
    """Versions, layers and images."""

    def __init__(self, link: Link, keys: Keys) -> None:
        self.link, self.keys = link, keys
        self.line = Line()
        self.images: dict[int, list[str]] = {}
        self.cached: dict[int, Packed] = {}

    def load_versions(self, values: list[bytes], at: int, following: int) -> None:
        found: list[tuple[Version, list[str]]] = []
        for value in values:
            record = json.loads(value)
            found.append(
                (Version(*[record[k] for k in ("number", "at_us", "cells", "bytes", "key")]), record["images"])
            )
        found.sort(key=lambda pair: pair[0].number)
        self.line = Line({version.number: version for version, _ in found}, at, following)
        self.images = {version.number: images for version, images in found}

    def path(self, spec: Spec, start: int, end: int) -> Delta:
        """The net change forwards; old values may be missing above the base."""
        self.fetch(self.line.layers(start, end))
        return chain(self.delta(number, spec) for number in self.line.layers(start, end))

    def delta(self, number: int, spec: Spec) -> Delta:
        """What one version changed in a structure."""
        layer, name, keys = self.layer(number), spec.name, self.keys
        if name in layer.deltas:
            return layer.deltas[name]
        raws = [effect(spec, raw) for raw in layer.raws if raw.structure == name]
        if raws:
            return chain(raws)
        before = self.line.before(number)
        if before is None or name not in self.images.get(number, []) or name not in self.images.get(before, []):
            return CellDelta()
        old = RedisBase(spec, self.link, keys, keys.image(before, name))
        return difference(old, RedisBase(spec, self.link, keys, keys.image(number, name)))

    def layer(self, number: int) -> Packed:
        """What is stored for a version."""
        if number not in self.cached:
            blob = self.link.call(b"HGET", self.keys.layers, b"%d" % number)
            if blob is None:
                raise CorruptError(
                    f"{self.link.where}: layer {number} is missing. Restore it, or roll back below it."
                )
            self.cached[number] = unpack(blob, f"{self.link.where} layer {number}")
        return self.cached[number]

    def remember(self, number: int, layer: Packed, images: list[str]) -> None:
        """A new version's layer; the oldest ones in memory make room for it."""
        self.cached[number], self.images[number] = layer, images
        while len(self.cached) > CACHED_MAX:
            del self.cached[next(iter(self.cached))]

    def fetch(self, numbers: list[int]) -> None:
        """Several layers in one answer."""
        asked = [number for number in numbers if number not in self.cached]
        if len(asked) > 1:
            blobs = self.link.call(b"HMGET", self.keys.layers, *[b"%d" % number for number in asked])
            for number, blob in zip(asked, blobs, strict=True):
                if blob is not None:
                    self.cached[number] = unpack(blob, f"{self.link.where} layer {number}")

    def raws(self, number: int) -> list[Raw]:
        """The calls that were logged for a version."""
        return self.layer(number).raws

    def drop_commands(self, numbers: list[int]) -> list[bytes]:
        if not numbers:
            return []
        fields = [b"%d" % number for number in numbers]
        commands = [pack(b"HDEL", self.keys.layers, *fields), pack(b"HDEL", self.keys.versions, *fields)]
        images = [self.keys.image(number, name) for number in numbers for name in self.images.get(number, [])]
        if images:
            commands += [pack(b"UNLINK", *images), pack(b"HDEL", self.keys.bounds, *images)]
        return commands

    def forget(self, numbers: list[int]) -> None:
        for number in numbers:
            self.cached.pop(number, None)
            self.images.pop(number, None)
        self.line.drop(numbers)

    def version_command(self, version: Version, images: list[str]) -> bytes:
        record = json.dumps({**version.to_json(), "images": images}, separators=(",", ":"))
        return pack(b"HSET", self.keys.versions, b"%d" % version.number, record.encode())
