"""A run as its user holds it: look at it, wait for it, stop it."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Protocol

from kedge.run.directory import RunDirectory
from kedge.run.options import Options
from kedge.run.status import Status, status_of


class Shell(Protocol):
    """What carries a run out: threads of this process, or Spark."""

    def drain(self) -> None:
        """Return when all input that was durable at the call is in committed batches."""
        ...

    def finish(self) -> None:
        """Drain, close every window, and stop."""
        ...

    def stop(self) -> None:
        """Stop after the batch that is under way; raises what made the run fail."""
        ...

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until the run has ended or failed; whether it has. Raises what made it fail."""
        ...

    def is_active(self) -> bool:
        """Whether the run is going on."""
        ...


class Run:
    """A query being executed in a directory; the directory outlives this object, the process and the machine."""

    def __init__(self, directory: RunDirectory, shell: Shell) -> None:
        self.path = directory.path
        self._directory = directory
        self._shell = shell

    @staticmethod
    def start(directory: RunDirectory, options: Options, spark: Any) -> Run:
        """Claim the directory's ledger and begin."""
        if spark is None:
            from kedge.run.embedded import Embedded

            return Run(directory, Embedded.start(directory, options))
        from importlib import import_module

        # The Spark room lies above this one and registers nothing here: it is loaded only when asked for.
        shell = import_module("kedge.spark.runner").start(directory, options, spark)
        return Run(directory, shell)

    def status(self) -> Status:
        """Where the run is, from its ledger."""
        return status_of(self._directory)

    def drain(self) -> None:
        """Wait until all input that is durable now is in committed batches."""
        self._shell.drain()

    def finish(self) -> None:
        """Take all input, close every window, and end the run for good."""
        self._shell.finish()

    def stop(self) -> None:
        """Stop; the same directory can be started again, here or on Spark."""
        self._shell.stop()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the run's end; False when it still goes on after `timeout_s`."""
        return self._shell.wait(timeout_s)

    @property
    def active(self) -> bool:
        """Whether the run is going on."""
        return self._shell.is_active()

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<kedge.Run {self.path}{'' if self.active else ' (stopped)'}>"

    def _repr_html_(self) -> str:
        return self.status().to_html()
