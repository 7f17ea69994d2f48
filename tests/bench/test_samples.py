"""The sample streams are what is known of their files; drawn rows keep their order of time and their neighbours."""

from __future__ import annotations

import numpy as np
import pytest

from kedge.bench import _samples
from kedge.errors import UsageError

FACTS = {  # rows, bytes per row, first and last second
    "cluster": (16_385, 64, 1, 647),
    "grid": (33_628, 32, 1_377_986_401, 1_377_986_401 + 83),
    "road": (16_384, 32, 1, 520),
    "equipment": (17_000, 64, 1_329_929_188, 1_329_929_359),
}


@pytest.mark.parametrize("name", _samples.SAMPLES)
def test_facts(name: str) -> None:
    rows, size, first, last = FACTS[name]
    table = _samples.sample(name)
    seconds = table["ts"].to_numpy().view(np.int64) // 1_000_000
    assert (table.num_rows, _samples.row_bytes(name)) == (rows, size)
    assert (int(seconds[0]), int(seconds[-1])) == (first, last)
    assert (np.diff(table["ts"].to_numpy().view(np.int64)) >= 0).all()
    assert all(column.null_count == 0 for column in table.columns)


def test_values() -> None:
    cluster, grid, road = (_samples.sample(name) for name in ("cluster", "grid", "road"))
    assert np.count_nonzero(cluster["event_type"].to_numpy() == 3) == 80
    assert (len(cluster["job_id"].unique()), len(cluster["category"].unique())) == (240, 4)
    plugs = {tuple(row.values()) for row in grid.select(["plug", "household", "house"]).to_pylist()}
    assert len(plugs) == 470
    assert grid["value"][0].as_py() == pytest.approx(68.451)
    assert road["highway"].unique().to_pylist() == [0]
    assert len({(row["direction"], row["position"] // 5280) for row in road.to_pylist()}) <= 200
    stamp = _samples.sample("equipment")["ts"][0].as_py()
    assert stamp.isoformat() == "2012-02-22T16:46:28.967032+00:00"


@pytest.mark.parametrize("name", [*_samples.SAMPLES, *_samples.GENERATED])
def test_drawn(name: str) -> None:
    table = _samples.table(name, 40_000, seed=3)
    assert table.num_rows == 40_000
    assert table.schema == _samples.SCHEMAS[name]
    assert (np.diff(table["ts"].to_numpy().view(np.int64)) >= 0).all()
    assert table.equals(_samples.table(name, 40_000, seed=3))
    assert not table.equals(_samples.table(name, 40_000, seed=4))


def test_drawn_blocks_are_the_samples_own() -> None:
    whole, drawn = _samples.sample("road"), _samples.table("road", 2560, seed=1)
    keys = ["vehicle", "speed", "position"]
    blocks = {str(whole.select(keys).slice(at, 256).to_pylist()) for at in range(0, 16_384, 256)}
    for at in range(0, 2560, 256):
        assert str(drawn.select(keys).slice(at, 256).to_pylist()) in blocks
    counter = np.diff(_samples.table("equipment", 10_000)["message_index"].to_numpy())
    assert np.median(counter) == 1
    assert counter.min() > 0


def test_unknown() -> None:
    with pytest.raises(UsageError, match="cluster, grid, road, equipment"):
        _samples.sample("weather")
