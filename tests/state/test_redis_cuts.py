"""The client's connection is cut after every command: the store opens to its last checkpoint plus whole calls."""

from __future__ import annotations

from typing import Any

import pytest
import redis
import state_model as m
from state_histories import steps

from kedge.errors import ClosedError, ConflictError, CorruptError, UnavailableError, UsageError
from kedge.host import local
from kedge.state import open_store
from kedge.state.redis_link import Link, pack
from kedge.state.redis_store import open_redis
from kedge.state.store import Store


def split(data: bytes) -> list[bytes]:
    """The commands in a write, by the protocol: `*n`, then n times `$length`."""
    commands, at = [], 0
    while at < len(data):
        start, end = at, data.index(b"\r\n", at)
        count, at = int(data[at + 1 : end]), end + 2
        for _ in range(count):
            end = data.index(b"\r\n", at)
            at = end + 2 + int(data[at + 1 : end]) + 2
        commands.append(data[start:at])
    return commands


class Cut:
    """A connection that dies after `budget` commands were sent; their answers are never read."""

    def __init__(self, real: Any, budget: int) -> None:
        self._real, self.budget, self.sent = real, budget, 0

    def send_packed_command(self, chunks: list[bytes], check_health: bool) -> None:
        for command in split(b"".join(chunks)):
            if self.sent == self.budget:
                self._real.disconnect()
                raise redis.ConnectionError("cut")
            self._real.send_packed_command([command], check_health=False)
            self.sent += 1

    def read_response(self, **options: Any) -> Any:
        return self._real.read_response(**options)

    @property
    def _parser(self) -> Any:
        return self._real._parser

    def disconnect(self) -> None:
        self._real.disconnect()


def cut_store(path: str, name: str, budget: int) -> tuple[Store, Cut]:
    pool = redis.ConnectionPool.from_url(f"unix://{path}", protocol=2)
    cut = Cut(pool.get_connection(), budget)
    host = local()
    url = f"unix://{path}?name={name}"
    return Store(url, open_redis(url, host.clock, read_only=False, connection=cut), host.clock), cut


@pytest.mark.parametrize("scheme", ["undo", "redo", "command", "full"])
def test_a_cut_after_any_command_leaves_whole_calls(scheme, redis_socket, lane):
    _cut_everywhere(scheme, redis_socket, len(lane.seeds(9, 1, 1)), "cut")  # the fast lane takes every ninth cut


@pytest.mark.parametrize("scheme", ["undo", "redo"])
def test_calls_without_a_transaction_are_caught(scheme, redis_socket, monkeypatch):
    """The mutant: the same commands, but neither MULTI nor EXEC around them."""

    def loose(self, commands):
        inner = list(commands)
        self._send(inner)
        return [self._read_any() for _ in inner]

    monkeypatch.setattr(Link, "transaction", loose)
    with pytest.raises((AssertionError, CorruptError, KeyError)):
        _cut_everywhere(scheme, redis_socket, 1, "loose")


def _cut_everywhere(scheme, redis_socket, every, prefix):
    _, counting = _whole(redis_socket, scheme, prefix)
    for budget in range(0, counting.sent, every):
        name = f"{prefix}-{scheme}-{budget}"
        states: list[Any] = []
        try:
            store, _ = cut_store(redis_socket, name, budget)
            states += steps(store, scheme)
        except (UnavailableError, ClosedError):
            pass
        after = open_store(f"unix://{redis_socket}?name={name}")
        of = m.structures(after)
        found = (m.read(of), after.version, [version.number for version in after.versions()])
        allowed = states[-1:] + _next(redis_socket, scheme, len(states))
        assert found in allowed, f"cut after {budget} commands"
        _goes_on(after, of)


def _whole(path: str, scheme: str, prefix: str) -> tuple[list[Any], Cut]:
    store, cut = cut_store(path, f"{prefix}-{scheme}-whole", 10**9)
    states = list(steps(store, scheme))
    store.close()
    return states, cut


