"""The fuzz target's own loop, for a while."""

from __future__ import annotations

from typing import Any

import fuzz_unit


def test_mutated_units_are_rows_or_corrupt(lane: Any) -> None:
    for seed in lane.seeds(1, 10, 1000):
        fuzz_unit.main(300, seed)
