"""The TPC-H tables and queries, made by DuckDB's extension in an environment of its own.

Nothing of them is shipped: a virtual environment gets duckdb and the extension (MIT) from PyPI, and its generator
makes the rows; the texts are those of the extension, which Spark reads as they are. `KEDGE_TPCH_ENV` names a folder
where the environment is kept; else it is made anew below the folder of the tables.
"""

from __future__ import annotations

import json
import os
import subprocess
import venv
from pathlib import Path

from kedge.errors import UnavailableError

DUCKDB = "1.5.5"
TABLES = ("customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier")
_SECONDS_MAX = 600

_MAKE = """
import json, os, sys
import duckdb, duckdb_extension_tpch
folder, scale = sys.argv[1:]
base = os.path.dirname(duckdb_extension_tpch.__file__)
extension = f"{base}/extensions/v{duckdb.__version__}/tpch.duckdb_extension"
db = duckdb.connect(config={"threads": 2})
db.execute(f"LOAD '{extension}'")
db.execute(f"CALL dbgen(sf={scale})")
for (table,) in db.execute("SELECT table_name FROM information_schema.tables").fetchall():
    os.makedirs(f"{folder}/{table}", exist_ok=True)
    rows = db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    parts = 8 if rows > 10_000 else 1
    for part in range(parts):
        where = f"WHERE rowid * {parts} // {rows} = {part}"
        db.execute(f"COPY (SELECT * FROM {table} {where}) TO '{folder}/{table}/{part}.parquet' (FORMAT parquet)")
queries = dict(db.execute("SELECT query_nr, query FROM tpch_queries()").fetchall())
with open(f"{folder}/queries.json", "w") as file:
    json.dump(queries, file)
"""


def make(folder: Path, scale: float) -> dict[int, str]:
    """The tables as folders of Parquet in `folder`, and the text of each query by its number."""
    folder.mkdir(parents=True, exist_ok=True)
    python = _environment(Path(os.environ.get("KEDGE_TPCH_ENV") or folder / "environment"))
    _run([str(python), "-c", _MAKE, str(folder), str(scale)], "DuckDB made no TPC-H tables")
    texts = json.loads((folder / "queries.json").read_text())
    return {int(number): text.strip().rstrip(";") for number, text in texts.items()}


def _environment(root: Path) -> Path:
    """A Python that has duckdb and the extension; it counts as made when its mark is there."""
    place = root / f"duckdb-{DUCKDB}"
    python, mark = place / "bin" / "python", place / "made"
    if not mark.exists():
        venv.create(place, with_pip=True, clear=True)
        wanted = [f"duckdb=={DUCKDB}", f"duckdb-extension-tpch=={DUCKDB}"]
        pip = [
            str(python),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--only-binary",
            ":all:",
        ]
        _run([*pip, *wanted], f"{' and '.join(wanted)} can't be installed from PyPI")
        mark.touch()
    return python


def _run(command: list[str], failed: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS_MAX, check=False)
    if done.returncode:
        raise UnavailableError(f"{failed}:\n{done.stderr[-1000:]}")
