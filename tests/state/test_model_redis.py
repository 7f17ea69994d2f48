"""Random histories of the store on a real Redis against the model that copies everything."""

from __future__ import annotations

import pytest
import state_histories as histories

from kedge.state import open_store, redis_layers, redis_live, redis_store


@pytest.mark.parametrize("scheme", [*histories.SCHEMES, None])
def test_every_version_equals_its_copy(scheme, redis_socket, lane):
    for seed in lane.seeds(2, 12, 400):
        url = f"unix://{redis_socket}?name=m{scheme}{seed}"

        def reopen(store, url=url):
            store.close()
            return open_store(url)

        histories.run(seed, open_store(url), scheme, 50, reopen)


@pytest.mark.parametrize("scheme", [*histories.SCHEMES, None])
def test_a_small_memory_forgets_and_folds_by_itself(scheme, redis_socket, lane, monkeypatch):
    monkeypatch.setattr(redis_live, "CACHED_MAX", 12)
    monkeypatch.setattr(redis_store, "CACHED_MAX", 12)
    monkeypatch.setattr(redis_layers, "CACHED_MAX", 2)
    for seed in lane.seeds(1, 4, 100):
        url = f"unix://{redis_socket}?name=small{scheme}{seed}"
        histories.run(5_000 + seed, open_store(url), scheme, 50)
