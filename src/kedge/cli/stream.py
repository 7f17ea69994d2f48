"""`kedge stream`: create, append, cat, stat, verify, trim and repair streams in directories."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

from kedge.errors import UsageError

HELP = "make, fill, read, check, trim and repair a stream"
FORMATS = ("arrow", "csv", "parquet")


def arguments(parser: argparse.ArgumentParser) -> None:
    """One sub-command for each thing to do."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, text: str) -> argparse.ArgumentParser:
        sub = actions.add_parser(name, help=text, description=text)
        sub.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON document")
        sub.add_argument("path", help="the stream's directory")
        return sub

    create = action("create", "make an empty stream")
    create.add_argument("columns", nargs="+", metavar="NAME:TYPE", help="a column, for example 'ts:timestamp[us]'")
    create.add_argument("--partitions", type=int, default=1)
    create.add_argument("--event-time", help="the column that says when a row happened")
    append = action("append", "append the rows of files (CSV, Parquet or Arrow IPC)")
    append.add_argument("files", nargs="+")
    append.add_argument("--partition", type=int, default=0)
    append.add_argument("--format", choices=FORMATS, help="default: by the file's name")
    append.add_argument("--producer", help="with --sequence: a repeated append does nothing")
    append.add_argument("--sequence", type=int)
    cat = action("cat", "print rows, or write them to a file")
    cat.add_argument("--partition", type=int)
    cat.add_argument("--start", type=int, default=0)
    cat.add_argument("--end", type=int)
    cat.add_argument("--columns", help="names with commas between")
    cat.add_argument("--out", help="a file; its name says the format")
    cat.add_argument("--format", choices=FORMATS)
    action("stat", "show columns, partitions, sizes and subscriptions")
    action("verify", "check every byte that counts; exit code 1 when something is wrong")
    trim = action("trim", "let go of rows: below an offset, before a time, or what all subscriptions have passed")
    trim.add_argument("below", type=int, nargs="*", help="one offset for all partitions, or one for each")
    trim.add_argument("--older", metavar="TIME", help="units before this event time (ISO 8601, UTC) go too")
    action("repair", "keep every row that still checks, say what was dropped")


def run(args: argparse.Namespace) -> int:
    """Do it."""
    return _ACTIONS[args.action](args)


def _create(args: argparse.Namespace) -> int:
    import pyarrow as pa

    from kedge.streams import stream
    from kedge.streams.schema import parse_type

    fields = [column.rpartition(":") for column in args.columns]
    if not all(name for name, _, _ in fields):
        raise UsageError("A column is written NAME:TYPE, for example fare:int64.")
    schema = pa.schema([pa.field(name, parse_type(kind)) for name, _, kind in fields])
    made = stream(args.path, schema, args.partitions, event_time=args.event_time)
    return _say(
        args, {"path": made.path, "id": made.id, "partitions": made.partitions}, f"{made.path}: stream {made.id}"
    )


def _append(args: argparse.Namespace) -> int:
    from kedge.streams import stream

    with stream(args.path) as there:
        ticket = None
        before = there.ends()[args.partition] if 0 <= args.partition < there.partitions else 0
        for number, file in enumerate(args.files):
            table = _cast(_read_file(file, args.format, there.schema), there.schema)
            sequence = None if args.sequence is None else args.sequence + number
            ticket = there.append(table, args.partition, producer=args.producer, sequence=sequence)
        there.flush()
        end = ticket.wait().end if ticket is not None else before
    done = {"partition": args.partition, "rows": end - before, "end": end}
    return _say(args, done, f"{end - before} rows appended to partition {args.partition}; it ends at {end}")


def _cast(table: Any, schema: Any) -> Any:
    import pyarrow as pa

    missing = [name for name in schema.names if name not in table.column_names]
    if missing:
        raise UsageError(f"The file has no column {', '.join(missing)}; it has {', '.join(table.column_names)}.")
    try:
        return table.select(schema.names).cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise UsageError(f"The file's columns can't be cast to the stream's: {error}") from error


def _format(file: str, given: str | None) -> str:
    ending = file.rpartition(".")[2].lower()
    found = given or {"feather": "arrow", "ipc": "arrow", "arrows": "arrow"}.get(ending, ending)
    if found not in FORMATS:
        raise UsageError(f"{file}: its format is not known. Say --format {'|'.join(FORMATS)}.")
    return found


def _read_file(file: str, given: str | None, schema: Any) -> Any:
    import pyarrow as pa
    from pyarrow import csv, ipc, parquet

    try:
        match _format(file, given):
            case "csv":
                types = {field.name: field.type for field in schema}
                return csv.read_csv(file, convert_options=csv.ConvertOptions(column_types=types))
            case "parquet":
                return parquet.read_table(file)
            case _:
                with pa.memory_map(file) as source:
                    try:
                        return ipc.open_file(source).read_all()
                    except pa.ArrowInvalid:
                        return ipc.open_stream(source).read_all()
    except (OSError, pa.ArrowInvalid) as error:
        raise UsageError(f"{file}: {error}") from error


