"""`kedge store`: look at the versions of a versioned store, and move between them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kedge.errors import UsageError

if TYPE_CHECKING:
    from kedge.state import Store

HELP = "versions of a store of sets, maps, counters and lists: list, show, compare, roll back, replay, compact"

SHOWN = 20  # members of one structure, unless --all


def arguments(parser: argparse.ArgumentParser) -> None:
    """The actions of `kedge store`, each with the store's URL first."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, text: str) -> argparse.ArgumentParser:
        sub = actions.add_parser(name, help=text, description=text)
        sub.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON document")
        sub.add_argument("url", help="a directory, or redis://host:port/db?name=kedge")
        return sub

    versions = action("versions", "all versions, with the size of each one's changes")
    versions.add_argument("--picture", metavar="FILE", help="also draw them, as .svg or .png")
    show = action("show", "what the structures hold, now or at a version")
    show.add_argument("--version", type=int, help="default: now")
    show.add_argument("--structure", help="only this one")
    show.add_argument("--all", action="store_true", help=f"all members, not the first {SHOWN}")
    diff = action("diff", "what differs between two versions")
    rollback = action("rollback", "make an older version current (or a later one again, with --forward)")
    rollback.add_argument("version", type=int)
    rollback.add_argument("--forward", action="store_true", help="go forwards")
    replay = action("replay", "the commands that lead from one version to another")
    replay.add_argument("--raw", action="store_true", help="those that were called, not the shortest ones")
    replay.add_argument("--into", metavar="URL", help="apply them to this store and make a version there")
    for sub in (diff, replay):
        sub.add_argument("--structure", help="only this one")
        sub.add_argument("start", type=int)
        sub.add_argument("end", type=int)
    compact = action("compact", "drop versions; their changes go into the next one that stays")
    compact.add_argument("--keep", type=int, nargs="+", metavar="VERSION", help="keep these")
    compact.add_argument("--count", type=int, help="keep at most so many")
    compact.add_argument("--age", type=float, metavar="SECONDS", help="keep those that are younger")
    compact.add_argument("--bytes", type=int, help="keep the newest that fit")


def run(args: argparse.Namespace) -> int:
    """Carry out one action."""
    from kedge.state import open_store

    writes = args.action in ("rollback", "compact")
    if writes:
        open_store(args.url, read_only=True).close()  # a mistyped place is an error, not a new store
    with open_store(args.url, read_only=not writes) as store:
        document, lines = ACTIONS[args.action](store, args)
        if args.json:
            print(json.dumps(document, default=_plain))
        else:
            for line in lines:
                print(line)
    return 0


Answer = tuple[Any, Iterator[str]]


def _versions(store: Store, args: argparse.Namespace) -> Answer:
    versions = store.versions()
    if args.picture:
        from kedge.cli._store_picture import draw

        draw(versions, store.version, args.picture)
    document = {"current": store.version, "versions": [version.to_json() for version in versions]}

    def lines() -> Iterator[str]:
        yield f"{'version':>9}  {'made (UTC)':19}  {'cells':>10}  {'bytes':>12}  key"
        for version in versions:
            here = "*" if version.number == store.version else " "
            made, key = _time(version.at_us), version.key or ""
            line = f"{here}{version.number:>8}  {made:19}  {version.cells:>10,}  {version.bytes:>12,}  {key}"
            yield line.rstrip()

    return document, lines()


def _show(store: Store, args: argparse.Namespace) -> Answer:
    place: Any = store if args.version is None else store.at(args.version)
    found: dict[str, Any] = {}
    specs = store.structures()
    if args.structure is not None and args.structure not in specs:
        raise UsageError(f"There is no structure {args.structure!r}. There are: {', '.join(specs) or 'none'}.")
    for name, spec in specs.items():
        if args.structure in (None, name):
            structure = getattr(place, spec.kind)(name)
            contents = _contents(spec.kind, structure)
            size = len(contents) if isinstance(contents, list) else None
            shown: Any = contents if args.all or size is None else contents[:SHOWN]
            found[name] = {"kind": spec.kind, "scheme": spec.scheme, "size": size, "contents": shown}

    def lines() -> Iterator[str]:
        for name, one in found.items():
            size = "" if one["size"] is None else f", {one['size']:,} in all"
            yield f"{name} ({one['kind']}, {one['scheme']}{size})"
            for member in one["contents"] if one["size"] is not None else [one["contents"]]:
                yield f"  {_text(member)}"

    return {"version": args.version, "structures": found}, lines()


def _contents(kind: str, structure: Any) -> Any:
    """A counter's value, or a list: members, [field, value] pairs, elements, [member, score] pairs."""
    if kind == "counter":
        return structure.value
    if kind == "set":
        return sorted(structure, key=_text)
    if kind == "map":
        return sorted(([field, value] for field, value in structure.items()), key=_text)
    return structure.to_list() if kind == "list" else [list(pair) for pair in structure.range()]


def _diff(store: Store, args: argparse.Namespace) -> Answer:
    found = store.changes(args.start, args.end, structure=args.structure)
    changes = sorted(found, key=lambda change: (change.structure, _text(change.cell)))

    def lines() -> Iterator[str]:
        for change in changes:
            sign = "+" if change.old is None else "-" if change.new is None else "~"
            cell = "" if change.cell is None else f" {_text(change.cell)}"
            values = "" if change.kind == "set" else f": {_text(change.old)} -> {_text(change.new)}"
            yield f"{sign} {change.structure}{cell}{values}"

    return [asdict(change) for change in changes], lines()


def _rollback(store: Store, args: argparse.Namespace) -> Answer:
    version = (store.forward if args.forward else store.rollback)(args.version)
    return {"current": version}, iter([f"{args.url} is at version {version}."])


def _replay(store: Store, args: argparse.Namespace) -> Answer:
    commands = store.replay(args.start, args.end, raw=args.raw, structure=args.structure)
    version = None
    if args.into:
        from kedge.state import open_store

        with open_store(args.into) as target:
            for command in commands:
                command.apply(target)
            version = target.checkpoint()
    document = {"commands": [asdict(command) for command in commands], "into": args.into, "version": version}

    def lines() -> Iterator[str]:
        for command in commands:
            yield f"{command.version:>8}  {command}"
        if args.into:
            yield f"{args.into} is at version {version}."

    return document, lines()


def _compact(store: Store, args: argparse.Namespace) -> Answer:
    if all(limit is None for limit in (args.keep, args.count, args.age, args.bytes)):
        raise UsageError("Say what to keep: --keep, --count, --age or --bytes.")
    before = len(store.versions())
    kept = store.compact(args.keep, count=args.count, age_seconds=args.age, bytes=args.bytes)
    return {"kept": kept}, iter([f"{len(kept)} of {before} versions are left."])


ACTIONS: dict[str, Callable[[Store, argparse.Namespace], Answer]] = {
    "versions": _versions,
    "show": _show,
    "diff": _diff,
    "rollback": _rollback,
    "replay": _replay,
    "compact": _compact,
}


def _time(at_us: int) -> str:
    return datetime.fromtimestamp(at_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _text(value: Any) -> str:
    """A value for people; a pair as `field: value`."""
    if isinstance(value, list) and len(value) == 2:
        return f"{_text(value[0])}: {_text(value[1])}"
    return "nothing" if value is None else value if isinstance(value, str) else repr(value)


def _plain(value: Any) -> Any:
    """Bytes in JSON: as text where they are text."""
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    raise TypeError(f"{value!r} has no place in JSON")
