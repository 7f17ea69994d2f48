"""A run's directory: `run.json`, `ledger/`, `state/`.

`run.json` is written once, by whoever starts the run first, and holds what may not change between restarts: the
query, the ids of its input and result streams, the number of tasks. Nodes, threads, batch size and the place of
execution may change at every restart, so they are not in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kedge.errors import ConflictError, CorruptError, UsageError
from kedge.host import Host, Store
from kedge.ledger import Ledger

FORMAT = 1
RUN_FILE = "run.json"
STATE = "state"
FINISH = "finish"  # an object: somebody asked that the run ends once its input is used up


@dataclass(frozen=True, slots=True)
class StreamRef:
    """A stream as a run names it: where it was, and which one it is."""

    path: str
    id: str


@dataclass(frozen=True, slots=True)
class Definition:
    """What may not change in a run's life."""

    id: str
    sql: str
    fingerprint: str  # of the parsed query: the same text in another layout is the same query
    inputs: Mapping[str, StreamRef]
    into: StreamRef
    tasks: int
    lag_us: int

    def to_json(self) -> dict[str, Any]:
        """As it stands in run.json."""
        return {
            "format": FORMAT,
            "id": self.id,
            "sql": self.sql,
            "fingerprint": self.fingerprint,
            "inputs": {name: {"path": ref.path, "id": ref.id} for name, ref in self.inputs.items()},
            "into": {"path": self.into.path, "id": self.into.id},
            "tasks": self.tasks,
            "lag_us": self.lag_us,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any], where: str) -> Definition:
        """From run.json."""
        try:
            if data["format"] > FORMAT:
                raise UsageError(
                    f"{where} has format {data['format']}; this Kedge reads up to {FORMAT}. Use a newer Kedge."
                )
            return Definition(
                id=data["id"],
                sql=data["sql"],
                fingerprint=data["fingerprint"],
                inputs={name: StreamRef(ref["path"], ref["id"]) for name, ref in data["inputs"].items()},
                into=StreamRef(data["into"]["path"], data["into"]["id"]),
                tasks=data["tasks"],
                lag_us=data["lag_us"],
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise CorruptError(
                f"{where} is not a run's description ({error!r}). Restore it from a copy."
            ) from error


class RunDirectory:
    """The places of one run on a host."""

    def __init__(self, host: Host, path: str) -> None:
        self.host = host
        self.path = path.rstrip("/")
        self.store: Store = host.store(self.path)

    def ledger(self) -> Ledger:
        """The run's ledger, not yet read."""
        return Ledger(self.store, self.host.rng, self.host.clock)

    def definition(self) -> Definition | None:
        """What run.json says, or None when nobody has started a run here."""
        where = f"{self.path}/{RUN_FILE}"
        try:
            raw = self.store.get(RUN_FILE)
        except FileNotFoundError:
            return None
        except NotADirectoryError:
            raise UsageError(f"{self.path} is a file. A run needs a directory of its own.") from None
        try:
            data = json.loads(raw)
        except ValueError as error:
            raise CorruptError(f"{where} is not JSON ({error}). Restore it from a copy.") from error
        return Definition.from_json(data, where)

    def define(self, wanted: Definition) -> Definition:
        """Start the run, or continue the one that is here; UsageError when it is another."""
        found = self.definition()
        if found is None:
            self._check_place()
            try:
                self.store.put(RUN_FILE, json.dumps(wanted.to_json(), indent=1).encode(), if_absent=True)
                return wanted
            except FileExistsError:
                found = self.definition()
        if found is None:
            raise ConflictError(f"{self.path}: somebody removed the run while it was being started.")
        _check_same(self.path, found, wanted)
        return found

    def _check_place(self) -> None:
        """A stream's directory is no place for a run: their files would mix."""
        try:
            self.store.get("stream.json")
        except FileNotFoundError:
            return
        raise UsageError(f"{self.path} is a stream. Start the run in a directory of its own.")

    def ask_finish(self) -> None:
        """Ask whoever coordinates the run to close all windows once the input is used up."""
        self.store.put(FINISH, b"{}")

    def finish_asked(self) -> bool:
        """Whether somebody has."""
        try:
            self.store.get(FINISH)
        except FileNotFoundError:
            return False
        return True


def _check_same(path: str, found: Definition, wanted: Definition) -> None:
    different = [
        name
        for name, was, now in (
            ("the query", found.fingerprint, wanted.fingerprint),
            ("the inputs", {n: r.id for n, r in found.inputs.items()}, {n: r.id for n, r in wanted.inputs.items()}),
            ("the result stream", found.into.id, wanted.into.id),
            ("the watermark", found.lag_us, wanted.lag_us),
            ("the number of tasks", found.tasks, wanted.tasks),
        )
        if was != now
    ]
    if different:
        raise UsageError(
            f"{path} holds a run that differs in {' and '.join(different)}. Start the changed query in a new "
            "directory, or go on with the old one."
        )
