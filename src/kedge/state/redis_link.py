"""One connection to Redis or Valkey that a store's only writer owns: transactions behind a fence.

Invariants:
- A transaction is WATCH on the epoch key, the commands between MULTI and EXEC, and the next WATCH in one write: it
  takes effect whole, and only if nobody has raised the epoch since. A raised epoch is a ConflictError.
- The connection is never replaced behind a caller's back: a lost one takes its WATCH along. After an error of the
  network the link is dead and the outcome of its last call unknown; who opens the store again reads what is there.

Commands are bytes in the Redis protocol, so that a column of integers is packed by one kernel and sent twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from kedge.errors import ClosedError, ConflictError, CorruptError, KedgeError, UnavailableError, UsageError
from kedge.state.delta import Flags, Ints
from kedge.state.table_text import bulk_strings

ARGUMENTS_MAX = 250_000  # Redis refuses commands of more than 1,048,576 arguments
TIMEOUT_S = 120  # redis-py's own 5 s are less than the server takes to copy a set of ten million members


def pack(*parts: bytes) -> bytes:
    """One command."""
    return b"*%d\r\n" % len(parts) + b"".join([b"$%d\r\n%b\r\n" % (len(part), part) for part in parts])


def pack_many(head: Sequence[bytes], arguments: Sequence[bytes], step: int = 1) -> list[bytes]:
    """`head` with all the arguments, in as many commands as it takes; `step` arguments belong together."""
    size = ARGUMENTS_MAX - ARGUMENTS_MAX % step
    return [pack(*head, *arguments[at : at + size]) for at in range(0, len(arguments), size)]


def pack_ints(head: Sequence[bytes], keys: Ints) -> list[bytes]:
    """`head` with all the integers as text, in as many commands as it takes."""
    commands: list[bytes] = []
    for at in range(0, len(keys), ARGUMENTS_MAX):
        part = keys[at : at + ARGUMENTS_MAX]
        room, ends = np.empty(28 * len(part), np.uint8), np.empty(len(part), np.int64)
        used = bulk_strings(part, room, ends)
        start = b"*%d\r\n" % (len(head) + len(part)) + b"".join([b"$%d\r\n%b\r\n" % (len(h), h) for h in head])
        commands.append(start + room[:used].tobytes())
    return commands


class Link:
    """A connection with the store's fence."""

    def __init__(self, url: str, where: str, connection: Any = None) -> None:
        self.where, self._dead = where, ""
        self._pool: Any = None
        self._fence: tuple[bytes, bytes] | None = None
        self._fenced = False
        self._connection = connection if connection is not None else self._connect(url)

    def _connect(self, url: str) -> Any:
        try:
            import redis
        except ImportError:
            raise UsageError("A store on Redis needs redis-py: pip install 'kedge[redis]'.") from None
        try:
            self._pool = redis.ConnectionPool.from_url(
                url, decode_responses=False, protocol=2, socket_timeout=TIMEOUT_S
            )  # the URL's own `socket_timeout` comes first
        except (ValueError, TypeError) as error:
            raise UsageError(f"{self.where} has a URL that can't be read: {error}.") from None
        try:
            return self._pool.get_connection()
        except redis.RedisError as error:
            raise UnavailableError(f"{self.where} can't be reached: {error}. Is the server running?") from None

    # --- reading --------------------------------------------------------------------------------------------------

    def call(self, *parts: bytes) -> Any:
        """One command and its answer."""
        return self.calls([pack(*parts)])[0]

    def calls(self, commands: Sequence[bytes]) -> list[Any]:
        """Several commands in one write, and their answers."""
        self._send(commands)
        return [self._read() for _ in commands]

    def moment(self, commands: Sequence[bytes]) -> list[Any]:
        """The answers of several reading commands at one moment, whoever writes meanwhile."""
        return self.calls([_MULTI, *commands, _EXEC])[-1]

    def flags(self, command: bytes, count: int) -> Flags:
        """An answer of `count` zeros and ones, such as SMISMEMBER's, without an object for each."""
        self._send([command])
        buffer: Any = getattr(getattr(self._connection, "_parser", None), "_buffer", None)
        if count < 64 or not hasattr(buffer, "purge"):  # another parser (hiredis): the plain way
            return np.array(self._read(), np.uint8)
        try:
            line = buffer.readline()
            if line[:1] != b"*":
                raise AnswerError(line.decode(errors="replace"))
            data = buffer.read(4 * count - 2)  # `:0\r\n` each; read() takes the last two bytes itself
            buffer.purge()
        except Exception as error:
            raise self._lost(error) from error
        return (np.frombuffer(data + b"\r\n", np.uint8).reshape(count, 4)[:, 1] - 48).astype(np.uint8)

    # --- writing --------------------------------------------------------------------------------------------------

    def fence(self, key: bytes, epoch: bytes) -> None:
        """From now on transactions count only while `key` holds `epoch`."""
        self._fence = (key, epoch)
        _, now = self.calls([pack(b"WATCH", key), pack(b"GET", key)])
        self._fenced = now != epoch

    def transaction(self, commands: Iterable[bytes]) -> list[Any]:
        """All commands or none; their answers."""
        if self._fence is None:
            raise UsageError(f"{self.where} was opened read-only. Open it without `read_only` to write.")
        if self._fenced:
            raise self._conflict()
        key, epoch = self._fence
        inner = list(commands)
        self._send([_MULTI, *inner, _EXEC, pack(b"WATCH", key), pack(b"GET", key)])
        queued = [self._read_any() for _ in range(len(inner) + 1)]
        answers = self._read_any()
        self._read_any()
        self._fenced = self._read_any() != epoch
        for answer in (*queued, answers, *(answers or ())):
            if isinstance(answer, Exception):
                raise self._lost(answer)
        if answers is None:
            self._fenced = True
            raise self._conflict()
        return answers

    def close(self) -> None:
        """Give the connection back to the system."""
        self._dead = self._dead or "it was closed"
        self._connection.disconnect()

    # --- the wire -------------------------------------------------------------------------------------------------

    def _send(self, commands: Sequence[bytes]) -> None:
        if self._dead:
            raise ClosedError(f"The connection to {self.where} is gone: {self._dead}. Open the store again.")
        try:
            self._connection.send_packed_command([b"".join(commands)], check_health=False)
        except Exception as error:
            raise self._lost(error) from error

    def _read(self) -> Any:
        answer = self._read_any()
        if isinstance(answer, Exception):
            raise self._lost(answer)
        return answer

    def _read_any(self) -> Any:
        """An answer; what Redis refuses comes back as an exception, a broken connection is raised."""
        try:
            return self._connection.read_response(disable_decoding=True, disconnect_on_error=False)
        except Exception as error:
            if type(error).__module__.startswith("redis") and not _is_network(error):
                return error
            raise self._lost(error) from error

    def _lost(self, error: Exception) -> KedgeError:
        self._dead = str(error) or type(error).__name__
        self._connection.disconnect()
        if self._dead.startswith("WRONGTYPE"):
            return CorruptError(
                f"{self.where}: one of its keys holds another kind of value, so somebody else has written there "
                f"({self._dead}). Restore the key, or move that program to keys of its own.",
                code="key-kind",
            )
        return UnavailableError(
            f"{self.where}: {self._dead}. Whether the last call took effect is unknown: open the store again."
        )

    def _conflict(self) -> ConflictError:
        return ConflictError(f"{self.where} was opened by a newer writer. Stop this one, or open the store again.")


_MULTI, _EXEC = pack(b"MULTI"), pack(b"EXEC")


class AnswerError(Exception):
    """Redis answered something else than the command promises."""


def _is_network(error: Exception) -> bool:
    return any(kind.__name__ in ("ConnectionError", "TimeoutError") for kind in type(error).__mro__)
