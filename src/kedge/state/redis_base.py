"""A structure's base on Redis: an ordinary set, hash, string, list or sorted set, read and written in cells.

Key naming (`kedge` is the store's name, from `?name=`):

    kedge:<structure>          the current value, for every client (in log mode: the value at the structure's base)
    kedge::epoch               who may write
    kedge::meta                hash: format, at, next, and s:<structure> with what it is
    kedge::versions            hash: number -> when, how much, which images
    kedge::layers              hash: number -> packed net changes and calls
    kedge::open                list: the packed changes since the last checkpoint, one entry a call
    kedge::bounds              hash: a list's key -> its head and tail positions
    kedge::image:<n>:<name>    a structure as it was at version n (scheme `full`)

No structure's name starts with a colon, so its key is nobody else's.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kedge.state.commands import Spec
from kedge.state.delta import PRESENT, CellDelta, Delta, Flags, IntDelta, Ints, cells_of
from kedge.state.listplan import HEAD, TAIL, bound, bound_cell, plan
from kedge.state.redis_link import ARGUMENTS_MAX, Link, pack, pack_ints, pack_many

_EDGES = (HEAD, TAIL)


class Keys:
    """The names of a store's keys."""

    def __init__(self, name: str) -> None:
        root = name.encode()
        self._root = root
        self.epoch, self.meta, self.versions = root + b"::epoch", root + b"::meta", root + b"::versions"
        self.layers, self.open, self.bounds = root + b"::layers", root + b"::open", root + b"::bounds"

    def value(self, name: str) -> bytes:
        """Where a structure's base is."""
        return self._root + b":" + name.encode()

    def image(self, number: int, name: str) -> bytes:
        """Where its image of a version is."""
        return self._root + b"::image:%d:" % number + name.encode()


