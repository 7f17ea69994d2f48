"""Runs: the batch protocol and its embedded shell."""

from kedge.run.options import Options
from kedge.run.query import Query, sql
from kedge.run.run import Run
from kedge.run.status import Status

__all__ = ["Options", "Query", "Run", "Status", "sql"]
