"""The options of `format("kedge")`: known names, checked values, errors that say what to write.

Spark gives options as strings and names in any case; `path` comes from `load(path)` and `save(path)`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from kedge.errors import UsageError

EARLIEST, LATEST = "earliest", "latest"
_ROWS_PER_TASK = 1 << 20

_READ = {
    "path": "the stream's directory",
    "columns": "names of the columns to read, separated by commas",
    "startingoffsets": 'earliest, latest or JSON such as {"0": 100}',
    "endingoffsets": "latest or JSON (batch only)",
    "maxrowsperbatch": "rows in one micro-batch at most",
    "rowspertask": f"rows that one task reads, about ({_ROWS_PER_TASK:,} by default)",
    "subscription": "a name under which the position is kept with the stream",
}
_WRITE = {
    "path": "the stream's directory",
    "partitions": "partitions of a stream that is created here (1 by default)",
    "eventtime": "the event-time column of a stream that is created here",
    "producer": "a name that this writer keeps; by default the checkpoint's id",
    "checkpointlocation": "Spark's own",
    "queryname": "Spark's own",
}


@dataclass(frozen=True)
class ReadOptions:
    """How a stream is read."""

    path: str
    columns: tuple[str, ...] | None
    starting: Literal["earliest", "latest"] | dict[int, int]
    ending: dict[int, int] | None
    rows_max: int | None
    rows_per_task: int
    subscription: str | None


@dataclass(frozen=True)
class WriteOptions:
    """How a stream is written."""

    path: str
    partitions: int
    event_time: str | None
    producer: str | None
    checkpoint: str | None


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """Options of `spark.read` and `spark.readStream`."""
    options = _known(given, _READ, "reading")
    columns = options.get("columns")
    return ReadOptions(
        path=_path(options),
        columns=None if columns is None else tuple(name.strip() for name in columns.split(",") if name.strip()),
        starting=_starting(options.get("startingoffsets", EARLIEST)),
        ending=_ending(options.get("endingoffsets", LATEST)),
        rows_max=_count(options, "maxRowsPerBatch"),
        rows_per_task=_count(options, "rowsPerTask") or _ROWS_PER_TASK,
        subscription=options.get("subscription"),
    )


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """Options of `df.write` and `df.writeStream`."""
    options = _known(given, _WRITE, "writing")
    return WriteOptions(
        path=_path(options),
        partitions=_count(options, "partitions") or 1,
        event_time=options.get("eventtime"),
        producer=_name(options.get("producer")),
        checkpoint=options.get("checkpointlocation"),
    )


def _known(given: Mapping[str, str], known: Mapping[str, str], doing: str) -> dict[str, str]:
    options = {name.lower(): value for name, value in given.items()}
    unknown = sorted(set(options) - set(known))
    if unknown:
        about = "; ".join(f"{name}: {text}" for name, text in known.items())
        raise UsageError(f"{unknown[0]!r} is not an option for {doing} a kedge stream. The options are: {about}.")
    return options


def _path(options: Mapping[str, str]) -> str:
    path = options.get("path")
    if not path:
        raise UsageError("Which stream? Name its directory: load('data/rides') or save('data/rides').")
    path = path.removeprefix("file://")
    if path.startswith("memory://"):
        raise UsageError(
            f"{path} is in the memory of one process, and Spark reads and writes in others: use a directory."
        )
    # Options are read on the driver's side; executors may have another working directory.
    return path if "://" in path else os.path.abspath(path)


def _name(text: str | None) -> str | None:
    if text is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", text):
        raise UsageError(f"producer={text!r}: a name has up to 100 letters, digits, dots, dashes and underscores.")
    return text


def _count(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    if not text.isdigit() or int(text) == 0:
        raise UsageError(f"{name}={text!r} is not a number of 1 or more.")
    return int(text)


def _starting(text: str) -> Literal["earliest", "latest"] | dict[int, int]:
    if text.lower() in (EARLIEST, LATEST):
        return cast(Literal["earliest", "latest"], text.lower())
    return _offsets("startingOffsets", text, "earliest, latest")


def _ending(text: str) -> dict[int, int] | None:
    return None if text.lower() == LATEST else _offsets("endingOffsets", text, "latest")


def _offsets(name: str, text: str, words: str) -> dict[int, int]:
    try:
        found: Any = json.loads(text)
        offsets = {int(partition): offset for partition, offset in found.items()}
    except (ValueError, AttributeError):
        offsets = {-1: -1}
    if any(not isinstance(offset, int) or offset < 0 or partition < 0 for partition, offset in offsets.items()):
        raise UsageError(f'{name}={text!r}: write {words}, or an offset for each partition such as {{"0": 100}}.')
    return offsets