class RedisBase:
    """A structure under one key, read as cells."""

    def __init__(self, spec: Spec, link: Link, keys: Keys, key: bytes | None = None) -> None:
        self.spec, self._link, self._keys = spec, link, keys
        self.key = key if key is not None else keys.value(spec.name)

    def get(self, cells: list[bytes]) -> list[bytes | None]:
        """What each cell holds."""
        if not cells:
            return []
        if self.spec.kind == "list":
            return self._get_list(cells)
        if self.spec.kind == "counter":
            return [self._link.call(b"GET", self.key)] * len(cells)
        verb = {"set": b"SMISMEMBER", "map": b"HMGET", "sorted_set": b"ZMSCORE"}[self.spec.kind]
        found = [one for answer in self._link.calls(pack_many([verb, self.key], cells)) for one in answer]
        if self.spec.kind == "set":
            return [PRESENT if one else None for one in found]
        return [_score(one) if self.spec.kind == "sorted_set" else one for one in found]

    def get_ints(self, keys: Ints) -> Flags:
        """Membership of integers."""
        out: list[Flags] = [np.empty(0, np.uint8)]
        for at, command in enumerate(pack_ints([b"SMISMEMBER", self.key], keys)):
            out.append(self._link.flags(command, min(ARGUMENTS_MAX, len(keys) - at * ARGUMENTS_MAX)))
        return np.concatenate(out)

    def count(self) -> int:
        """How many cells there are."""
        verbs = {"set": b"SCARD", "map": b"HLEN", "counter": b"EXISTS", "list": b"LLEN", "sorted_set": b"ZCARD"}
        return int(self._link.call(verbs[self.spec.kind], self.key))

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """All cells."""
        kind, call = self.spec.kind, self._link.call
        if kind == "set":
            return iter([(cell, PRESENT) for cell in call(b"SMEMBERS", self.key)])
        if kind == "counter":
            value = call(b"GET", self.key)
            return iter([] if value is None else [(b"", value)])
        if kind == "list":
            head, tail = self.bounds()
            values = call(b"LRANGE", self.key, b"0", b"-1")
            edges = [(cell, value) for cell, value in ((HEAD, bound_cell(head)), (TAIL, bound_cell(tail))) if value]
            return iter([*edges, *[(b"%d" % at, value) for at, value in enumerate(values, head)]])
        flat = (
            call(b"HGETALL", self.key) if kind == "map" else call(b"ZRANGE", self.key, b"0", b"-1", b"WITHSCORES")
        )
        pairs = zip(flat[::2], flat[1::2], strict=True)
        return iter([(cell, value if kind == "map" else _score(value) or b"") for cell, value in pairs])

    def ints(self) -> Ints | None:
        """All members, when they are integers."""
        if self.spec.kind != "set" or self.spec.type not in ("any", "int"):
            return None
        members = self._link.call(b"SMEMBERS", self.key)
        try:
            found = np.array(members or [], np.bytes_).astype(np.int64) if members else np.empty(0, np.int64)
        except (ValueError, OverflowError):
            return None
        return (
            found if all(text == b"%d" % key for text, key in zip(members, found.tolist(), strict=True)) else None
        )

    def bounds(self) -> tuple[int, int]:
        """A list's head and tail."""
        value = self._link.call(b"HGET", self._keys.bounds, self.key)
        head, tail = (value or b"0,0").split(b",")
        return int(head), int(tail)

    def _get_list(self, cells: list[bytes]) -> list[bytes | None]:
        head, tail = self.bounds()
        places = [int(cell) for cell in cells if cell not in (HEAD, TAIL)]
        inside = [at for at in places if head <= at < tail]
        found: dict[int, bytes] = {}
        if inside:
            low, high = min(inside), max(inside)
            if high - low < 4 * len(inside) + 16:
                values = self._link.call(b"LRANGE", self.key, b"%d" % (low - head), b"%d" % (high - head))
                found = dict(enumerate(values, low))
            else:
                asked = [pack(b"LINDEX", self.key, b"%d" % (at - head)) for at in inside]
                found = dict(zip(inside, self._link.calls(asked), strict=True))
        edges = {HEAD: bound_cell(head), TAIL: bound_cell(tail)}
        return [edges[cell] if cell in edges else found.get(int(cell)) for cell in cells]

    # --- writing --------------------------------------------------------------------------------------------------

    def write(self, delta: Delta, bounds: tuple[int, int] = (0, 0)) -> list[bytes]:
        """The commands that leave what `delta` leaves; `bounds` are a list's before it."""
        if not len(delta):
            return []
        if isinstance(delta, IntDelta):
            gone = pack_ints([b"SREM", self.key], delta.where(0))
            return gone + pack_ints([b"SADD", self.key], delta.where(1))
        if self.spec.kind == "list":
            return self._write_list(delta, bounds)
        return self._write_cells(cells_of(delta))

    def _write_cells(self, delta: CellDelta) -> list[bytes]:
        news = {cell: new for cell, (_, new) in delta.changes.items() if new is not None}
        gone = [cell for cell, (_, new) in delta.changes.items() if new is None]
        if self.spec.kind == "counter":
            return [pack(b"SET", self.key, news[b""])] if news else [pack(b"DEL", self.key)]
        remove, add = {
            "set": (b"SREM", b"SADD"),
            "map": (b"HDEL", b"HSET"),
            "sorted_set": (b"ZREM", b"ZADD"),
        }[self.spec.kind]
        if self.spec.kind == "set":
            pairs, step = list(news), 1
        elif self.spec.kind == "map":
            pairs, step = [part for pair in news.items() for part in pair], 2
        else:
            pairs, step = [part for cell, score in news.items() for part in (score, cell)], 2
        return pack_many([remove, self.key], gone) + pack_many([add, self.key], pairs, step)

    def _write_list(self, delta: CellDelta, bounds: tuple[int, int]) -> list[bytes]:
        moves = plan(delta, *bounds)
        commands: list[bytes] = []
        if moves.kept == 0:
            commands.append(pack(b"DEL", self.key))
        elif moves.cut_left or moves.cut_right:
            commands.append(pack(b"LTRIM", self.key, b"%d" % moves.cut_left, b"%d" % (-1 - moves.cut_right)))
        commands += [pack(b"LSET", self.key, b"%d" % at, value) for at, value in moves.set_at]
        commands += pack_many([b"LPUSH", self.key], moves.left)
        commands += pack_many([b"RPUSH", self.key], moves.right)
        head, tail = bounds_after(delta, bounds)
        return [*commands, pack(b"HSET", self._keys.bounds, self.key, b"%d,%d" % (head, tail))]


def bounds_after(delta: Delta, before: tuple[int, int]) -> tuple[int, int]:
    """A list's head and tail after a delta."""
    changes = cells_of(delta).changes
    head, tail = (
        bound(changes[cell][1]) if cell in changes else old for cell, old in zip(_EDGES, before, strict=True)
    )
    return head, tail


def _score(value: bytes | None) -> bytes | None:
    """Redis's text of a score as ours."""
    return None if value is None else repr(float(value) + 0.0).encode()
