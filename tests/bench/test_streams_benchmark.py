"""The stream benchmark adds up as it says, refuses a rival that loses data, and everybody stores every row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kedge.bench import _streams_appends as _appends
from kedge.bench import _streams_codecs as _codecs
from kedge.bench.streams import Appends
from kedge.streams import stream


def row(way: str, raw: int, ratio: float, encode: float, decode: float) -> _codecs.Row:
    return _codecs.Row("road", "x", "int32", way, "", raw, ratio, 1.0, encode, decode)


def test_totals_are_raw_bytes_over_all_times() -> None:
    rows = [row("a", 4000, 4.0, 1.0, 2.0), row("a", 8000, 1.0, 4.0, 8.0), row("b", 100, 9.0, 9.0, 9.0)]
    whole = _codecs.total(rows, "road", "a")
    assert whole.ratio == pytest.approx(12_000 / 9000)
    assert whole.encode_gb_s == pytest.approx(12_000 / 6000)
    assert whole.decode_gb_s == pytest.approx(12_000 / 3000)


@pytest.mark.parametrize(
    ("disk", "workers", "share"),
    [(10.0, 1, 0.5), (10.0, 2, 2.0 / 5.0), (0.5, 2, 1.0)],  # the codec, the codec, the disk
)
def test_the_limit_is_the_lower_of_disk_and_codec(disk: float, workers: int, share: float) -> None:
    ours = {"kedge, 1 worker": 1.5, "kedge, 2 workers": 2.0}
    one = Appends("road", 32, 4.0, disk, {1: 3.0, 2: 5.0}, ours)
    assert one.of_limit(workers) == pytest.approx(share)


def test_a_way_that_loses_data_is_refused() -> None:
    values = np.arange(100)
    lossy = _codecs.Way("lossy", lambda v: v // 2, lambda v: v.nbytes, lambda v, _like: v * 2)
    with pytest.raises(AssertionError, match="lossy gave other values"):
        _codecs.measure("s", "c", lossy, values, values, 1)


def test_every_way_gives_the_column_back() -> None:
    for name, values in _codecs.synthetic(2000).items():
        for way in _codecs.ways(values.dtype):
            if way.name not in ("vortex", "pcodec"):
                assert _codecs.measure("synthetic", name, way, values, values, 1).ratio > 0.3, (name, way.name)


def test_stores_hold_every_row(tmp_path: Path) -> None:
    data = [batch.slice(0, 1000) for batch in _appends.batches("road", 2)]
    want = pa.Table.from_batches(data)
    for name in ("ours", "arrow", "parquet"):
        (tmp_path / name).mkdir()
    assert _appends.kedge(0)(tmp_path / "ours", data) > 0
    with stream(tmp_path / "ours" / "s") as kept:
        assert kept.to_table().equals(want)
    assert _appends.arrow_lz4(tmp_path / "arrow", data) > 0
    with (tmp_path / "arrow" / "rows.arrow").open("rb") as file:
        assert pa.ipc.open_stream(file).read_all().equals(want)
    assert _appends.parquet(tmp_path / "parquet", data) > 0
    files = sorted((tmp_path / "parquet").iterdir())
    assert pa.concat_tables([pq.read_table(file) for file in files]).equals(want)
