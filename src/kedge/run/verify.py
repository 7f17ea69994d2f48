"""Reads everything that a run's ledger says is there: records, state units, result units.

Nothing is changed and no claim is made, so it may look at a run that is being executed; units that the run releases
meanwhile are not missed. Files that no record names are not looked at: the next claim sweeps them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from kedge.errors import CorruptError
from kedge.host import Store
from kedge.run.core import RunState
from kedge.run.directory import RunDirectory
from kedge.run.query import reopen
from kedge.run.recover import follow, result_units
from kedge.streams import decode_named


@dataclass(frozen=True, slots=True)
class Report:
    """What was read, and what was wrong; `damaged` is empty when all is well."""

    path: str
    version: int
    state_units: int
    result_units: int
    result_rows: int
    damaged: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As the command line prints it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _File:
    """A unit in a file of its own, and whose it is."""

    store: Store
    name: str
    rows: int
    owner: str
    schema: pa.Schema


def verify(directory: RunDirectory, shown: Callable[[Sequence[Any]], Iterable[Any]] = iter) -> Report:
    """Check a run; `shown` may put a progress bar around the files that are read."""
    query, into, definition = reopen(directory)
    ledger = directory.ledger()
    try:
        state = follow(ledger)
    except CorruptError as error:
        return Report(directory.path, 0, 0, 0, 0, (str(error),))
    program, results = query.program(definition.tasks), result_units(ledger)
    store = directory.host.store(definition.into.path)
    files = [
        *(_File(directory.store, u.file, u.rows, definition.id, program.state_schema) for u in state.units),
        *(_File(store, u["file"], u["rows"], into.id, into.schema) for u in results),
    ]
    damaged = [(file, wrong) for file in shown(files) if (wrong := _check(file)) is not None]
    needed = _still_needed(directory, state) if damaged else set[str]()
    return Report(
        path=directory.path,
        version=state.version,
        state_units=len(state.units),
        result_units=len(results),
        result_rows=sum(unit["rows"] for unit in results),
        damaged=tuple(wrong for file, wrong in damaged if file.owner != definition.id or file.name in needed),
    )


def _check(file: _File) -> str | None:
    """What is wrong with a file."""
    try:
        rows = decode_named(file.store.get(file.name), file.owner, file.name, file.schema).num_rows
    except FileNotFoundError:
        return f"{file.name} is committed and not there. Restore it from a copy."
    except CorruptError as error:
        return str(error)
    return None if rows == file.rows else f"{file.name} has {rows} rows, its record says {file.rows}."


def _still_needed(directory: RunDirectory, before: RunState) -> set[str]:
    """The state units that the run needs now: a batch that was committed meanwhile may have released some."""
    return {unit.file for unit in follow(directory.ledger(), before).units}
