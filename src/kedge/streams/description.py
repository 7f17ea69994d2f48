"""stream.json: what a stream is. Written once when the stream is created, and once more when it is bound to a run.

It is JSON that people can read, with a checksum over its canonical form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from kedge.errors import ConflictError, CorruptError, UnavailableError, UsageError
from kedge.host import Host, Store, is_url
from kedge.streams import document, layout
from kedge.streams import schema as schemas
from kedge.streams.files import SEGMENT_BYTES

NAME = "stream.json"
COPY = "stream.copy.json"
PARTITIONS_MAX = 10_000
SEGMENTS, OBJECTS = "segments", "ledger"  # what a stream's manifest is, unless a run's ledger is
BOUND = "bound.json"  # of a stream in an object store: won once, by the run that it is the result of


@dataclass(frozen=True)
class Description:
    """The contents of stream.json."""

    id: str
    schema: pa.Schema
    partitions: int
    event_time: str | None
    run: str | None = None  # the run whose ledger is this stream's manifest
    run_id: str | None = None
    segment_bytes: int = SEGMENT_BYTES
    objects: bool = False  # units are objects that the stream's own ledger names, not segments of a directory

    def to_bytes(self) -> bytes:
        """The file."""
        bound = {"run": self.run, "id": self.run_id}
        body: dict[str, Any] = {
            "format": layout.FORMAT,
            "id": self.id,
            "schema": schemas.to_json(self.schema),
            "partitions": self.partitions,
            "event_time": self.event_time,
            "manifest": bound if self.run_id is not None else OBJECTS if self.objects else SEGMENTS,
            "segment_bytes": self.segment_bytes,
        }
        return document.pack(body)


def normal(path: str) -> str:
    """A stream's place as it is used everywhere: no slash at its end, no `file://` before a directory."""
    path = path.removeprefix("file://")
    short = path.rstrip("/")
    return path if short.endswith(":") else short or "/"


def load(host: Host, path: str, name: str = NAME) -> Description | None:
    """Read stream.json, or its copy; None when there is none."""
    try:
        raw = host.store(path).get(name)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UnavailableError(f"{path}/{name} can't be read: {error}.") from error
    body = document.parse(raw, f"{path}/{name}")
    try:
        if body["format"] != layout.FORMAT:
            raise CorruptError(
                f"{path}/{name}: stream format {body['format']}; this Kedge reads {layout.FORMAT}.",
                code="unit-format",
            )
        return _from_json(body)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptError(
            f"{path}/{name} at byte 0: {error!r}. Restore it from a copy.", code="document"
        ) from error


def _from_json(body: Mapping[str, Any]) -> Description:
    manifest = body["manifest"]
    bound: Mapping[str, Any] = {} if manifest in (SEGMENTS, OBJECTS) else manifest
    found = Description(
        id=body["id"],
        schema=schemas.from_json(body["schema"]),
        partitions=int(body["partitions"]),
        event_time=body["event_time"],
        run=bound.get("run"),
        run_id=bound.get("id"),
        segment_bytes=int(body["segment_bytes"]),
        objects=manifest == OBJECTS,
    )
    if len(bytes.fromhex(found.id)) != 16 or not 1 <= found.partitions <= PARTITIONS_MAX:
        raise ValueError("a number is out of its range")
    return found


def create(host: Host, path: str, description: Description) -> Description:
    """Write stream.json, or find that somebody else just did."""
    store = host.store(path)
    try:
        store.put(NAME, description.to_bytes(), if_absent=True)
        store.put(COPY, description.to_bytes())
    except FileExistsError:
        there = load(host, path)
        if there is None and not is_url(path) and not host.disk.is_dir(path):
            raise UsageError(
                f"{path} is a file or lies in one, and a stream is a directory. Give it another name."
            ) from None
        if there is None:
            raise UnavailableError(f"{path}/{NAME} came and went. Try again.") from None
        return there
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise UsageError(f"No stream can be made at {path}: {error}.") from error
    except OSError as error:
        raise UnavailableError(f"{path} can't be written: {error}. Mend the disk, then try again.") from error
    return description


def bind(host: Host, path: str, run: str, run_id: str) -> Description:
    """Make a run's ledger the manifest of this stream, once."""
    if is_url(path):
        _win(host.store(path), path, run, run_id)
        return _bind(host, path, run, run_id)
    try:
        lock = host.disk.lock(f"{path}/bind.lock")
    except BlockingIOError:
        raise UnavailableError(f"{path}: another process is binding this stream. Try again.") from None
    try:
        return _bind(host, path, run, run_id)
    finally:
        lock.close()


def _win(store: Store, path: str, run: str, run_id: str) -> None:
    """Win the right to bind a stream that has no lock; a name that is put if absent has one winner."""
    try:
        store.put(BOUND, document.pack({"run": run, "id": run_id}), if_absent=True)
    except FileExistsError:
        there = document.parse(store.get(BOUND), f"{path}/{BOUND}")
        if there["id"] != run_id:
            raise ConflictError(
                f"{path} is the result of run {there['run']}. Give this run a stream of its own."
            ) from None


def _bind(host: Host, path: str, run: str, run_id: str) -> Description:
    there = load(host, path)
    if there is None:
        raise UsageError(f"{path} is not a stream. Create it first.")
    if there.run_id == run_id:
        return there
    if there.run_id is not None:
        raise ConflictError(f"{path} is the result of run {there.run}. Give this run a stream of its own.")
    bound = replace(there, run=run, run_id=run_id)
    for name in (NAME, COPY):
        host.store(path).put(name, bound.to_bytes())
    return bound


def new(
    host: Host, schema: pa.Schema, partitions: int, event_time: str | None, segment_bytes: int, *, objects: bool
) -> Description:
    """The description of a stream that does not exist yet."""
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise UsageError(f"A stream has 1 to {PARTITIONS_MAX:,} partitions, not {partitions}.")
    if not 1 << 16 <= segment_bytes <= 1 << 40:
        raise UsageError(f"A segment has 64 KiB to 1 TiB, not {segment_bytes} bytes.")
    return Description(
        host.rng.token(),
        schemas.check(schema, event_time),
        partitions,
        event_time,
        None,
        None,
        segment_bytes,
        objects,
    )
