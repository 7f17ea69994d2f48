"""One claim on a run: plans its batches and commits them, whichever shell does the work between.

Invariants:
- The claim comes first, then the state is read: nobody else's batch can follow what was read.
- Between a plan and its commit nothing else is planned: a claim has one batch under way.
- `state` is always that of the newest record; it changes only here, by folding what was committed.

It computes nothing and starts no thread; who waits for a commit waits on `turn`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from kedge.ledger import Ledger
from kedge.run.core import Manifest, Plan, RunState, commit_record, plan_batch
from kedge.run.directory import Definition, RunDirectory
from kedge.run.inputs import available_units
from kedge.run.query import reopen
from kedge.run.recover import recover, release, taken_over
from kedge.streams import Stream


class Coordinator:
    """The newest claim on the run in a directory, as long as nobody takes it over."""

    def __init__(self, directory: RunDirectory) -> None:
        self.directory = directory
        self.query, self.into, self.definition = reopen(directory)
        self.streams = self.query.streams
        self.turn = threading.Condition()
        self._ledger: Ledger = directory.ledger()
        self.epoch = self._ledger.claim()
        self.state: RunState = recover(directory, self._ledger, self.into)

    def plan(self, nodes: int, rows_max: int) -> Plan | None:
        """The next batch, or None when there is nothing to do."""
        return next_plan(self.directory, self.definition, self.streams, self.state, nodes, rows_max)

    def commit(self, plan: Plan, manifests: Sequence[Manifest]) -> None:
        """Make the batch true, and delete what it frees."""
        record = commit_record(
            self.state,
            plan,
            manifests,
            result_partitions=self.into.partitions,
            now_us=self.directory.host.clock.now_us(),
        )
        self._ledger.commit(record)
        self.state = release(self.directory, self._ledger, self.state)
        with self.turn:
            self.turn.notify_all()

    def taken_over(self) -> BaseException | None:
        """The reason for a failure, if it is that somebody else has claimed the run."""
        return taken_over(self.directory, self.epoch)

    def drained(self) -> Callable[[], bool]:
        """Whether the input that is durable at this call is committed by the time that the answer is asked."""
        goal = {(name, p): end for name, s in self.streams.items() for p, end in enumerate(s.ends())}
        return lambda: all(self.state.positions.get(key, 0) >= end for key, end in goal.items())


def next_plan(
    directory: RunDirectory,
    definition: Definition,
    streams: Mapping[str, Stream],
    state: RunState,
    nodes: int,
    rows_max: int,
) -> Plan | None:
    """The batch that follows `state`, of what is durable now; None when there is nothing to do. Claims nothing."""
    return plan_batch(
        state,
        available_units(state, streams),
        nonce=directory.host.rng.token(),
        nodes=nodes,
        rows_max=rows_max,
        lag_us=definition.lag_us,
        finish=directory.finish_asked(),
        now_us=directory.host.clock.now_us(),
    )
