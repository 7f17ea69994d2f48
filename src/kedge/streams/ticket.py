"""A ticket: the promise that an append is durable, and where it went."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from kedge.errors import UnavailableError


@dataclass(frozen=True, slots=True)
class Appended:
    """Where the rows of an append are. A duplicate was appended before, under the same producer and sequence."""

    partition: int
    first_offset: int
    end: int
    duplicate: bool = False


class Ticket:
    """What `append` returns: `wait()` means durable.

    >>> stream.append(batch).wait().end  # doctest: +SKIP
    1024
    """

    def __init__(self, commit: Callable[[], object] | None = None) -> None:
        self._done = threading.Event()
        self._commit = commit  # without threads, waiting is what commits
        self._result: Appended | None = None
        self._error: BaseException | None = None
        self._followers: list[tuple[Ticket, Appended]] = []

    def done(self) -> bool:
        """Whether `wait` would return (or raise) at once."""
        return self._done.is_set()

    def wait(self, timeout_seconds: float | None = None) -> Appended:
        """Return when the rows are durable; raises what went wrong."""
        if self._commit is not None and not self._done.is_set():
            self._commit()
        if not self._done.wait(timeout_seconds):
            raise UnavailableError(f"The append is not durable after {timeout_seconds} s. Wait again, or flush().")
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result

    def also(self, other: Ticket, result: Appended) -> None:
        """`other` resolves (to `result`) or fails when this ticket does."""
        self._followers.append((other, result))
        if self._done.is_set():
            self._tell()

    def resolve(self, result: Appended) -> None:
        """The append is durable."""
        if not self._done.is_set():
            self._result = result
            self._done.set()
            self._tell()

    def fail(self, error: BaseException) -> None:
        """The append is not durable, or nobody knows."""
        if not self._done.is_set():
            self._error = error
            self._done.set()
            self._tell()

    def _tell(self) -> None:
        while self._followers:
            other, result = self._followers.pop()
            if self._error is None:
                other.resolve(result)
            else:
                other.fail(self._error)
