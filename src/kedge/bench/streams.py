"""Streams: how fast and how small columns become, and how fast rows become durable, beside others.

Writes `streams-codecs.json` and `streams-appends.json` (every number that was measured), `streams.md` (tables), and
two plots. Throughput is raw row bytes over the time of all columns of the row, on one core; the disk and all rivals
are measured in the same run, in the same place. The quick run takes fewer rows and columns and fewer rivals.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from kedge.bench import Figure, _samples, note
from kedge.bench import _streams_appends as _appends
from kedge.bench import _streams_codecs as _codecs
from kedge.bench import _streams_plots as _plots
from kedge.bench import _streams_spark as _spark

LZ4 = "pyarrow lz4"
AIMED = (_codecs.CHOOSER, LZ4)


WORKERS = (1, 2)
BANDWIDTH = 2.5e9  # of the disk in bytes per second, for the chooser where nothing is written


def _ours(workers: int) -> str:
    return f"kedge, {workers} worker{'s' * (workers > 1)}"


@dataclass(frozen=True)
class Appends:
    """Durable appends of one stream: GB/s of raw rows by way, and what could limit ours."""

    stream: str
    row_bytes: int
    ratio: float
    disk_gb_s: float  # by direct writes of as many bytes
    codec_gb_s: dict[int, float]  # by the number of threads
    gb_s: dict[str, float]

    def ours(self, workers: int) -> float:
        """GB/s of raw rows with so many workers."""
        return self.gb_s[_ours(workers)]

    def of_limit(self, workers: int) -> float:
        """Our share of what the disk allows, or the codec on so many threads, whichever is lower."""
        return self.ours(workers) / min(self.disk_gb_s * self.ratio, self.codec_gb_s[workers])


def run(quick: bool, out: Path) -> list[Figure]:
    """Measure everything; returns a figure for each aim."""
    _codecs.compare(("synthetic",), 4096, 1, bool)  # compiles, or loads, every kernel
    rows, repeats = (1 << 17, 5) if quick else (1 << 20, 9)
    streams = _samples.SAMPLES if quick else (*_samples.SAMPLES, *_samples.GENERATED)
    note("codecs: the chooser")
    table = _codecs.compare(streams, rows, repeats, AIMED.__contains__)
    note("codecs: synthetic columns")
    table += _codecs.compare(("synthetic",), 1 << 16 if quick else 1 << 19, 2 if quick else 5, bool)
    if not quick:
        note("codecs: all others on the sample columns")
        table += _codecs.compare(_samples.SAMPLES, 1 << 17, 3, lambda way: way not in AIMED)
    (out / "streams-codecs.json").write_text(json.dumps([asdict(row) for row in table], indent=1) + "\n")
    _plots.trade_off(
        [row for row in table if row.stream == "synthetic" and row.way != "plain"], out / "streams-codecs.png"
    )

    work = out / "streams-work"
    names = ("road", "cluster", "bids") if quick else (*_samples.SAMPLES, *_samples.GENERATED)
    appends = [_append(name, work, quick) for name in names]
    note("latency")
    data = _appends.batches("road", 24 if quick else 400)
    late = np.percentile(_appends.latencies_ms(work, data, 2), [50, 95, 99]).tolist()
    reads = _reads(work, quick)
    shutil.rmtree(work, ignore_errors=True)
    written = {"ack_ms_p50_p95_p99": late, "appends": [asdict(one) for one in appends],
               "spark": None if reads is None else asdict(reads)}  # fmt: skip
    (out / "streams-appends.json").write_text(json.dumps(written, indent=1) + "\n")
    bars = {one.stream: {**one.gb_s, "codec alone, one core": one.codec_gb_s[1]} for one in appends}
    _plots.breakdown(bars, appends[0].disk_gb_s, out / "streams-appends.png")
    (out / "streams.md").write_text(_report(table, appends, late))
    figures = [*_codec_figures(table, rows), *_append_figures(appends, late), _spark_figure(reads)]
    return figures if quick else figures + _compile_figures(out)


def _reads(work: Path, quick: bool) -> _spark.Reads | None:
    """Spark's read of a stream beside rows from memory; None without pyspark."""
    if find_spec("pyspark") is None:
        return None
    note("Spark")
    return _spark.reads(work / "spark", 4 if quick else 8, 3 if quick else 5)


