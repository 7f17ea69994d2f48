"""What calls cost, counted in commands and arguments that reach the server, or in members touched: never in time."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from test_redis_cuts import split

from kedge.host import local
from kedge.state import open_store
from kedge.state.cells import IntCells
from kedge.state.redis_store import open_redis
from kedge.state.store import Store

BASE, VERSIONS, EACH = 5_000, 20, 30


class Recorder:
    """A connection that keeps the arguments of every command."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.commands: list[list[bytes]] = []

    def send_packed_command(self, chunks: list[bytes], check_health: bool) -> None:
        self.commands += [command.split(b"\r\n")[2::2] for command in split(b"".join(chunks))]
        self._real.send_packed_command(chunks, check_health=check_health)

    def read_response(self, **options: Any) -> Any:
        return self._real.read_response(**options)

    @property
    def _parser(self) -> Any:
        return self._real._parser

    def disconnect(self) -> None:
        self._real.disconnect()

    def take(self) -> list[list[bytes]]:
        """What was sent since this was last asked."""
        taken, self.commands = self.commands, []
        return taken


@pytest.fixture(params=["undo", "redo", "command"])
def grown(request, redis_socket):
    """A set with a base and many versions of a few changes each: some members are removed and added again."""
    pool = redis.ConnectionPool.from_url(f"unix://{redis_socket}", protocol=2)
    recorder, host = Recorder(pool.get_connection()), local()
    url = f"unix://{redis_socket}?name=cost{request.param}{id(request)}"
    backend = open_redis(url, host.clock, read_only=False, connection=recorder)
    store = Store(url, backend, host.clock, request.param)
    members = store.set("k")
    members.update(range(BASE))
    store.checkpoint()
    backend.fold()
    for version in range(VERSIONS):
        members.difference_update(range(10))
        members.update(range(BASE + version * EACH, BASE + (version + 1) * EACH))
        members.update(range(10))
        store.checkpoint()
    recorder.take()
    return store, members, recorder


def arguments(commands: list[list[bytes]]) -> int:
    return sum(map(len, commands))


WHOLE = {b"SMEMBERS", b"SUNION", b"SUNIONSTORE", b"SDIFF", b"SDIFFSTORE", b"SINTER", b"SSCAN", b"SORT", b"COPY"}


def test_len_asks_for_what_changed_and_for_each_member_once(grown):
    _, members, recorder = grown
    size = BASE + VERSIONS * EACH
    assert len(members) == size
    sent = recorder.take()
    assert not WHOLE & {command[0] for command in sent}
    assert arguments(sent) <= VERSIONS * EACH + 10 + 20
    assert len(members) == size
    assert arguments(recorder.take()) <= 2  # SCARD at most
    members.add(10**9)
    recorder.take()
    assert len(members) == size + 1
    assert arguments(recorder.take()) <= 3


def test_membership_is_one_question_however_many_versions(grown):
    _, members, recorder = grown
    for member, there in ((BASE // 2, True), (10**10, False), (BASE + 1, True), (3, True)):
        assert (member in members) is there
        sent = recorder.take()
        assert len(sent) <= 1
        assert arguments(sent) <= 3


def test_moving_costs_the_changed_members(grown):
    store, members, recorder = grown
    for versions in (1, 5, 10):
        end, start = store.version, store.version - versions
        store.rollback(start)
        back = recorder.take()
        store.forward(end)
        forth = recorder.take()
        for sent in (back, forth):
            assert not WHOLE & {command[0] for command in sent}
            assert arguments(sent) <= 2 * (versions * EACH + 10) + 60
    assert len(members) == BASE + VERSIONS * EACH


def test_reading_another_version_costs_the_changed_members(grown):
    store, _, recorder = grown
    snapshot = store.at(store.version - 3).set("k")
    assert len(snapshot) == BASE + (VERSIONS - 3) * EACH
    assert (BASE + VERSIONS * EACH - 1) not in snapshot
    sent = recorder.take()
    assert not WHOLE & {command[0] for command in sent}
    assert arguments(sent) <= VERSIONS * EACH + 60


def test_moving_in_memory_touches_the_changed_members(monkeypatch):
    store = open_store("memory:")
    members = store.set("k", "int")
    members.update(range(BASE))
    store.checkpoint()
    for version in range(VERSIONS):
        members.update(range(BASE + version * EACH, BASE + (version + 1) * EACH))
        members.difference_update(range(5))
        members.update(range(5))
        store.checkpoint()
    touched: list[int] = []
    load = IntCells.load_ints

    def counting(self, keys, flags):
        touched.append(len(keys))
        load(self, keys, flags)

    monkeypatch.setattr(IntCells, "load_ints", counting)
    end = store.version
    store.rollback(end - 10)
    store.forward(end)
    assert sum(touched) == 2 * 10 * EACH  # what was removed and added again is no change
    assert len(members) == BASE + VERSIONS * EACH
