"""The Spark shell of a run: Structured Streaming does the work, the driver claims and commits.

    kedge-run source (plan; fragments in read tasks) -> exchange by node -> mapInArrow (assembly) -> foreachBatch
    (commit in the ledger)

Spark's own checkpoint is a fresh temporary directory for each claim and is thrown away: the ledger says where the run
is. Every decision is `run.core`'s, as in the embedded shell, and both shells continue the same directory.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from kedge import errors
from kedge.errors import ClosedError, KedgeError, UnavailableError
from kedge.ledger import Ledger
from kedge.run.core import Manifest, Plan, RunState, commit_record
from kedge.run.directory import RunDirectory
from kedge.run.options import Options
from kedge.run.query import reopen
from kedge.run.recover import recover, release
from kedge.spark.assembler import MANIFESTS, Assembler
from kedge.spark.planner import NAME, RunSource

_POLL_S = 0.02


def start(directory: RunDirectory, options: Options, spark: SparkSession) -> SparkShell:
    """Claim the run and start its streaming query."""
    return SparkShell(directory, options, spark)


class SparkShell:
    """A run on Spark, as its driver holds it."""

    def __init__(self, directory: RunDirectory, options: Options, spark: SparkSession) -> None:
        self._directory = directory
        query, self._into, self._definition = reopen(directory)
        self._streams = query.streams
        self._ledger: Ledger = directory.ledger()
        self._epoch = self._ledger.claim()
        self._state: RunState = recover(directory, self._ledger, self._into)
        self._failure: BaseException | None = None
        self._checkpoint = tempfile.mkdtemp(prefix="kedge-spark-")
        self._query = self._start(spark, options, _slots(spark))

    def _start(self, spark: SparkSession, options: Options, slots: int) -> Any:
        spark.dataSource.register(RunSource)
        nodes = options.nodes or min(slots, self._definition.tasks)
        given = {
            "epoch": self._epoch,
            "nodes": nodes,
            "slots": slots,
            "rows_max": options.rows_max,
            "lag_us": self._definition.lag_us,
        }
        path = os.path.abspath(self._directory.path)
        source = spark.readStream.format(NAME).option("path", path).option("run", json.dumps(given))
        assembler = Assembler(path, options.tables or _tables_directory(spark))
        frame = source.load().repartitionById(nodes, "node").mapInArrow(assembler, MANIFESTS)
        writer = frame.writeStream.foreachBatch(self._commit).queryName(f"kedge {self._definition.id[:8]}")
        return writer.option("checkpointLocation", self._checkpoint).start()

    def _commit(self, frame: DataFrame, batch_id: int) -> None:
        """Make a batch true; Spark's batch id is not looked at."""
        try:
            rows = frame.collect()
            plan = Plan.from_json(json.loads(rows[0]["plan"]))
            record = commit_record(
                self._state,
                plan,
                [Manifest.from_json(json.loads(row["manifest"])) for row in rows],
                result_partitions=self._into.partitions,
                now_us=self._directory.host.clock.now_us(),
            )
            self._ledger.commit(record)
            self._state = release(self._directory, self._ledger, self._state)
        except BaseException as error:
            self._failure = error
            raise

    def drain(self) -> None:
        """Wait until the input that is durable now is committed."""
        goal = {(name, p): end for name, s in self._streams.items() for p, end in enumerate(s.ends())}
        self._run_until(lambda: all(self._state.positions.get(key, 0) >= end for key, end in goal.items()))

    def finish(self) -> None:
        """Drain, close every window, and stop."""
        self._directory.ask_finish()
        self._run_until(lambda: self._state.final)
        self.stop()

    def _run_until(self, done: Callable[[], bool]) -> None:
        while not done():
            if not self._query.isActive:
                self._raise_failure()
                raise ClosedError(
                    f"The run in {self._directory.path} was stopped before it got there. Start it again."
                )
            time.sleep(_POLL_S)

    def stop(self) -> None:
        """Stop the query; a batch that was under way never happened."""
        self._query.stop()
        shutil.rmtree(self._checkpoint, ignore_errors=True)
        self._raise_failure()

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until the last window is closed, or the query has failed; whether it has ended."""
        give_up = None if timeout_s is None else time.monotonic() + timeout_s
        while self._query.isActive and not self._state.final:
            if give_up is not None and time.monotonic() >= give_up:
                return False
            time.sleep(_POLL_S)
        self.stop()
        return True

    def is_active(self) -> bool:
        """Whether the query goes on."""
        return bool(self._query.isActive) and not self._state.final

    def _raise_failure(self) -> None:
        """What made the query fail, as the error it was where it happened."""
        failure, self._failure = self._failure, None
        if failure is not None and isinstance(failure, KedgeError):
            raise failure
        broken = None if self._query.isActive else self._query.exception()
        if broken is not None:
            raise as_kedge_error(str(broken)) from broken
        if failure is not None:
            raise failure


def as_kedge_error(text: str) -> KedgeError:
    """The Kedge error inside Spark's report, or an UnavailableError with the report's first lines."""
    found = re.findall(r"kedge\.errors\.(\w+Error): ([^\n]+)", text)
    if found:
        name, message = found[-1]
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, KedgeError):
            return kind(message.strip())
    head = " ".join(text.split())[:500]
    return UnavailableError(f"Spark stopped the run: {head}. Nothing of the unfinished batch counts; start it again.")


def _slots(spark: SparkSession) -> int:
    """How many tasks Spark runs at once, as far as it says."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:  # Spark Connect has no context
        return int(spark.conf.get("spark.default.parallelism", "2") or 2)


def _tables_directory(spark: SparkSession) -> str:
    """Where hosts keep task tables: below Spark's local directory, the same after a restart."""
    local_dirs = str(spark.conf.get("spark.local.dir", tempfile.gettempdir()) or tempfile.gettempdir())
    return os.path.join(local_dirs.split(",")[0], f"kedge-tables-{os.getuid()}")
