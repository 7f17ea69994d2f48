"""What the state benchmark does on Redis: contenders that take the same calls in turn, and what each one costs.

Every contender gets the same batches of members. They take turns, call by call, so that a slow moment of the
machine hits all of them; a figure is a ratio of medians from one run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from statistics import mean, median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kedge.state import Store, open_store
from kedge.state.redis_link import TIMEOUT_S, Link, pack_ints

SCHEMES = ("full", "command", "undo", "redo")
PREPACKED = "plain commands, packed like ours"
Ints = NDArray[np.int64]


@dataclass
class Contender:
    """Somebody who adds members and makes versions."""

    name: str
    add: Callable[[Ints, list[int]], Any]
    checkpoint: Callable[[], Any] = lambda: None
    add_ms: list[float] = field(default_factory=list[float])
    checkpoint_ms: list[float] = field(default_factory=list[float])

    def per_call_ms(self, calls: int) -> float:
        """The paper's normal computing time: calls and one checkpoint, per call."""
        return median(self.add_ms) + median(self.checkpoint_ms) / calls


def timed(call: Callable[[], Any]) -> float:
    """Milliseconds."""
    start = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - start) / 1e6


def ours(path: str, scheme: str, base: int, name: str) -> tuple[Store, Contender]:
    """A store with a base set at version 1, in one scheme; in log mode the base is folded, as it is in use."""
    store = open_store(f"unix://{path}?name={name}", scheme=scheme)
    members = store.set("k", "int")
    members.update(np.arange(base))
    store.checkpoint()
    if scheme in ("redo", "command"):
        store.compact(count=1)
    return store, Contender(scheme, lambda ints, _: members.update(ints), store.checkpoint)


def rivals(client: Any, base: int) -> list[Contender]:
    """Plain commands (by redis-py, and by our own packing), the two command logs, the paper's redo with sets."""
    for start in range(0, base, 100_000):
        client.sadd("plain", *range(start, min(base, start + 100_000)))
    client.copy("plain", "prepacked")
    link = Link(f"unix://{client.connection_pool.connection_kwargs['path']}", "the plain commands")
    version = [0]

    def redo_sets(_: Ints, members: list[int]) -> None:
        pipe = client.pipeline(transaction=False)
        pipe.srem(f"R{version[0]}", *members)
        pipe.sadd(f"A{version[0]}", *members)
        pipe.execute()

    def next_version() -> None:
        version[0] += 1

    return [
        Contender("plain commands", lambda _, members: client.sadd("plain", *members)),
        Contender(PREPACKED, lambda ints, _: link.calls(pack_ints([b"SADD", b"prepacked"], ints))),
        Contender("command log by element", lambda _, members: client.rpush("elements", *members)),
        Contender("packed command log", lambda ints, _: client.rpush("packed", _narrow(ints).tobytes())),
        Contender("redo as sets", redo_sets, next_version),
    ]


def _narrow(ints: Ints) -> NDArray[np.signedinteger[Any]]:
    """Four bytes a member where they are enough."""
    return ints.astype(np.int32) if int(ints.max()) < 1 << 31 else ints


