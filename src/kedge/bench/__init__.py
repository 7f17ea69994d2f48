"""Benchmarks: one module each with `run(quick, out) -> list[Figure]`; this file prints what they return.

A figure that has an aim says whether it is met; one that could not be measured has `met=None` and a `why`. Figures
without an aim (a rival's, a part of a split) stand in the table and in the file; `--json` prints the aims. Rivals are
measured in the same run. A module never prints to standard output (`note()` writes to standard error).
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import platform
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kedge.errors import UsageError


@dataclass(frozen=True)
class Figure:
    """One measured number beside the aim it is held against."""

    figure: str
    value: float | None
    unit: str
    aim: str = ""
    met: bool | None = None
    why: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The printed form; `why` only where there is one."""
        return {key: value for key, value in asdict(self).items() if key != "why" or value is not None}


def note(text: str) -> None:
    """Progress for the person who waits; never part of the result."""
    print(text, file=sys.stderr, flush=True)


def names() -> list[str]:
    """The benchmarks that exist: the modules of this folder."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))


def machine() -> dict[str, Any]:
    """Where a result was measured: it is written beside every result."""
    here = Path(__file__).parent
    try:
        commit = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=here, capture_output=True, text=True, check=False
        ).stdout.strip()
    except OSError:
        commit = ""
    return {
        "commit": commit or None,
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def main(name: str, *, quick: bool, as_json: bool, out: str) -> int:
    """Run benchmark `name`, print its figures, and write them to `out/NAME.json`."""
    if name not in names():
        raise UsageError(f"There is no benchmark {name!r}. There are: {', '.join(names())}.")
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    figures: list[Figure] = importlib.import_module(f"{__name__}.{name}").run(quick=quick, out=folder)
    rows = [figure.to_json() for figure in figures]
    written = folder / f"{name}{'-quick' if quick else ''}.json"
    written.write_text(json.dumps({"machine": machine(), "quick": quick, "figures": rows}, indent=1) + "\n")
    if as_json:
        print(json.dumps([row for row in rows if row["aim"]], indent=1))
    else:
        _table(name, figures)
    return 0


def _table(name: str, figures: list[Figure]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"kedge bench {name}")
    for column in ("figure", "value", "unit", "aim", "met"):
        table.add_column(column, justify="right" if column == "value" else "left")
    for row in figures:
        value = "-" if row.value is None else f"{row.value:,.4g}"
        met = {True: "yes", False: "no", None: f"not measured: {row.why}" if row.aim else ""}[row.met]
        table.add_row(row.figure, value, row.unit, row.aim, met)
    Console().print(table)
