"""For every safety line there is a mutant without it, and the crash simulation notices each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mutants
import pytest
import test_crash as crashes

if TYPE_CHECKING:
    from kedge.host.sim import Fault

STEPS = 16
# Where a mutant is noticed soon; any seed order would do in the end.
FIRST: dict[str, tuple[int, Fault]] = {
    "no epoch check before acknowledging": (3, "tear"),
    "no checksum of slots": (5, "stop"),
    "an uncommitted atomic append is kept": (1, "tear"),
    "recovery publishes what it can read": (2, "tear"),
}


def noticed(name: str) -> bool:
    """Whether some crash of some seed shows the mutant."""
    seed, fault = FIRST.get(name, (0, "tear"))
    faults = (fault, *(other for other in crashes.FAULTS if other != fault))
    for at_seed in (seed, *range(8)):
        for at_fault in faults:
            try:
                for crash_at in crashes.points(at_seed, at_fault, STEPS)[::5]:
                    log, host = crashes.crash(at_seed, at_fault, crash_at, STEPS)
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