def batches(
    base: int, count: int, size: int, seed: int, *, repeat: bool = False, sparse: bool = False
) -> list[Ints]:
    """New members in random order, dense or not; with `repeat`, half of the calls add the last batch again."""
    rng = np.random.default_rng(seed)
    start = base + seed * 1_000_000_000 % 2**40
    distinct = max(1, count // 2 if repeat else count)
    made = [start + at * size + rng.permutation(size) for at in range(distinct)]
    if sparse:
        made = [rng.integers(base, 1 << 40, size) for _ in range(distinct)]
    return [made[min(at, len(made) - 1)] for at in range(count)]


def race(contenders: list[Contender], calls: list[Ints], per_checkpoint: int) -> None:
    """All contenders take each call in turn, and a checkpoint after every `per_checkpoint`."""
    for number, ints in enumerate(calls, 1):
        members = ints.tolist()
        for contender in contenders:
            contender.add_ms.append(timed(partial(contender.add, ints, members)))
        if number % per_checkpoint == 0:
            for contender in contenders:
                contender.checkpoint_ms.append(timed(contender.checkpoint))


@dataclass(frozen=True)
class Adding:
    """One setting of figures 12-16: milliseconds per call by contender, and the checkpoint's share."""

    base: int
    size: int
    calls: int
    ms: dict[str, float]
    add_ms: dict[str, float]
    checkpoint_share: dict[str, float]


def adding(path: str, client: Any, base: int, size: int, calls: int, rounds: int) -> Adding:
    """N calls of M new members and a checkpoint, `rounds` times."""
    client.flushall()
    stores = [ours(path, scheme, base, f"{scheme}{base}") for scheme in SCHEMES]
    contenders = [*rivals(client, base), *[contender for _, contender in stores]]
    race(contenders, batches(base, calls * rounds, size, 1), calls)
    for store, _ in stores:
        store.close()
    ms = {one.name: one.per_call_ms(calls) for one in contenders}
    share = {one.name: median(one.checkpoint_ms) / calls / ms[one.name] for one in contenders}
    return Adding(base, size, calls, ms, {one.name: median(one.add_ms) for one in contenders}, share)


def stored(path: str, client: Any, work: list[Ints]) -> dict[str, int]:
    """Bytes in Redis for these calls and one checkpoint: what a log costs, without the base (figure 15)."""
    client.flushall()
    sizes: dict[str, int] = {}
    race(rivals(client, 0), work, len(work))
    keys = {"plain commands": "plain", "command log by element": "elements", "packed command log": "packed"}
    for name, key in keys.items():
        sizes[name] = _bytes(client, key)
    sizes["redo as sets"] = _bytes(client, "A0", "R0")
    for scheme in SCHEMES:
        store, contender = ours(path, scheme, 0, f"size{scheme}")
        race([contender], work, len(work))
        images = client.scan_iter(f"size{scheme}::image:*")
        sizes[scheme] = _bytes(client, f"size{scheme}::layers", f"size{scheme}::versions", *images)
        store.close()
    return sizes


def _bytes(client: Any, *keys: str) -> int:
    return sum(int(client.memory_usage(key, samples=0) or 0) for key in keys)


@dataclass(frozen=True)
class Travel:
    """Reading and moving after some checkpoints (figures 17 and 18), in milliseconds."""

    checkpoints: int
    read_ms: dict[str, float]
    rollback_ms: dict[str, float]
    forward_ms: dict[str, float]
    write_ms: float  # the changed members' own write time: plain SREM of them
    replay_ms: float  # the commands replayed from an element-wise log, after a copy of the base
    wrong: int  # versions that were not exactly what they should be


def travel(path: str, client: Any, base: int, size: int, calls: int, checkpoints: int) -> Travel:
    """Some checkpoints of N calls each, then reads, and the way back to the base and forth again."""
    client.flushall()
    work = [ints for number in range(checkpoints) for ints in batches(base, calls, size, 3 + number, repeat=True)]
    changed = [work[at] for at in range(0, len(work), calls) for at in range(at, at + calls // 2)]
    plain, elements = (
        one for one in rivals(client, base) if one.name in ("plain commands", "command log by element")
    )
    client.copy("plain", "base")
    race([plain, elements], work, calls)
    probes = [int(work[at % len(work)][at % size]) if at % 2 else at for at in range(200)]
    read_ms = {"plain commands": mean(timed(partial(client.sismember, "plain", probe)) for probe in probes)}
    rollback_ms, forward_ms, wrong = dict[str, float](), dict[str, float](), 0
    for scheme in SCHEMES:
        store, contender = ours(path, scheme, base, f"t{scheme}")
        start = store.version
        race([contender], work, calls)
        members = store.set("k")
        read_ms[scheme] = mean(timed(partial(members.__contains__, probe)) for probe in probes)
        end = store.version
        back, forth = list[float](), list[float]()
        for _ in range(5):
            back.append(timed(partial(store.rollback, start)))
            wrong += len(members) != base or bool(members.contains(np.concatenate(work)).any())
            forth.append(timed(partial(store.forward, end)))
        rollback_ms[scheme], forward_ms[scheme] = median(back), median(forth)
        wrong += len(members) != base + size * len(changed) or not members.contains(np.concatenate(work)).all()
        wrong += not all(members.contains(np.arange(0, base, 7)))
        for first, last, verb in ((start, end, "add"), (end, start, "discard")):
            net = store.replay(first, last)
            wrong += {one.verb for one in net} != {verb}
            wrong += sum(len(one.arguments) for one in net) != size * len(changed)
        store.close()
    replay_ms = median(timed(lambda: _replay(client, size)) for _ in range(3))
    write_ms = sum(timed(partial(client.srem, "plain", *ints.tolist())) for ints in changed)
    return Travel(checkpoints, read_ms, rollback_ms, forward_ms, write_ms, replay_ms, int(wrong))


def _replay(client: Any, size: int) -> None:
    """What a command log does to come back: start from the base and run every command up to there again."""
    client.copy("base", "replayed", replace=True)
    total = client.llen("elements")
    for at in range(0, total, size):
        client.sadd("replayed", *client.lrange("elements", at, at + size - 1))


@dataclass(frozen=True)
class Reads:
    """Reading one member in log mode after some versions, by a client that has just come."""

    versions: int
    plain_ms: float
    log_ms: float
    missing: int  # calls of the client before it, which never closed, that this one does not find


def reads(path: str, client: Any, base: int, size: int, versions: int) -> Reads:
    """Versions that are not folded, some calls that no checkpoint has sealed, and then a new client."""
    client.flushall()
    store, contender = ours(path, "redo", base, "reads")
    work = batches(base, versions + 20, size, 7)
    race([contender], work[:versions], 1)
    race([contender], work[versions:], 1_000_000)  # these are in the open layer only
    again = open_store(f"unix://{path}?name=reads")  # the first client is gone without a word
    members = again.set("k")
    wanted = np.concatenate(work)
    missing = sum(not members.contains(ints).all() for ints in work) + (len(members) != base + len(wanted))
    client.sadd("plain", *range(0, base, max(1, base // 1_000)))
    pick = np.random.default_rng(1).permutation(len(wanted))[:200].tolist()
    probes = [int(wanted[at]) if at % 2 else at % base for at in pick]
    plain_ms, log_ms = list[float](), list[float]()
    for probe in probes:
        plain_ms.append(timed(partial(client.sismember, "plain", probe)))
        log_ms.append(timed(partial(members.__contains__, probe)))
    again.close()
    store.close()
    return Reads(versions, mean(plain_ms), mean(log_ms), int(missing))


def methods(client: Any, base: int, size: int, layers: int) -> dict[str, float]:
    """Figure 10: a base brought up to date by its union with every layer, by one union of layers, by the net."""
    client.flushall()
    for start in range(0, base, 100_000):
        client.sadd("B", *range(start, min(base, start + 100_000)))
    for layer in range(layers):
        client.sadd(f"A{layer}", *range(base + layer * size, base + (layer + 1) * size))
    client.copy("B", "net")

    def one_by_one() -> None:
        client.copy("B", "one", replace=True)
        for layer in range(layers):
            client.sunionstore("one", "one", f"A{layer}")

    def layers_first() -> None:
        client.sunionstore("all", *[f"A{layer}" for layer in range(layers)])
        client.sunionstore("two", "B", "all")

    def net() -> None:
        client.sadd("net", *range(base, base + layers * size))

    return {
        "method 1: base with every layer": timed(one_by_one),
        "method 2: layers, then base": timed(layers_first),
        "net change into the base (ours)": timed(net),
    }


def persistence(path: str, base: int, size: int, calls: int) -> dict[str, float]:
    """Milliseconds per call of plain commands and of log mode on a server with this setting."""
    import redis

    client: Any = redis.Redis(unix_socket_path=path, socket_timeout=TIMEOUT_S)
    plain = rivals(client, base)[0]
    store, log = ours(path, "redo", base, "durable")
    race([plain, log], batches(base, calls, size, 9), calls)
    store.close()
    client.close()
    return {"plain commands": median(plain.add_ms), "log mode": median(log.add_ms)}


def warm(path: str, client: Any) -> None:
    """Compile every kernel and load every script once, before anything is timed."""
    adding(path, client, 1_000, 100, 3, 2)
    travel(path, client, 1_000, 100, 4, 2)


def background_save(client: Any) -> float:
    """Milliseconds until a BGSAVE is done."""

    def save() -> None:
        client.bgsave()
        while client.info("persistence")["rdb_bgsave_in_progress"]:
            time.sleep(0.002)

    return timed(save)
