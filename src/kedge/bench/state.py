"""`kedge bench state`: versioned structures on Redis and embedded, with the paper's settings and rivals of the run.

The paper's figures 10 and 12-18 are drawn as `state-figureNN.png`. A figure below is a ratio to a rival that took
the same calls in turn on the same server.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from json import dumps
from pathlib import Path
from typing import Any

from kedge.bench import Figure, note
from kedge.bench import _state_embedded as embedded
from kedge.bench import _state_redis as on_redis
from kedge.bench._state_plots import bars
from kedge.bench._state_server import server
from kedge.state.redis_link import TIMEOUT_S


@dataclass(frozen=True)
class Sizes:
    """How large to measure."""

    base: int
    bases: tuple[int, ...]
    size: int
    sizes: tuple[int, ...]
    calls: tuple[int, ...]
    rounds: int
    stored_calls: int
    checkpoints: tuple[int, ...]
    travel_calls: int
    travel_size: int
    read_versions: tuple[int, ...]
    members: int
    versions: int


QUICK = Sizes(
    base=100_000,
    bases=(100_000,),
    size=10_000,
    sizes=(1_000, 10_000),
    calls=(1, 10),
    rounds=3,
    stored_calls=20,
    checkpoints=(1, 5, 10),
    travel_calls=2,
    travel_size=10_000,
    read_versions=(1, 10, 100),
    members=100_000,
    versions=10,
)
WHOLE = Sizes(
    base=1_000_000,
    bases=(100_000, 1_000_000, 10_000_000),
    size=10_000,
    sizes=(1_000, 10_000, 100_000),
    calls=(1, 10, 100),
    rounds=2,
    stored_calls=100,
    checkpoints=(1, 5, 10),
    travel_calls=10,
    travel_size=100_000,
    read_versions=(1, 10, 100, 1_000),
    members=1_000_000,
    versions=10,
)


@dataclass(frozen=True)
class Measured:
    """Everything of one run."""

    logging: on_redis.Adding
    by_calls: list[on_redis.Adding]
    by_size: list[on_redis.Adding]
    by_base: list[on_redis.Adding]
    stored: dict[str, dict[int, dict[str, int]]]
    travels: list[on_redis.Travel]
    reads: list[on_redis.Reads]
    methods: dict[str, float]
    durable: dict[str, dict[str, float]]
    bgsave_ms: float
    rates: dict[str, float]

    @property
    def adding(self) -> list[on_redis.Adding]:
        """Every setting once."""
        found: dict[tuple[int, int, int], on_redis.Adding] = {}
        for one in (*self.by_calls, *self.by_size, *self.by_base):
            found[one.base, one.size, one.calls] = one
        return list(found.values())


REPEATED, DENSE = "half repeated adds, sparse ids", "dense ids, each added once"


def run(quick: bool, out: Path) -> list[Figure]:
    """Measure, draw, and hold the ratios against their aims."""
    sizes = QUICK if quick else WHOLE
    found = _measure(sizes)
    _draw(out, found)
    (out / "state-raw.json").write_text(dumps(asdict(found), indent=1) + "\n")
    return [
        *_writing(sizes, found),
        *_storing(found.stored),
        *_moving(sizes, found),
        *_in_process(sizes, found.rates),
        *_servers(sizes, found),
    ]


def _measure(sizes: Sizes) -> Measured:
    import redis

    with server("no persistence") as path:
        client: Any = redis.Redis(unix_socket_path=path, socket_timeout=TIMEOUT_S)
        on_redis.warm(path, client)
        note("adding: N calls between checkpoints, M members, base sizes")
        adding = cache(partial(_adding, path, client, sizes))
        by_calls = [adding(sizes.base, sizes.size, calls) for calls in sizes.calls]
        by_size = [adding(sizes.base, size, 10) for size in sizes.sizes]
        by_base = [adding(base, sizes.size, 10) for base in sizes.bases]
        logging = adding(sizes.base, sizes.base // 100, 1)  # the paper's 10,000 of 1,000,000
        note("stored bytes")
        stored = {kind: {size: _stored(path, client, sizes, kind, size) for size in sizes.sizes} for kind in _KINDS}
        note("reading and moving after checkpoints")
        travels = [
            on_redis.travel(path, client, sizes.base, sizes.travel_size, sizes.travel_calls, count)
            for count in sizes.checkpoints
        ]
        reads = [on_redis.reads(path, client, sizes.base, 1_000, count) for count in sizes.read_versions]
        methods = on_redis.methods(client, sizes.base, sizes.size, 10)
        bgsave_ms = on_redis.background_save(client)
    note("Redis's own persistence")
    durable: dict[str, dict[str, float]] = {}
    for setting in ("no persistence", "AOF everysec", "AOF always"):
        with server(setting) as path:
            durable[setting] = on_redis.persistence(path, sizes.base, sizes.size, 10)
    note("embedded")
    rates = embedded.rates(sizes.members, sizes.versions)
    return Measured(
        logging, by_calls, by_size, by_base, stored, travels, reads, methods, durable, bgsave_ms, rates
    )  # fmt: skip


_KINDS = {REPEATED: {"repeat": True, "sparse": True}, DENSE: {"repeat": False, "sparse": False}}


def _stored(path: str, client: Any, sizes: Sizes, kind: str, size: int) -> dict[str, int]:
    return on_redis.stored(path, client, on_redis.batches(0, sizes.stored_calls, size, 2, **_KINDS[kind]))


def _adding(path: str, client: Any, sizes: Sizes, base: int, size: int, calls: int) -> on_redis.Adding:
    rounds = sizes.rounds if calls > 1 else 4 * sizes.rounds
    return on_redis.adding(path, client, base, size, calls, rounds)


def _held(figure: str, value: float, unit: str, aim: str, met: bool) -> Figure:
    return Figure(figure, round(value, 4), unit, aim, met)


def _record(figure: str, value: float, unit: str) -> Figure:
    """Worth knowing, and no aim."""
    return Figure(figure, round(value, 4), unit)


def _writing(sizes: Sizes, found: Measured) -> list[Figure]:
    def worst(ours: str, rival: str) -> float:
        return max(one.ms[ours] / one.ms[rival] for one in found.adding)

    def those(values: Sequence[int]) -> str:
        return ", ".join(f"{value:,}" for value in values)

    scale = f"worst of base {those(sizes.bases)}, M {those(sizes.sizes)}, N {those(sizes.calls)}"
    logging = found.logging
    alone = logging.add_ms["full"]  # the base write by the same client, without any log
    share = max(0.0, logging.ms["undo"] - alone) / max(logging.ms["full"] - alone, 1e-9)
    readable = worst("undo", "plain commands")
    elements, plain = worst("redo", "command log by element"), worst("redo", "plain commands")
    lost = sum(one.missing for one in found.reads)
    return [
        _held(f"readable mode / plain commands, {scale}", readable, "x", "<= 1.6", readable <= 1.6),
        _held(
            f"readable mode's logging time / full's, base {logging.base:,}, M {logging.size:,}, N 1",
            share, "x", "<= 0.1", share <= 0.1,
        ),
        _held(f"log mode / element-wise command log, {scale}", elements, "x", "<= 0.5", elements <= 0.5),
        _held(f"log mode / plain commands, {scale}", plain, "x", "<= 0.5", plain <= 0.5),
        _held(
            "log mode's calls that a new client misses (packed open layer; the writer died without a checkpoint)",
            lost, "calls", "0", lost == 0,
        ),
        _record(f"readable mode / {on_redis.PREPACKED}, {scale}", worst("undo", on_redis.PREPACKED), "x"),
        _record(f"log mode / {on_redis.PREPACKED}, {scale}", worst("redo", on_redis.PREPACKED), "x"),
        _record(f"log mode / appending a packed command log, {scale}", worst("redo", "packed command log"), "x"),
    ]  # fmt: skip


def _storing(stored: dict[str, dict[int, dict[str, int]]]) -> list[Figure]:
    figures: list[Figure] = []
    for kind, by_size in stored.items():
        scale = f"{kind}, worst of M {', '.join(f'{size:,}' for size in by_size)}"
        sets = max(one["redo"] / one["redo as sets"] for one in by_size.values())
        packed = max(one["redo"] / one["packed command log"] for one in by_size.values())
        figures += [
            _held(f"stored deltas / redo as sets, {scale}", sets, "x", "<= 0.333", sets <= 1 / 3),
            _held(f"stored deltas / packed command log, {scale}", packed, "x", "< 1", packed < 1),
        ]
    return figures


def _moving(sizes: Sizes, found: Measured) -> list[Figure]:
    last = found.travels[-1]
    reads = max(one.log_ms / one.plain_ms for one in found.reads)
    own = max(last.rollback_ms[name] for name in ("undo", "redo")) / last.write_ms
    readable, log = (last.replay_ms / last.rollback_ms[name] for name in ("undo", "redo"))
    wrong, counts = sum(one.wrong for one in found.travels), ", ".join(str(one.versions) for one in found.reads)
    changed = sizes.travel_size * max(1, sizes.travel_calls // 2) * last.checkpoints
    scale = f"{last.checkpoints} versions, {changed:,} members"
    return [
        _held("versions wrong after rollback, forward or replay, both ways, all schemes, one log",
              wrong, "versions", "0", wrong == 0),
        _held(f"log mode's reads / plain reads, worst of {counts} versions", reads, "x", "<= 2", reads <= 2),
        _held(f"replaying commands / rollback in log mode, {scale}", log, "x", ">= 10", log >= 10),
        _held(f"replaying commands / rollback in readable mode, {scale}", readable, "x", ">= 10", readable >= 10),
        _held(f"rollback of {scale} / those members' own write time", own, "x", "<= 2", own <= 2),
    ]  # fmt: skip


def _in_process(sizes: Sizes, rates: dict[str, float]) -> list[Figure]:
    ours = rates["kedge, undo"]
    copies = ours / rates["Python set, copies"]
    scale = f"{sizes.versions} versions of {sizes.members:,} random members"
    return [
        _held(f"embedded bulk adds with undo, one core, {scale}", ours, "M members/s", ">= 20", ours >= 20),
        _held(f"embedded / Python set with a copy for every version, {scale}", copies, "x", ">= 5", copies >= 5),
        *[
            _record(
                f"embedded / {name}, {scale if 'set' in name else 'a twentieth of the members'}", ours / rate, "x"
            )
            for name, rate in rates.items()
            if name not in ("kedge, undo", "Python set, copies")
        ],
    ]


def _servers(sizes: Sizes, found: Measured) -> list[Figure]:
    """Redis's own ways to be durable."""
    none = found.durable["no persistence"]["plain commands"]
    figures = [
        _record(f"{who} with {setting} / plain commands without, M {sizes.size:,}", ms / none, "x")
        for setting, both in found.durable.items()
        for who, ms in both.items()
        if (who, setting) != ("plain commands", "no persistence")
    ]
    return [*figures, _record("BGSAVE of what figure 10 leaves", found.bgsave_ms, "ms")]


