"""What can go wrong, one class for each reaction of the caller.

Every message says what, where and what to do next; `code` is stable and may be matched by programs.

| class            | what the caller does                                                        |
|------------------|-----------------------------------------------------------------------------|
| UsageError       | change the call: an argument, a query, an option                            |
| CorruptError     | repair or restore: bytes on disk do not check                               |
| ConflictError    | stop: another writer or coordinator has taken over                          |
| UnavailableError | try again later: the outcome of the call is unknown or the place is away    |
| ClosedError      | open again: this object was closed, by the caller or by a failed fsync      |
| InternalError    | report it: a bug in Kedge                                                   |
"""

from __future__ import annotations


class KedgeError(Exception):
    """The base of all errors that Kedge raises on purpose."""

    code = "error"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process borders in Spark; the default would lose `code`.
        return (_rebuild, (type(self), str(self), self.code))


def _rebuild(kind: type[KedgeError], message: str, code: str) -> KedgeError:
    return kind(message, code=code)


class UsageError(KedgeError, ValueError):
    """The call can't be carried out as it was written."""

    code = "usage"


class CorruptError(KedgeError):
    """Stored bytes do not check; the message names the file and the byte."""

    code = "corrupt"


class ConflictError(KedgeError):
    """Somebody with a newer epoch has taken over."""

    code = "conflict"


class UnavailableError(KedgeError):
    """The outcome is unknown (a time-out), or the place can't be reached now."""

    code = "unavailable"


class ClosedError(KedgeError):
    """The object was closed and takes no more calls."""

    code = "closed"


class InternalError(KedgeError):
    """A broken invariant: a bug in Kedge, never the user's fault."""

    code = "internal"
