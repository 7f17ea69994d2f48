"""Time: wall time for records that people read, monotonic time for measuring."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time."""

    def now_us(self) -> int:
        """Microseconds since 1970 (UTC)."""
        ...

    def monotonic_ns(self) -> int:
        """Nanoseconds that never go back; only differences mean anything."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_us(self) -> int:
        """Microseconds since 1970 (UTC)."""
        return time.time_ns() // 1000

    def monotonic_ns(self) -> int:
        """Nanoseconds that never go back."""
        return time.monotonic_ns()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)
