"""Codecs beside their rivals: encode and decode GB/s of each, and ratios, column by column.

Times are the best of a few runs on one thread, over a column that was extended by drawing blocks; ratios are taken
at the sample's true length, because drawing repeats blocks, which an LZ window sees and a stream would not have.
Every result is decoded and compared once.
"""

from __future__ import annotations

import importlib
import io
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from kedge import codec
from kedge.bench import _samples

Column = NDArray[Any]
CHOOSER = "chooser"
GENERAL = ("lz4", "zstd", "snappy")


@dataclass(frozen=True)
class Way:
    """A way to compress a column: `encode` gives something, `size` its bytes, `decode` the values again."""

    name: str
    encode: Callable[[Column], Any]
    size: Callable[[Any], int]
    decode: Callable[[Any, Column], Column]


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    stream: str
    column: str
    dtype: str
    way: str
    chosen: str
    raw_bytes: int
    ratio: float
    ratio_drawn: float
    encode_gb_s: float
    decode_gb_s: float


def columns(table: pa.Table) -> dict[str, Column]:
    """The columns of a table as numpy arrays; times as integers."""
    arrays = {name: table[name].to_numpy() for name in table.column_names}
    return {name: array.view(np.int64) if array.dtype.kind == "M" else array for name, array in arrays.items()}


