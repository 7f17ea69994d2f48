"""A clock that only the simulation moves."""

from __future__ import annotations


class SimClock:
    """Time that passes by one microsecond a reading, and by whatever somebody sleeps."""

    def __init__(self, start_us: int = 1_700_000_000_000_000) -> None:
        self.at_us = start_us

    def now_us(self) -> int:
        """Microseconds since 1970."""
        self.at_us += 1
        return self.at_us

    def monotonic_ns(self) -> int:
        """Nanoseconds that never go back."""
        return self.now_us() * 1000

    def sleep(self, seconds: float) -> None:
        """Let time pass; nobody waits."""
        self.at_us += max(0, round(seconds * 1e6))
