"""Verify and repair of object streams: every object that the ledger names, and the documents beside it.

Repair keeps what checks: a unit whose object is damaged or gone is named `lost` by a record, so that its rows are
skipped and all other offsets stay right. A damaged record of the ledger is not guessed at: restore that object.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from kedge.errors import CorruptError, UsageError
from kedge.host import Host
from kedge.streams import description, document
from kedge.streams.committer import Committer
from kedge.streams.contents import FOLDER
from kedge.streams.index import UnitInfo, header_of
from kedge.streams.objects import Objects
from kedge.streams.registers import FLOORS, KEPT
from kedge.streams.verifying import Checked, Problem, unit_problems


def check_objects(host: Host, path: str, what: description.Description, checked: Checked) -> None:
    """Add what is wrong with an object stream, apart from its description."""
    for name, problem in _documents(host, path):
        checked.problems.append(Problem(name, problem))
    manifest = Objects(host, path, what.id, what.partitions, takeover=False).manifest
    try:
        manifest.refresh()
    except CorruptError as error:
        checked.problems.append(Problem("ledger", f"byte 0: {error}"))
        return
    for unit in (unit for units in manifest.units for unit in units):
        try:
            data = manifest.file(unit)
        except CorruptError:
            checked.problems.append(
                Problem(unit.file, "byte 0: it is not there", unit.partition, unit.first_offset)
            )
            continue
        for problem in _unit(data, unit, what.schema):
            checked.problems.append(Problem(unit.file, problem, unit.partition, unit.first_offset))
        checked.units += 1
        checked.rows += unit.rows
        checked.bytes += unit.bytes
    checked.rows_lost += sum(rows for _, _, rows in manifest.lost)


def _unit(data: memoryview, unit: UnitInfo, schema: pa.Schema) -> Iterator[str]:
    try:
        header = header_of(data, unit)
    except CorruptError as error:
        yield str(error)
        return
    # Up to its own end: another unit of the pack may follow at once.
    yield from unit_problems(data[: unit.start + unit.bytes], header, unit.start, schema)


def _documents(host: Host, path: str) -> Iterator[tuple[str, str]]:
    """The documents of registers that do not check."""
    store = host.store(path)
    for name in [name for folder in (FLOORS, KEPT, "subscriptions") for name in store.list(folder)]:
        try:
            found = document.parse(store.get(name), f"{path}/{name}")["numbers"]
            _ = [int(number) for number in found]
        except FileNotFoundError:
            continue
        except (CorruptError, KeyError, TypeError, ValueError) as error:
            yield name, f"byte 0: {error}"


def mend_objects(
    host: Host, path: str, what: description.Description, done: list[str], dropped: list[str]
) -> tuple[int, int]:
    """Repair an object stream; the rows that are kept and those that are lost."""
    store = host.store(path)
    for name, problem in list(_documents(host, path)):
        store.delete(name)  # without it nothing more is deleted: the register starts again lower
        dropped.append(f"{name}: {problem}; it starts again from what else is there")
    found = Checked()
    manifest = Objects(host, path, what.id, what.partitions, takeover=True).manifest
    try:
        manifest.refresh()
    except CorruptError as error:
        raise UsageError(
            f"{path}: a record of the ledger is damaged. Restore its object from a copy: {error}"
        ) from error
    check_objects(host, path, what, found)
    bad = {(problem.partition, problem.first_offset) for problem in found.problems}
    units = [unit for each in manifest.units for unit in each]
    lost = [unit for unit in units if (unit.partition, unit.first_offset) in bad]
    if lost:
        committer = Committer(host, path, what.id, what.partitions, takeover=True, io=None)
        committer.lose(lost)
        done.append(f"ledger: a record says which rows of {len({unit.file for unit in lost})} objects are lost")
        dropped += [
            f"{unit.file}: {unit.rows} rows of partition {unit.partition} from offset {unit.first_offset} on are lost"
            for unit in lost
        ]
    _put_away(host, path, lost, done)
    return sum(unit.rows for unit in units) - sum(unit.rows for unit in lost), sum(unit.rows for unit in lost)


def _put_away(host: Host, path: str, lost: list[UnitInfo], done: list[str]) -> None:
    """Copies of the damaged objects, for people who want to look."""
    store = host.store(path)
    for name in sorted({unit.file for unit in lost}):
        try:
            store.put(f"damaged/{name.removeprefix(f'{FOLDER}/')}", store.get(name))
        except FileNotFoundError:
            continue
        done.append(f"{name}: a copy is in damaged/")