def synthetic(rows: int) -> dict[str, Column]:
    """The kinds of columns of the paper's figure 6, and text."""
    draw = np.random.default_rng(6)
    words = np.array([b"alpha ", b"bravo ", b"charlie ", b"delta ", b"echo "], object)
    text = b"".join(words[draw.integers(0, 5, rows // 5)])
    return {
        "timestamp_even": np.arange(rows) * 1000,
        "timestamp_ties": np.cumsum(draw.random(rows) < 0.01) * 1_000_000,
        "integer_random": draw.integers(0, 1 << 12, rows),
        "integer_runs": np.repeat(draw.integers(0, 1 << 12, rows // 20 + 1), 20)[:rows],
        "integer_outliers": np.where(draw.random(rows) < 0.001, 1 << 40, draw.integers(0, 16, rows)),
        "float_cents": (draw.integers(0, 100_000, rows) / 100).astype(np.float32),
        "float_walk": np.cumsum(draw.normal(size=rows)),
        "few_values": draw.integers(0, 1 << 60, 100)[draw.integers(0, 100, rows)],
        "text": np.frombuffer(text, np.uint8),
    }


def ways(dtype: np.dtype[Any]) -> list[Way]:
    """Every codec that takes the dtype, the chooser, and the rivals that are installed."""
    found = [_ours(name) for name, one in codec.BY_NAME.items() if dtype.kind in one.kinds and name not in GENERAL]
    found += [chooser(), *(general(name) for name in GENERAL), _parquet()]
    if dtype.itemsize >= 2:
        found += _pcodec()
    return found + _vortex()


def _ours(name: str) -> Way:
    return Way(name, lambda values: codec.encode(values, name), _body, _decode)


def _body(encoded: codec.Encoded) -> int:
    return encoded.body.size


def _decode(encoded: codec.Encoded, like: Column) -> Column:
    return codec.decode(encoded, like.dtype, like.size)


def chooser(bandwidth: float | None = None) -> Way:
    """The chooser as a writer keeps it: it knows the column from the units before."""
    kept = codec.Chooser() if bandwidth is None else codec.Chooser(bandwidth)
    return Way(CHOOSER, kept.encode, _body, _decode)


def general(name: str) -> Way:
    """pyarrow's own compressor, called as its users do."""
    press = pa.Codec(name)
    return Way(
        f"pyarrow {name}",
        lambda values: press.compress(values),
        lambda body: body.size,
        lambda body, like: np.frombuffer(press.decompress(body, like.nbytes), like.dtype),
    )


def _parquet() -> Way:
    def encode(values: Column) -> bytes:
        sink = io.BytesIO()
        pq.write_table(pa.table({"c": values}), sink)
        return sink.getvalue()

    return Way("parquet", encode, len, lambda body, _like: pq.read_table(io.BytesIO(body))["c"].to_numpy())


def _pcodec() -> Iterator[Way]:
    try:
        pcodec: Any = importlib.import_module("pcodec")
    except ImportError:
        return
    yield Way(
        "pcodec",
        lambda values: pcodec.standalone.simple_compress(values, pcodec.ChunkConfig()),
        len,
        lambda body, _like: pcodec.standalone.simple_decompress(body),
    )


def _vortex() -> list[Way]:
    try:
        vortex: Any = importlib.import_module("vortex")
    except ImportError:
        return []
    return [
        Way(
            "vortex",
            lambda values: vortex.compress(vortex.array(pa.array(values))),
            lambda array: array.nbytes,
            lambda array, _like: array.to_arrow_array().to_numpy(),
        )
    ]


def best_s(work: Callable[[], object], repeats: int) -> float:
    """The shortest of a few runs."""
    times: list[float] = []
    for _ in range(repeats):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return min(times)


def measure(stream: str, name: str, way: Way, true: Column, drawn: Column, repeats: int) -> Row:
    """One column, one way."""
    short = way.encode(true)
    kept = way.encode(drawn)
    if way.decode(kept, drawn).tobytes() != drawn.tobytes():
        raise AssertionError(f"{way.name} gave other values for {stream}.{name}")
    encode_s = best_s(lambda: way.encode(drawn), repeats)
    decode_s = best_s(lambda: way.decode(kept, drawn), repeats)
    chosen = codec.BY_CODE[kept.codec].name if isinstance(kept, codec.Encoded) else ""
    return Row(
        stream, name, str(drawn.dtype), way.name, chosen, drawn.nbytes,
        true.nbytes / max(1, way.size(short)), drawn.nbytes / max(1, way.size(kept)),
        drawn.nbytes / encode_s / 1e9, drawn.nbytes / decode_s / 1e9,
    )  # fmt: skip


def compare(names: tuple[str, ...], rows: int, repeats: int, take: Callable[[str], bool]) -> list[Row]:
    """All columns of these streams ("synthetic" too), by the ways whose names are to be taken."""
    found: list[Row] = []
    for stream in names:
        if stream == "synthetic":
            drawn = true = synthetic(rows)
        else:
            drawn = columns(_samples.table(stream, rows))
            true = columns(_samples.sample(stream)) if stream in _samples.SAMPLES else drawn
        for name, values in drawn.items():
            for way in ways(values.dtype):
                if take(way.name):
                    found.append(measure(stream, name, way, true[name], values, repeats))
    return found


_TOUCH = """
import time, numpy as np
import kedge.jit
begun = time.process_time()
from kedge import codec
whole = np.repeat(np.arange(500), 4)
for name, one in codec.BY_NAME.items():
    values = whole / 10 if one.kinds == "f" else whole
    codec.decode(codec.encode(values, name), values.dtype, values.size)
codec.encode(whole)
print(time.process_time() - begun)
"""


def compile_s(folder: Path) -> tuple[float, float]:
    """CPU seconds until every kernel has run once in a new process: from an empty cache, and from a full one."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder / "numba")}
    command = [sys.executable, "-c", _TOUCH]
    cold, warm = (
        float(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
        for _ in range(2)
    )
    shutil.rmtree(folder / "numba")
    return cold, warm


@dataclass(frozen=True)
class Total:
    """All columns of a stream together: raw bytes of its rows over the time of all its columns."""

    ratio: float
    encode_gb_s: float
    decode_gb_s: float


def total(rows: list[Row], stream: str, way: str) -> Total:
    """The rows of a table of one stream and one way, added up."""
    mine = [row for row in rows if row.stream == stream and row.way == way]
    raw = sum(row.raw_bytes for row in mine)
    return Total(
        raw / sum(row.raw_bytes / row.ratio for row in mine),
        raw / sum(row.raw_bytes / row.encode_gb_s for row in mine),
        raw / sum(row.raw_bytes / row.decode_gb_s for row in mine),
    )