def _cat(args: argparse.Namespace) -> int:
    from kedge.streams import stream

    there = stream(args.path)
    columns = args.columns.split(",") if args.columns else None
    table = there.to_table(args.partition, args.start, args.end, columns)
    if args.out:
        _write_file(table, args.out, _format(args.out, args.format))
        return _say(
            args, {"rows": table.num_rows, "file": args.out}, f"{table.num_rows} rows written to {args.out}"
        )
    if args.json:
        print(json.dumps(table.to_pylist(), default=str))
        return 0
    from pyarrow import csv

    csv.write_csv(table, sys.stdout.buffer)
    return 0


def _write_file(table: Any, file: str, form: str) -> None:
    import pyarrow as pa
    from pyarrow import csv, ipc, parquet

    if form == "csv":
        csv.write_csv(table, file)
    elif form == "parquet":
        parquet.write_table(table, file)
    else:
        with pa.OSFile(file, "wb") as sink, ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)


def _stat(args: argparse.Namespace) -> int:
    from kedge.streams import stream

    there = stream(args.path)
    parts: list[dict[str, Any]] = []
    for partition, (begin, end) in enumerate(zip(there.begins(), there.ends(), strict=True)):
        units = there.units(partition)
        size = sum(unit.bytes for unit in units)
        parts.append({"partition": partition, "begin": begin, "end": end, "units": len(units), "bytes": size})
    about = {
        "path": there.path,
        "id": there.id,
        "columns": {field.name: str(field.type) for field in there.schema},
        "event_time": there.event_time,
        "run": there.run,
        "partitions": parts,
        "subscriptions": {} if there.run else there.subscriptions(),
    }
    return _say(args, about, "\n".join(_stat_lines(about)))


def _stat_lines(about: dict[str, Any]) -> Iterator[str]:
    yield f"{about['path']}: stream {about['id']}"
    yield "columns: " + ", ".join(f"{name} {kind}" for name, kind in about["columns"].items())
    if about["event_time"]:
        yield f"event time: {about['event_time']}"
    if about["run"]:
        yield f"result of run {about['run'][0]}"
    for part in about["partitions"]:
        yield "partition {partition}: rows {begin} to {end} in {units} units, {bytes:,} bytes".format(**part)
    for name, positions in about["subscriptions"].items():
        yield f"subscription {name}: {positions}"


def _verify(args: argparse.Namespace) -> int:
    from kedge.streams import verify

    found = verify(args.path)
    about: dict[str, Any] = {
        "units": found.units,
        "rows": found.rows,
        "rows_lost": found.rows_lost,
        "bytes": found.bytes,
        "problems": [str(problem) for problem in found.problems],
    }
    lines = [
        *about["problems"],
        f"{found.rows} rows in {found.units} units checked, {len(found.problems)} problems",
    ]
    _say(args, about, "\n".join(lines))
    return 1 if found.problems else 0


def _trim(args: argparse.Namespace) -> int:
    from kedge.streams import stream

    below: list[int] = args.below
    older_us = None if args.older is None else _us(args.older)
    floors = stream(args.path).trim(below[0] if len(below) == 1 else below or None, older_us=older_us)
    return _say(args, {"floors": floors}, f"{args.path}: rows below {floors} are let go")


def _us(text: str) -> int:
    """A time as microseconds since 1970."""
    import pyarrow as pa

    try:
        return pa.scalar(text, pa.string()).cast(pa.timestamp("us")).value
    except pa.ArrowInvalid as error:
        raise UsageError(f"--older {text}: write a time such as 2026-01-31T12:00:00.") from error


def _repair(args: argparse.Namespace) -> int:
    from kedge.streams import repair

    done = repair(args.path)
    about = {"done": done.done, "dropped": done.dropped, "rows_kept": done.rows_kept, "rows_lost": done.rows_lost}
    lines = [*done.done, *done.dropped, f"{done.rows_kept} rows written anew, {done.rows_lost} rows lost"]
    return _say(args, about, "\n".join(lines))


def _say(args: argparse.Namespace, about: dict[str, Any], text: str) -> int:
    print(json.dumps(about) if args.json else text)
    return 0


_ACTIONS: dict[str, Callable[[argparse.Namespace], int]] = {
    "create": _create,
    "append": _append,
    "cat": _cat,
    "stat": _stat,
    "verify": _verify,
    "trim": _trim,
    "repair": _repair,
}
