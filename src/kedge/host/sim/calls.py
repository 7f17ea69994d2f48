"""One I/O call of a simulated process, and its death."""

from __future__ import annotations

from dataclasses import dataclass

READS = frozenset({"read", "map", "list", "open", "get"})


class Crashed(BaseException):
    """The simulated process is dead. Not an Exception: nothing may catch it and go on."""


@dataclass(frozen=True)
class Call:
    """One I/O call in a trace."""

    number: int
    kind: str
    path: str
    offset: int = 0
    length: int = 0

    @property
    def changes(self) -> bool:
        """Whether the call can change what a restart finds."""
        return self.kind not in READS