def _draw(out: Path, found: Measured) -> None:
    """The paper's figures, ours in them."""
    by_calls, by_size, by_base, travels = found.by_calls, found.by_size, found.by_base, found.travels
    names = list(by_calls[0].ms)

    def ms(rows: list[on_redis.Adding]) -> dict[str, list[float]]:
        return {name: [row.ms[name] for row in rows] for name in names}

    methods = {name: [ms] for name, ms in found.methods.items()}
    bars(out / "state-figure10.png", "Bringing a base up to date", "ms", [""], methods)
    per_call = "ms per call, with its share of a checkpoint"
    bars(
        out / "state-figure12.png",
        "N calls between checkpoints",
        per_call,
        [f"N {r.calls}" for r in by_calls],
        ms(by_calls),
    )
    shares = {name: [row.checkpoint_share[name] for row in by_calls] for name in on_redis.SCHEMES}
    bars(
        out / "state-figure13.png",
        "Share of checkpoints",
        "of the time",
        [f"N {r.calls}" for r in by_calls],
        shares,
    )
    bars(out / "state-figure14.png", "M members a call", per_call, [f"M {r.size:,}" for r in by_size], ms(by_size))
    stored = found.stored[REPEATED]
    sizes = {name: [float(one[name]) for one in stored.values()] for name in next(iter(stored.values()))}
    bars(
        out / "state-figure15.png", "Stored, half repeated adds", "bytes", [f"M {size:,}" for size in stored], sizes
    )
    bars(out / "state-figure16.png", "Size of the base", per_call, [f"{r.base:,}" for r in by_base], ms(by_base))
    groups = [f"{one.checkpoints} checkpoints" for one in travels]
    reads = {name: [one.read_ms[name] for one in travels] for name in travels[0].read_ms}
    bars(out / "state-figure17.png", "Reading one member", "ms", groups, reads)
    moves = {name: [one.rollback_ms[name] for one in travels] for name in travels[0].rollback_ms}
    moves["replaying commands"] = [one.replay_ms for one in travels]
    moves["the members' own write"] = [one.write_ms for one in travels]
    bars(out / "state-figure18.png", "Rollback to the base", "ms", groups, moves)
