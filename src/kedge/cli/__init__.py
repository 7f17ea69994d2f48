"""The `kedge` command: one file a command.

A command module has `HELP` (one line), `arguments(parser)` and `run(args) -> int`. Heavy imports belong inside
`run`, so that `kedge --help` is quick. Every command takes `--json`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import sys
from collections.abc import Sequence
from types import ModuleType

from kedge.errors import KedgeError


def commands() -> dict[str, ModuleType]:
    """The command modules by name, found by listing this folder."""
    names = sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))
    return {name: importlib.import_module(f"{__name__}.{name}") for name in names}


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(prog="kedge", description="Durable, rewindable, elastic pipelines.")
    subparsers = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, module in commands().items():
        sub = subparsers.add_parser(name, help=module.HELP, description=module.HELP)
        sub.add_argument("--json", action="store_true", help="print one JSON document")
        module.arguments(sub)
        sub.set_defaults(run=module.run)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; a KedgeError becomes one line and exit code 2."""
    args = parser().parse_args(argv)
    try:
        return int(args.run(args))
    except KedgeError as error:
        if args.json:
            print(json.dumps({"error": error.code, "message": str(error)}))
        else:
            print(f"kedge {args.command}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        sys.stderr.close()
        return 0
