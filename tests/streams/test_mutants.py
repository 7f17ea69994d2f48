"""For every safety line there is a mutant without it, and the crash simulation notices each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mutants
import pytest
import test_crash as crashes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kedge.host.sim import Fault

STEPS = 16
# A crash that shows the mutant; tried first, since most crashes of most seeds do not.
FIRST: dict[str, tuple[int, Fault, int]] = {
    "no epoch check before acknowledging": (3, "tear", 0),
    "no checksum of slots": (5, "stop", 140),
    "an uncommitted atomic append is kept": (1, "tear", 170),
    "recovery publishes what it can read": (2, "tear", 113),
    "all slots in one page": (2, "stop", 265),
}


def tries(name: str) -> Iterator[tuple[int, Fault, int]]:
    """Crashes to try: the known one, then all of some seeds."""
    if name in FIRST:
        yield FIRST[name]
    for seed in range(8):
        for fault in ("tear", "lose", "stop"):
            for crash_at in crashes.points(seed, fault, STEPS)[::5]:
                yield seed, fault, crash_at


def noticed(name: str) -> bool:
    """Whether some crash shows the mutant."""
    try:
        for seed, fault, crash_at in tries(name):
            log, host = crashes.crash(seed, fault, crash_at, STEPS)
            crashes.verify(log, host)
    except Exception:
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("name", mutants.MUTANTS)
def test_the_simulation_notices(name: str) -> None:
    crashes.failing_sync.cache_clear()
    for seed in range(1, 8, 2):
        for fault in crashes.FAULTS:
            crashes.failing_sync(seed, fault, STEPS)  # by the program as it is
    with mutants.mutated(name):
        assert noticed(name)
    crashes.failing_sync.cache_clear()
