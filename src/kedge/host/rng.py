"""Randomness: nonces that no two processes share, and choices that a seed can repeat."""

from __future__ import annotations

import random
import secrets
from typing import Protocol


class Rng(Protocol):
    """A source of randomness."""

    def token(self) -> str:
        """A fresh nonce: 32 hexadecimal digits."""
        ...

    def random(self) -> float:
        """A number in [0, 1), for jitter."""
        ...


class SystemRng:
    """The operating system's randomness."""

    def token(self) -> str:
        """A fresh nonce from the system's secure source."""
        return secrets.token_hex(16)

    def random(self) -> float:
        """A number in [0, 1)."""
        return secrets.randbelow(1 << 53) / (1 << 53)


class SeededRng:
    """Randomness that a seed repeats: for simulations only."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311  (a simulation must repeat)

    def token(self) -> str:
        """A nonce that the seed decides."""
        return f"{self._random.getrandbits(128):032x}"

    def random(self) -> float:
        """A number in [0, 1)."""
        return self._random.random()