def _append(name: str, work: Path, quick: bool) -> Appends:
    """All ways of one stream."""
    note(f"appends: {name}")
    row_bytes = _samples.row_bytes(name)
    data = _appends.batches(name, (1 << 30) // (row_bytes * _appends.UNIT_ROWS), _appends.UNIT_ROWS)
    few = data[: max(2, len(data) // 8)]
    small = [data[0].slice(k * _appends.BATCH_ROWS, _appends.BATCH_ROWS) for k in range(2 if quick else 8)]
    passes, repeats = (2, 2) if quick else (4, 7)
    long = data * passes
    alone = {workers: _appends.encoding(data, workers, BANDWIDTH, repeats) for workers in WORKERS}
    ratio = alone[1][1]
    disk = _appends.raw_disk_gb_s(work, int(passes * (1 << 30) / ratio) >> 22 << 22, 1 if quick else 3)
    rates = {
        _ours(1): _appends.rate(_appends.kedge(1), work, long, row_bytes, repeats),
        _ours(2): _appends.rate(_appends.kedge(2), work, long, row_bytes, repeats),
        "arrow + lz4 + fsync": _appends.rate(_appends.arrow_lz4, work, long, row_bytes, repeats),
        "parquet files": _appends.rate(_appends.parquet, work, few, row_bytes, repeats),
    }
    if find_spec("lmdb"):
        rates["lmdb"] = _appends.rate(_appends.lmdb, work, small, row_bytes, 1)
    if find_spec("rocksdict"):
        rates["rocksdict"] = _appends.rate(_appends.rocks, work, small, row_bytes, 1)
    return Appends(name, row_bytes, ratio, disk, {workers: one[0] for workers, one in alone.items()}, rates)


def _codec_figures(table: Sequence[_codecs.Row], rows: int) -> list[Figure]:
    ours = {name: _codecs.total(list(table), name, _codecs.CHOOSER) for name in _samples.SAMPLES}
    lz4 = {name: _codecs.total(list(table), name, LZ4) for name in _samples.SAMPLES}
    encode = min(one.encode_gb_s for one in ours.values())
    decode = min(one.decode_gb_s for one in ours.values())
    better = min(ours[name].ratio / lz4[name].ratio for name in _samples.SAMPLES)
    at = f"slowest of {len(ours)} sample streams, {rows:,} rows"
    return [
        Figure(f"chooser, compress, one core, {at}", encode, "GB/s of raw rows", ">= 3", encode >= 3),
        Figure(f"chooser, decode, one core, {at}", decode, "GB/s of raw rows", ">= 5", decode >= 5),
        Figure("chooser's ratio / LZ4's, worst sample, true length", better, "x", "> 1", better > 1),
        *(Figure(f"chooser's ratio, {name} ({lz4[name].ratio:.2f} by LZ4)", one.ratio, "x")
          for name, one in ours.items()),
    ]  # fmt: skip


def _compile_figures(out: Path) -> list[Figure]:
    note("compiling")
    cold, warm = _codecs.compile_s(out)
    return [
        Figure("all codec kernels in a new process, empty cache", cold, "s of CPU"),
        Figure("all codec kernels in a new process, full cache", warm, "s of CPU"),
    ]


def _append_figures(appends: Sequence[Appends], late: Sequence[float]) -> list[Figure]:
    best = {one.stream: max(one.ours(workers) for workers in WORKERS) for one in appends}
    shrunk = [one for one in appends if one.ratio >= 2]
    over_disk = min(best[one.stream] / one.disk_gb_s for one in shrunk)
    of_limit = min(one.of_limit(workers) for one in appends for workers in WORKERS)
    over_arrow = min(best[one.stream] / one.gb_s["arrow + lz4 + fsync"] for one in appends)
    over_parquet = min(best[one.stream] / one.gb_s["parquet files"] for one in appends)
    worst = f"worst of {len(appends)} streams"
    figures = [
        Figure(f"durable append / raw disk where data shrinks 2:1, {worst}", over_disk, "x", "> 1", over_disk > 1),
        Figure(f"durable append / limit of disk or codec, {worst}", of_limit, "x", ">= 0.7", of_limit >= 0.7),
        Figure(f"durable append / Arrow with LZ4 and fsync, {worst}", over_arrow, "x", ">= 3", over_arrow >= 3),
        Figure(f"durable append / Parquet files, {worst}", over_parquet, "x", ">= 10", over_parquet >= 10),
    ]
    figures += [
        Figure(f"raw disk, direct writes of 1 or 4 MiB, 8 under way, beside {one.stream}", one.disk_gb_s, "GB/s")
        for one in appends
    ]
    figures += [
        Figure(f"codecs alone, {one.stream}, {workers} thread{'s' * (workers > 1)}", gb_s, "GB/s of raw rows")
        for one in appends
        for workers, gb_s in one.codec_gb_s.items()
    ]
    for one in appends:
        for workers in WORKERS:
            million = one.ours(workers) * 1000 / one.row_bytes
            name = f"durable append, {one.stream}, {one.row_bytes}-byte rows, {_ours(workers)} ({million:.0f} M rows/s)"
            figures.append(Figure(name, one.ours(workers), "GB/s of raw rows"))
    for label, value in zip(("p50", "p95", "p99"), late, strict=True):
        figures.append(
            Figure(f"acknowledgement {label}, {_appends.BATCH_ROWS:,} rows of 32 bytes at a time", value, "ms")
        )
    return figures


def _spark_figure(reads: _spark.Reads | None) -> Figure:
    what = "Spark's read of a stream / the Python data source's limit (rows from memory)"
    if reads is None:
        return Figure(what, None, "x", ">= 0.8", None, "pyspark is not installed: install kedge[spark]")
    share = reads.stream_rows_s / reads.memory_rows_s
    said = f"{what}, {reads.rows:,} rows of 32 bytes, {reads.stream_rows_s / 1e6:.1f} M rows/s"
    return Figure(said, share, "x", ">= 0.8", share >= 0.8)


def _report(table: Sequence[_codecs.Row], appends: Sequence[Appends], late: Sequence[float]) -> str:
    """Every number as Markdown tables."""
    lines = ["# Streams", "", f"Acknowledgement p50, p95, p99: {late[0]:.2f}, {late[1]:.2f}, {late[2]:.2f} ms.", "",
             "| stream | column | dtype | codec | ratio | ratio (drawn) | encode GB/s | decode GB/s |",
             "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    lines += [
        f"| {r.stream} | {r.column} | {r.dtype} | {r.way} {f'({r.chosen})' if r.way == _codecs.CHOOSER else ''} "
        f"| {r.ratio:.2f} | {r.ratio_drawn:.2f} | {r.encode_gb_s:.2f} | {r.decode_gb_s:.2f} |"
        for r in table
    ]
    ways = list(dict.fromkeys(way for one in appends for way in one.gb_s))
    heads = ["durable append, GB/s of raw rows", "ratio", "raw disk", "codec alone, 1 and 2 threads", *ways]
    lines += ["", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for one in appends:
        rates = " | ".join(f"{one.gb_s[way]:.3f}" if way in one.gb_s else "-" for way in ways)
        alone = ", ".join(f"{gb_s:.2f}" for gb_s in one.codec_gb_s.values())
        lines.append(
            f"| {one.stream}, {one.row_bytes} bytes | {one.ratio:.2f} | {one.disk_gb_s:.2f} | {alone} | {rates} |"
        )
    return "\n".join(lines) + "\n"