def _next(path: str, scheme: str, seen: int) -> list[Any]:
    """The state after the call that was cut: it may have taken effect whole."""
    if scheme not in _STATES:
        store = open_store("memory:")
        _STATES[scheme] = list(steps(store, scheme))
    return _STATES[scheme][seen : seen + 1]


_STATES: dict[str, list[Any]] = {}


def _goes_on(store: Store, of: dict[str, Any]) -> None:
    """The store that was opened again works: a version, a change, and back."""
    before = m.read(of)
    version = store.checkpoint()
    of["s"].add("after")
    of["l"].append("after")
    store.rollback(version)
    assert m.read(of) == before
    store.close()


def test_the_older_of_two_writers_is_fenced(redis_url):
    first = open_store(redis_url)
    members = first.set("s")
    members.add("a")
    second = open_store(redis_url)
    with pytest.raises(ConflictError):
        members.add("b")
    with pytest.raises(ConflictError):
        first.checkpoint()
    assert set(second.set("s")) == {"a"}
    second.set("s").add("c")
    assert set(open_store(redis_url, read_only=True).set("s")) == {"a", "c"}


def test_a_writer_without_its_watch_is_caught(redis_url, monkeypatch):
    """The mutant: transactions that do not watch the epoch."""
    send = Link._send
    watch = b"$5\r\nWATCH"
    monkeypatch.setattr(
        Link,
        "_send",
        lambda self, commands: send(self, [pack(b"PING") if watch in one else one for one in commands]),
    )
    first = open_store(redis_url)
    members = first.set("s")
    members.add("a")
    open_store(redis_url)
    members.add("b")  # the true store raises ConflictError here
    assert set(open_store(redis_url, read_only=True).set("s")) == {"a", "b"}


def test_an_older_writer_that_was_asleep_changes_nothing(redis_url):
    """Whatever it does when it wakes up: calls, checkpoints, moves, switches, compaction, new structures."""
    first = open_store(redis_url)
    first.set("s").add("a")
    first.checkpoint()
    first.set("s").add("b")
    second = open_store(redis_url)
    before = m.read(m.structures(second)), second.version
    for call in (
        lambda: first.set("s").add("c"),
        lambda: first.set("new"),
        lambda: first.map("s2"),
        first.checkpoint,
        first.rollback,
        lambda: first.compact(count=1),
        lambda: first.switch("redo"),
    ):
        with pytest.raises(ConflictError, match="newer writer"):
            call()
    third = open_store(redis_url)
    assert (m.read(m.structures(third)), third.version) == before


def test_other_clients_read_ordinary_structures(redis_url, redis_socket):
    store = open_store(redis_url.replace("name=", "name=plain"))
    store.set("buses").add("b1", 5)
    store.map("fares").update({"b1": 2.5, "b2": "free"})
    store.list("stops").extend(["x", "y"])
    store.counter("rides").incr(7)
    store.sorted_set("delays").add("b1", 1.5)
    name = redis_url.rpartition("=")[2]
    client = redis.Redis(unix_socket_path=redis_socket, decode_responses=True)
    assert client.smembers(f"plain{name}:buses") == {"b1", "5"}
    assert client.hgetall(f"plain{name}:fares") == {"b1": "2.5", "b2": "free"}
    assert client.lrange(f"plain{name}:stops", 0, -1) == ["x", "y"]
    assert client.get(f"plain{name}:rides") == "7"
    assert client.zscore(f"plain{name}:delays", "b1") == 1.5


def test_a_key_of_somebody_else_is_left_alone(redis_url, redis_socket):
    name = redis_url.rpartition("=")[2]
    client = redis.Redis(unix_socket_path=redis_socket)
    client.sadd(f"{name}:buses", "theirs")
    store = open_store(redis_url)
    with pytest.raises(UsageError, match="not this store's"):
        store.set("buses")
    assert client.smembers(f"{name}:buses") == {b"theirs"}


def test_a_lost_connection_is_said_and_closes_the_store(redis_socket):
    store, cut = cut_store(redis_socket, "lost", 10**9)
    members = store.set("s")
    cut.budget = cut.sent + 1
    with pytest.raises(UnavailableError, match="open the store again"):
        members.add("x")
    with pytest.raises(ClosedError):
        members.add("y")
