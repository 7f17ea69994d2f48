"""The embedded shell: a run in threads of this process.

One coordinator thread plans, commits and releases; a pool of threads computes the fragments (the kernels release
the GIL); tables live in this process's memory and are rebuilt from state units at the start. Every decision is
`run.core`'s. Any error ends the run, with nothing of the unfinished batch visible: start it again to go on.

The Spark shell has its first batches done by one of these, on tables that Spark's workers find again.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from kedge.errors import ClosedError, CorruptError
from kedge.run.coordinator import Coordinator
from kedge.run.core import Plan, RunState
from kedge.run.directory import RunDirectory
from kedge.run.inputs import read_parts, share
from kedge.run.node import Part, Places, assemble
from kedge.run.options import Options
from kedge.run.restore import HostTables, MemoryTables


class Embedded:
    """A coordinator and its workers in one process."""

    def __init__(self, run: Coordinator, options: Options, tables: HostTables | None = None) -> None:
        self._run = run
        self._options = options
        self._program = run.query.program(run.definition.tasks)
        self._tables = tables or MemoryTables(
            self._program, run.directory.store, run.definition.id, lambda: self.state
        )
        threads = options.threads or os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(threads, "kedge-fragment") if threads > 1 else None
        self._places = Places.of(run.directory, run.definition.id, run.into)
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None

    @staticmethod
    def start(directory: RunDirectory, options: Options) -> Embedded:
        """Claim the run and go on with it."""
        shell = Embedded(Coordinator(directory), options)
        shell.begin()
        return shell

    def begin(self) -> None:
        """Go on in a thread until told to stop."""
        name = f"kedge-run {self._run.directory.path}"
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)
        self._thread.start()

    @property
    def state(self) -> RunState:
        """The run at its newest batch."""
        return self._run.state

    def step(self) -> bool:
        """One batch, if there is anything to do: plan, fragments, assembly, commit, release."""
        plan = self._run.plan(self._options.nodes or 1, self._options.rows_max)
        if plan is None:
            return False
        try:
            self._commit(plan, self._fragments(plan))
        except CorruptError as error:
            raise self._run.taken_over() or error from error
        return True

    def _fragments(self, plan: Plan) -> list[Part]:
        """Partial results by unit, in the order of (input, partition, offset) at any number of threads."""
        mapped = map if self._pool is None else self._pool.map
        return list(read_parts(self._program, self._run.streams, plan, plan.ranges, mapped))

    def _commit(self, plan: Plan, parts: Sequence[Part]) -> None:
        with self._tables.attempt(plan.epoch) as tables:
            manifests = [
                self._assemble(
                    self._program,
                    plan,
                    node,
                    share(parts, node, plan.nodes, self._program.tasks),
                    tables,
                    self._places,
                    attempt=plan.nonce[:8],
                )
                for node in range(plan.nodes)
            ]
        self._run.commit(plan, manifests)

    _assemble = staticmethod(assemble)

    def _loop(self) -> None:
        """Steps until told to stop, until the last window is closed, or until something fails."""
        try:
            while not self._stop.is_set() and not self.state.final:
                self._wake.clear()
                if not self.step():
                    self._wake.wait(self._options.poll_ms / 1000)
        except BaseException as error:
            self._failure = error
        finally:
            if self._pool is not None:
                self._pool.shutdown(wait=False, cancel_futures=True)
            with self._run.turn:
                self._run.turn.notify_all()

    def drain(self) -> None:
        """Wait until the input that is durable now is committed."""
        self._run_until(self._run.drained())

    def finish(self) -> None:
        """Drain, close every window, and stop."""
        self._run.directory.ask_finish()
        self._run_until(lambda: self.state.final)
        self.stop()

    def _run_until(self, done: Callable[[], bool]) -> None:
        if self._thread is None:
            while not done() and self.step():
                pass
        else:
            self._wake.set()
            with self._run.turn:
                self._run.turn.wait_for(lambda: done() or not self.is_active())
        self._raise_failure()
        if not done():
            raise ClosedError(
                f"The run in {self._run.directory.path} was stopped before it got there. Start it again."
            )

    def stop(self) -> None:
        """Stop after the batch that is under way."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        if self._pool is not None:
            self._pool.shutdown(wait=True)
        self._tables.close()
        self._raise_failure()

    def wait(self, timeout_s: float | None) -> bool:
        """Wait for the end; whether it has come."""
        if self._thread is not None:
            self._thread.join(timeout_s)
        self._raise_failure()
        return not self.is_active()

    def is_active(self) -> bool:
        """Whether the coordinator thread goes on."""
        return self._thread is not None and self._thread.is_alive() and self._failure is None

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
