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
    from kedge.resuming import select_checkpoints
    from kedge.run import Query, Run, sql
    from kedge.spark.resume.api import explain_resume, resume, step
    from kedge.spark.source import register
    from kedge.state import Store
    from kedge.state import open_store as store
    from kedge.streams import Stream, stream

# public name -> the module that has it, and its name there
_HOME = {
    "ClosedError": ("kedge.errors", "ClosedError"),
    "ConflictError": ("kedge.errors", "ConflictError"),
    "CorruptError": ("kedge.errors", "CorruptError"),
    "InternalError": ("kedge.errors", "InternalError"),
    "KedgeError": ("kedge.errors", "KedgeError"),
    "Query": ("kedge.run", "Query"),
    "Run": ("kedge.run", "Run"),
    "Store": ("kedge.state", "Store"),
    "Stream": ("kedge.streams", "Stream"),
    "UnavailableError": ("kedge.errors", "UnavailableError"),
    "UsageError": ("kedge.errors", "UsageError"),
    "explain_resume": ("kedge.spark.resume.api", "explain_resume"),
    "register": ("kedge.spark.source", "register"),
    "resume": ("kedge.spark.resume.api", "resume"),
    "select_checkpoints": ("kedge.resuming", "select_checkpoints"),
    "sql": ("kedge.run", "sql"),
    "step": ("kedge.spark.resume.api", "step"),
    "store": ("kedge.state", "open_store"),
    "stream": ("kedge.streams", "stream"),
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
    "explain_resume",
    "register",
    "resume",
    "select_checkpoints",
    "sql",
    "step",
    "store",
    "stream",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        module, attribute = _HOME[name]
        value = getattr(importlib.import_module(module), attribute)
        globals()[name] = value
        return value
    if name == "move":  # a room that users call by its name
        return importlib.import_module("kedge.move")
    raise AttributeError(f"module 'kedge' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
