"""The embedded shell: a run in threads of this process.

One coordinator thread plans, commits and releases; a pool of threads computes the fragments (the kernels release
the GIL); tables live in this process's memory and are rebuilt from state units at the start. Every decision is
`run.core`'s. Any error ends the run, with nothing of the unfinished batch visible: start it again to go on.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from kedge.errors import ClosedError, CorruptError
from kedge.ledger import Ledger
from kedge.run.core import Plan, RunState, commit_record, plan_batch
from kedge.run.directory import RunDirectory
from kedge.run.inputs import available_units, read_parts, share
from kedge.run.node import Part, Places, assemble
from kedge.run.options import Options
from kedge.run.query import reopen
from kedge.run.recover import recover, release, taken_over
from kedge.run.restore import MemoryTables


class Embedded:
    """A coordinator and its workers in one process."""

    def __init__(self, directory: RunDirectory, options: Options) -> None:
        self._directory = directory
        self._options = options
        query, self._into, self._definition = reopen(directory)
        self._streams = query.streams
        self._program = query.program(self._definition.tasks)
        self._nodes = options.nodes or 1
        threads = options.threads or os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(threads, "kedge-fragment") if threads > 1 else None
        self._places = Places.of(directory, self._definition.id, self._into)
        self._ledger: Ledger = directory.ledger()
        self._epoch = self._ledger.claim()
        self._tables = MemoryTables(self._program, directory.store, self._definition.id)
        self._at(recover(directory, self._ledger, self._into))
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._turn = threading.Condition()
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None

    @staticmethod
    def start(directory: RunDirectory, options: Options) -> Embedded:
        """Claim the run and go on with it."""
        shell = Embedded(directory, options)
        shell._thread = threading.Thread(target=shell._loop, name=f"kedge-run {directory.path}", daemon=True)
        shell._thread.start()
        return shell

    def step(self) -> bool:
        """One batch, if there is anything to do: plan, fragments, assembly, commit, release."""
        plan = plan_batch(
            self.state,
            available_units(self.state, self._streams),
            nonce=self._directory.host.rng.token(),
            nodes=self._nodes,
            rows_max=self._options.rows_max,
            lag_us=self._definition.lag_us,
            finish=self._directory.finish_asked(),
            now_us=self._directory.host.clock.now_us(),
        )
        if plan is None:
            return False
        try:
            self._commit(plan, self._fragments(plan))
        except CorruptError as error:
            raise taken_over(self._directory, self._epoch) or error from error
        return True

    def _fragments(self, plan: Plan) -> list[Part]:
        """Partial results by unit, in the order of (input, partition, offset) at any number of threads."""
        mapped = map if self._pool is None else self._pool.map
        return list(read_parts(self._program, self._streams, plan, plan.ranges, mapped))

    def _commit(self, plan: Plan, parts: Sequence[Part]) -> None:
        manifests = [
            self._assemble(
                self._program,
                plan,
                node,
                share(parts, node, plan.nodes, self._program.tasks),
                self._tables,
                self._places,
                attempt=plan.nonce[:8],
            )
            for node in range(plan.nodes)
        ]
        record = commit_record(
            self.state,
            plan,
            manifests,
            result_partitions=self._into.partitions,
            now_us=self._directory.host.clock.now_us(),
        )
        self._ledger.commit(record)
        self._at(release(self._directory, self._ledger, self.state))

    _assemble = staticmethod(assemble)

    def _at(self, state: RunState) -> None:
        self.state = self._tables.state = state

    def _loop(self) -> None:
        """Steps until told to stop, until the last window is closed, or until something fails."""
        try:
            while not self._stop.is_set() and not self.state.final:
                self._wake.clear()
                worked = self.step()
                with self._turn:
                    self._turn.notify_all()
                if not worked:
                    self._wake.wait(self._options.poll_ms / 1000)
        except BaseException as error:
            self._failure = error
        finally:
            if self._pool is not None:
                self._pool.shutdown(wait=False, cancel_futures=True)
            with self._turn:
                self._turn.notify_all()

    def drain(self) -> None:
        """Wait until the input that is durable now is committed."""
        goal = {(name, p): end for name, s in self._streams.items() for p, end in enumerate(s.ends())}
        self._run_until(lambda: all(self.state.positions.get(key, 0) >= end for key, end in goal.items()))

    def finish(self) -> None:
        """Drain, close every window, and stop."""
        self._directory.ask_finish()
        self._run_until(lambda: self.state.final)
        self.stop()

    def _run_until(self, done: Callable[[], bool]) -> None:
        if self._thread is None:
            while not done() and self.step():
                pass
        else:
            self._wake.set()
            with self._turn:
                self._turn.wait_for(lambda: done() or not self.is_active())
        self._raise_failure()
        if not done():
            raise ClosedError(f"The run in {self._directory.path} was stopped before it got there. Start it again.")

    def stop(self) -> None:
        """Stop after the batch that is under way."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        if self._pool is not None:
            self._pool.shutdown(wait=True)
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
