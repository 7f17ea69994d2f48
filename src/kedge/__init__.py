"""Kedge: durable, rewindable, elastic pipelines on Spark and embedded.

The public names are listed here and imported on first use: numba and pyspark cost time to import.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from kedge.errors import (
        ClosedError,
        ConflictError,
        CorruptError,
        InternalError,
        KedgeError,
        UnavailableError,
        UsageError,
    )
    from kedge.run import Query, Run, sql
    from kedge.spark.source import register
    from kedge.state.opening import store
    from kedge.state.store import Store
    from kedge.streams import Stream, stream

# public name -> the module that has it
_HOME = {
    "ClosedError": "kedge.errors",
    "ConflictError": "kedge.errors",
    "CorruptError": "kedge.errors",
    "InternalError": "kedge.errors",
    "KedgeError": "kedge.errors",
    "Query": "kedge.run",
    "Run": "kedge.run",
    "Store": "kedge.state.store",
    "Stream": "kedge.streams",
    "UnavailableError": "kedge.errors",
    "UsageError": "kedge.errors",
    "register": "kedge.spark.source",
    "sql": "kedge.run",
    "store": "kedge.state.opening",
    "stream": "kedge.streams",
}

__all__ = [
    "ClosedError",
    "ConflictError",
    "CorruptError",
    "InternalError",
    "KedgeError",
    "Query",
    "Run",
    "Store",
    "Stream",
    "UnavailableError",
    "UsageError",
    "__version__",
    "register",
    "sql",
    "store",
    "stream",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'kedge' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
