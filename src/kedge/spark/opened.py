"""A run as a process of Spark has it open: planners, read tasks and assemblies of one process share it.

Python workers serve many tasks of many batches; opening a run (its description, streams, compiled kernels) is paid
once for each process and run. What is kept never changes in a run's life.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, field
from functools import lru_cache

from kedge.host import local
from kedge.kernel import Program
from kedge.run.core import RunState
from kedge.run.directory import Definition, RunDirectory
from kedge.run.node import Places
from kedge.run.query import reopen
from kedge.run.recover import follow
from kedge.run.restore import HostTables
from kedge.run.tables import Tables
from kedge.streams import Stream


@dataclass(frozen=True)
class OpenRun:
    """One run's description, streams and program."""

    directory: RunDirectory
    definition: Definition
    streams: dict[str, Stream]
    into: Stream
    program: Program
    _tables: dict[str, HostTables] = field(default_factory=dict[str, HostTables])

    @property
    def places(self) -> Places:
        """Where nodes write."""
        return Places.of(self.directory, self.definition.id, self.into)

    def tables(self, folder: str | None) -> HostTables:
        """This host's tables of the run, in `folder` or below Spark's local directory."""
        chosen = folder or default_folder()
        if chosen not in self._tables:
            files = Tables(chosen, self.definition.id, self.program, self.directory.host)
            self._tables[chosen] = HostTables(files, self.directory.store, self.state)
        return self._tables[chosen]

    def state(self) -> RunState:
        """The run at its ledger's tip, read anew."""
        return follow(self.directory.ledger())


@lru_cache(maxsize=4)
def open_run(path: str, run_id: str) -> OpenRun:
    """The run in the directory `path`; `run_id` tells it from one that was there before."""
    directory = RunDirectory(local(), path)
    query, into, definition = reopen(directory)
    assert definition.id == run_id, "a run's directory is never used for another run"
    return OpenRun(directory, definition, query.streams, into, query.program(definition.tasks))


def default_folder() -> str:
    """In a worker: below Spark's local directory; in local mode the next session finds it again."""
    blocks = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return folder_below(os.path.dirname(blocks) if blocks else tempfile.gettempdir())


def folder_below(local_dir: str) -> str:
    """Where tables live in a local directory of Spark."""
    return os.path.join(local_dir, f"kedge-tables-{os.getuid()}")
