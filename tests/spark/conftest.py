"""What the tests on Spark share besides the session."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator

import pytest


@pytest.fixture
def everything() -> Generator[None]:
    """`kedge.resume` saves every stage that can be saved, whatever it buys."""
    from kedge.bench._resume_kills import saving_everything

    with saving_everything():
        yield


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], None]:
    """Wait until something is true, for as long as a slow machine may need."""

    def wait(done: Callable[[], bool], seconds: float = 120) -> None:
        deadline = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < deadline, "it did not happen"
            time.sleep(0.05)

    return wait
