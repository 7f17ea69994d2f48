"""Route, work and bytes of each task from a file, standard input or a run's directory: what `kedge plan move` reads.

Columns have one name each, node, work and bytes; the words that people use beside them are understood too.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterable
from typing import Any, cast

from kedge.errors import UsageError

Tasks = tuple[list[int], list[float], list[int]]

_FILE_MAX = 1 << 28
_NAMES = {
    "task": ("task", "tasks"),
    "node": ("node", "route", "assignment", "owner"),
    "work": ("work", "load", "loads"),
    "bytes": ("bytes", "size", "sizes"),
}


def read(path: str) -> Tasks:
    """Route, work and bytes by task; whatever is wrong with them is a UsageError that names the place."""
    if path != "-" and _is_run(path):
        return _ordered(path, _of_run(path))
    text = _stdin() if path == "-" else _text(path)
    if not text.strip():
        raise UsageError(f"{_place(path)} is empty. It needs node, work and bytes for each task.")
    if text.lstrip()[:1] in ("{", "["):
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{_place(path)} can't be read as JSON: {error}.") from None
        return _ordered(path, _from_json(path, document))
    return _ordered(path, _from_csv(path, text))


def _place(path: str) -> str:
    return "Standard input" if path == "-" else path


def _is_run(path: str) -> bool:
    from kedge.host import local

    disk = local().disk
    return disk.exists(path) and disk.is_dir(path)


def _of_run(path: str) -> list[dict[str, Any]]:
    from kedge.host import local
    from kedge.run.directory import RunDirectory
    from kedge.run.loads import loads_of

    found = loads_of(RunDirectory(local(), path))
    if found is None:
        raise UsageError(f"The run in {path} has no batch yet, so there is nothing to move. Start it first.")
    return _columns(path, found)


def _stdin() -> str:
    try:
        return sys.stdin.read().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise UsageError(f"Standard input is not text: {error}. Give CSV or JSON.") from None


def _text(path: str) -> str:
    from kedge.host import local

    disk = local().disk
    if not disk.exists(path):
        raise UsageError(f"There is no file {path}. Name a CSV or JSON file, a run's directory, or - for stdin.")
    file = disk.open(path)
    try:
        size = file.size()
        if size > _FILE_MAX:
            raise UsageError(f"{path} has {size} bytes, too many for a list of tasks.")
        return file.read(size, 0).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not text: {error}. Give CSV or JSON.") from None
    finally:
        file.close()


def _from_csv(path: str, text: str) -> list[dict[str, Any]]:
    first = text.lstrip().splitlines()[0]
    mark = next((mark for mark in (",", ";", "\t") if mark in first), ",")
    try:
        return [dict(row) for row in csv.DictReader(io.StringIO(text.strip()), delimiter=mark)]
    except csv.Error as error:
        raise UsageError(f"{_place(path)} can't be read as CSV: {error}.") from None


def _from_json(path: str, document: Any) -> list[dict[str, Any]]:
    if isinstance(document, dict):
        fields = cast("dict[str, Any]", document)
        if "move" in fields:
            fields = fields["move"]
            if not isinstance(fields, dict):
                raise UsageError(f"{_place(path)}: the run has no batch yet, so there is nothing to move.")
            fields = cast("dict[str, Any]", fields)
        document = fields.get("tasks", fields)
        if isinstance(document, dict) or not _rows(document):
            return _columns(path, fields)
    if not _rows(document):
        raise UsageError(f"{_place(path)}: a list of tasks has an object with node, work and bytes for each task.")
    return cast("list[dict[str, Any]]", document)


def _rows(document: Any) -> bool:
    return isinstance(document, list) and all(isinstance(row, dict) for row in cast("list[Any]", document))


def _columns(path: str, fields: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows from one list for each column."""
    names = [_named(path, fields, name) for name in ("node", "work", "bytes")]
    columns = [fields[name] for name in names]
    wrong = [name for name, column in zip(names, columns, strict=True) if not isinstance(column, list)]
    if wrong:
        raise UsageError(f"{_place(path)}: {wrong[0]} is no list; give one number for each task.")
    if len({len(column) for column in columns}) != 1:
        lengths = ", ".join(f"{name} {len(column)}" for name, column in zip(names, columns, strict=True))
        raise UsageError(f"{_place(path)}: the columns have different lengths ({lengths}); give one for each task.")
    return [{"node": n, "work": w, "bytes": b} for n, w, b in zip(*columns, strict=True)]


def _named(path: str, there: Iterable[str], name: str) -> str:
    """The column that is called `name`, or what people call it."""
    known = {str(key).strip().lower(): key for key in there}
    for other in _NAMES[name]:
        if other in known:
            return known[other]
    raise UsageError(
        f"{_place(path)} has no column {name!r}, only {', '.join(sorted(map(repr, known))) or 'none'}. It needs "
        "node, work and bytes for each task."
    )


def _ordered(path: str, rows: list[dict[str, Any]]) -> Tasks:
    """The columns in the order of the tasks, checked."""
    if not rows:
        raise UsageError(f"{_place(path)} has no tasks. It needs node, work and bytes for each task.")
    names = {name: _named(path, rows[0], name) for name in ("node", "work", "bytes")}
    numbered = any(str(key).strip().lower() in _NAMES["task"] for key in rows[0])
    task_name = _named(path, rows[0], "task") if numbered else ""
    found: dict[int, tuple[int, float, int]] = {}
    for number, row in enumerate(rows):
        where = f"{_place(path)}, row {number + 1}"
        task = int(_number(where, row, task_name, whole=True)) if numbered else number
        if task in found:
            raise UsageError(f"{where}: task {task} is there twice. Give each task one row.")
        found[task] = (
            int(_number(where, row, names["node"], whole=True)),
            _number(where, row, names["work"]),
            int(_number(where, row, names["bytes"], whole=True)),
        )
    if sorted(found) != list(range(len(found))):
        missing = next(task for task in range(len(found)) if task not in found)
        raise UsageError(
            f"{_place(path)}: tasks are numbered 0, 1, 2, ... without gaps; of {len(found)} tasks, {missing} is "
            "missing."
        )
    ordered = [found[task] for task in range(len(found))]
    return [node for node, _, _ in ordered], [work for _, work, _ in ordered], [size for _, _, size in ordered]


def _number(where: str, row: dict[str, Any], name: str, *, whole: bool = False) -> float:
    """A cell as a number; whole ones stay exact however large they are."""
    value = row.get(name)
    try:
        if isinstance(value, bool) or value is None:
            raise ValueError
        try:
            return int(value) if not isinstance(value, float) else _float(value, whole=whole)
        except ValueError:
            return _float(float(value), whole=whole)
    except (ValueError, TypeError, OverflowError):
        kind = "a whole number" if whole else "a number"
        raise UsageError(f"{where}: {name} is {value!r}, which can't be read as {kind}.") from None


def _float(value: float, *, whole: bool = False) -> float:
    if whole and value != int(value):
        raise ValueError
    return int(value) if value == value and abs(value) < 1 << 53 and value == int(value) else value
