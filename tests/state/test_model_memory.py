"""Random histories of the store in memory against the model that copies everything."""

from __future__ import annotations

import pytest
import state_histories as histories

from kedge.state import open_store


@pytest.mark.parametrize("scheme", [*histories.SCHEMES, None])
def test_every_version_equals_its_copy(scheme, lane):
    for seed in lane.seeds(6, 30, 2000):
        histories.run(seed, open_store("memory:"), scheme, 60)
