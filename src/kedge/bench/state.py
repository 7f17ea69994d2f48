"""`kedge bench state`: versioned structures on Redis and embedded, with the paper's settings and rivals of the run.

The paper's figures 10 and 12-18 are drawn as `state-figureNN.png`. A figure below is a ratio to a rival that took
the same calls in turn on the same server.
"""

from __future__ import annotations

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


@dataclass(frozen=True)
class Sizes:
    """How large to measure."""

    base: int
    bases: tuple[int, ...]
    size: int
    sizes: tuple[int, ...]
    calls: tuple[int, ...]
    rounds: int
    checkpoints: tuple[int, ...]
    travel_calls: int
    travel_size: int
    members: int
    versions: int


QUICK = Sizes(100_000, (100_000,), 10_000, (1_000, 10_000), (1, 10), 1, (1, 5, 10), 2, 10_000, 100_000, 10)
WHOLE = Sizes(
    1_000_000,
    (100_000, 1_000_000, 10_000_000),
    10_000,
    (1_000, 10_000, 100_000),
    (1, 10, 100),
    2,
    (1, 5, 10),
    10,
    100_000,
    1_000_000,
    10,
)


_RECORD = "none, for the record"


def run(quick: bool, out: Path) -> list[Figure]:
    """Measure, draw, and hold the ratios against their aims."""
    import redis

    sizes = QUICK if quick else WHOLE
    with server("no persistence") as path:
        client: Any = redis.Redis(unix_socket_path=path)
        note("adding: N calls between checkpoints, M members, base sizes")
        adding = cache(partial(_adding, path, client, sizes))
        by_calls = [adding(sizes.base, sizes.size, calls) for calls in sizes.calls]
        by_size = [adding(sizes.base, size, 10) for size in sizes.sizes]
        by_base = [adding(base, sizes.size, 10) for base in sizes.bases]
        logging = adding(sizes.base, sizes.base // 100, 1)  # the paper's 10,000 of 1,000,000
        note("stored bytes")
        stored = {size: on_redis.stored(path, client, size, 100 if not quick else 20) for size in sizes.sizes}
        note("reading and moving after checkpoints")
        travels = [
            on_redis.travel(path, client, sizes.base, sizes.travel_size, sizes.travel_calls, count)
            for count in sizes.checkpoints
        ]
        methods = on_redis.methods(client, sizes.base, sizes.size, 10)
        bgsave_ms = on_redis.background_save(client)
    note("Redis's own persistence")
    durable: dict[str, float] = {"BGSAVE (once, after figure 10)": bgsave_ms}
    for setting in ("no persistence", "AOF everysec", "AOF always"):
        with server(setting) as path:
            durable[setting] = on_redis.persistence(path, sizes.base, sizes.size, 10)
    note("embedded")
    rates = embedded.rates(sizes.members, sizes.versions)
    _draw(out, by_calls, by_size, by_base, stored, travels, methods)
    raw = {
        "adding": [asdict(one) for one in (*by_calls, *by_size, *by_base)],
        "stored": stored,
        "travel": [asdict(one) for one in travels],
        "figure10": methods,
        "plain_ms_by_persistence": durable,
        "embedded_millions": rates,
    }
    (out / "state-raw.json").write_text(dumps(raw, indent=1) + "\n")
    return [
        *_writing(sizes, logging, by_size),
        *_storing(stored),
        *_moving(sizes, travels),
        *_in_process(sizes, rates),
    ]


def _adding(path: str, client: Any, sizes: Sizes, base: int, size: int, calls: int) -> on_redis.Adding:
    rounds = sizes.rounds if calls > 1 else max(4, sizes.rounds)
    return on_redis.adding(path, client, base, size, calls, rounds)


def _held(figure: str, value: float, unit: str, aim: str, met: bool) -> Figure:
    return Figure(figure, round(value, 4), unit, aim, met)


def _writing(sizes: Sizes, logging: on_redis.Adding, by_size: list[on_redis.Adding]) -> list[Figure]:
    def worst(ours: str, rival: str) -> float:
        return max(one.ms[ours] / one.ms[rival] for one in by_size)

    scale = f"base {sizes.base:,}, M {' and '.join(f'{size:,}' for size in sizes.sizes)}"
    alone = logging.add_ms["full"]  # the base write by the same client, without any log
    share = max(0.0, logging.ms["undo"] - alone) / max(logging.ms["full"] - alone, 1e-9)
    readable = worst("undo", "plain commands")
    elements, plain = worst("redo", "command log by element"), worst("redo", "plain commands")
    appends = worst("redo", "packed command log")
    return [
        _held(f"readable mode / plain commands, worst of {scale}", readable, "x", "<= 1.6", readable <= 1.6),
        _held(
            f"readable mode's logging time / full's, base {logging.base:,}, M {logging.size:,}, N 1",
            share, "x", "<= 0.1", share <= 0.1,
        ),
        _held(f"log mode / element-wise command log, worst of {scale}", elements, "x", "<= 0.5", elements <= 0.5),
        _held(f"log mode / plain commands, worst of {scale}", plain, "x", "<= 0.5", plain <= 0.5),
        _held(f"log mode / appending a packed command log, worst of {scale}", appends, "x", _RECORD, True),
    ]  # fmt: skip


def _storing(stored: dict[int, dict[str, int]]) -> list[Figure]:
    sets = max(one["redo"] / one["redo as sets"] for one in stored.values())
    packed = max(one["redo"] / one["packed command log"] for one in stored.values())
    scale = f"half repeated adds, M {' and '.join(f'{size:,}' for size in stored)}"
    return [
        _held(f"stored deltas / redo as sets, {scale}", sets, "x", "<= 0.333", sets <= 1 / 3),
        _held(f"stored deltas / packed command log, {scale}", packed, "x", "< 1", packed < 1),
    ]


def _moving(sizes: Sizes, travels: list[on_redis.Travel]) -> list[Figure]:
    last = travels[-1]
    reads = max(one.read_ms["redo"] / one.read_ms["plain commands"] for one in travels)
    own = max(last.rollback_ms[name] for name in ("undo", "redo")) / last.write_ms
    readable, log = (last.replay_ms / last.rollback_ms[name] for name in ("undo", "redo"))
    wrong, counts = sum(one.wrong for one in travels), ", ".join(str(one.checkpoints) for one in travels)
    changed = sizes.travel_size * (sizes.travel_calls // 2) * last.checkpoints
    scale = f"{last.checkpoints} versions, {changed:,} members"
    return [
        _held("wrong versions after rollback, forward and replay, all schemes", wrong, "versions", "0", wrong == 0),
        _held(
            f"log mode's reads / plain reads, worst of {counts} versions",
            reads, "x", "<= 2", reads <= 2,
        ),
        _held(f"replaying commands / rollback in log mode, {scale}", log, "x", ">= 10", log >= 10),
        _held(f"replaying commands / rollback in readable mode, {scale}", readable, "x", ">= 10", readable >= 10),
        _held(f"rollback of {scale} / those members' own write time", own, "x", "<= 2", own <= 2),
    ]  # fmt: skip


def _in_process(sizes: Sizes, rates: dict[str, float]) -> list[Figure]:
    ours = rates["kedge, undo"]
    faster = ours / rates["Python set, pickled copies"]
    scale = f"{sizes.versions} versions of {sizes.members:,} random members"
    lmdb, sqlite = (ours / rates[f"{name}, a transaction a version"] for name in ("LMDB", "SQLite"))
    return [
        _held(f"embedded bulk adds with undo, one core, {scale}", ours, "M members/s", ">= 20", ours >= 20),
        _held(f"embedded / Python set with pickled copies, {scale}", faster, "x", ">= 5", faster >= 5),
        _held("embedded / LMDB with a log, a twentieth of the members", lmdb, "x", _RECORD, True),
        _held("embedded / SQLite, a twentieth of the members", sqlite, "x", _RECORD, True),
    ]


def _draw(
    out: Path,
    by_calls: list[on_redis.Adding],
    by_size: list[on_redis.Adding],
    by_base: list[on_redis.Adding],
    stored: dict[int, dict[str, int]],
    travels: list[on_redis.Travel],
    methods: dict[str, float],
) -> None:
    """The paper's figures, ours in them."""
    names = list(by_calls[0].ms)

    def ms(rows: list[on_redis.Adding]) -> dict[str, list[float]]:
        return {name: [row.ms[name] for row in rows] for name in names}

    bars(out / "state-figure10.png", "Bringing a base up to date", "ms", [""], {k: [v] for k, v in methods.items()})
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
