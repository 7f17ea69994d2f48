"""The Spark shell: a run as a Structured Streaming query.

    planner (a source) -> fragments (its read tasks) -> exchange by node -> assembly (mapInArrow)
                       -> commit (foreachBatch)

Invariants:
- The ledger is the only truth. Spark's checkpoint is a fresh temporary directory for each claim and is thrown away:
  its batch numbers are never used for anything.
- The commit happens in the driver, in the object that made the claim, from the plan and the manifests that came
  through the query; never from a listing.
- Any failure ends the query. Nothing of the unfinished batch is visible; starting again goes on from the ledger.

It runs where the driver runs: on a Spark Connect client the driver's side is the server, which is not supported yet.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kedge import errors
from kedge.errors import ClosedError, UsageError
from kedge.run.core import Manifest, Plan, RunState, commit_record
from kedge.run.directory import RunDirectory
from kedge.run.options import Options
from kedge.run.query import reopen
from kedge.run.recover import recover, release, taken_over
from kedge.spark.anchor import Anchor, wanted
from kedge.spark.nodes import MANIFESTS, Assembly, Warming
from kedge.spark.planner import NAME, RunSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_WATCH_SECONDS = 0.1
# How Spark writes its logs. The default starts a `chmod` for each file, 80 ms a batch, and renames with guarantees
# that a disposable checkpoint does not need. (The name is that of Spark 4.3; older ones keep their default.)
_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


def start(directory: RunDirectory, options: Options, spark: SparkSession) -> SparkRun:
    """Claim the run and go on with it on Spark."""
    if options.host is not None:
        raise UsageError("On Spark a run uses the machines' own clocks and disks: leave `host` out.")
    return SparkRun(directory, options, spark)


class SparkRun:
    """A coordinator in the driver; planner, fragments and assemblies in Spark's Python processes."""

    def __init__(self, directory: RunDirectory, options: Options, spark: SparkSession) -> None:
        self._directory = RunDirectory(directory.host, _absolute(directory.path))
        query, self._into, self._definition = reopen(self._directory)
        own = _session(spark)
        warmed = Warming(self._directory.path, self._definition.id)
        self._warming = threading.Thread(target=warmed.run, args=(own,), name="kedge-warm", daemon=True)
        self._warming.start()
        self._streams = query.streams
        self._ledger = self._directory.ledger()
        self._epoch = self._ledger.claim()
        self.state: RunState = recover(self._directory, self._ledger, self._into)
        self._turn = threading.Condition()
        self._stopping = False
        self._failure: BaseException | None = None
        self._ended = False
        self._anchor: Anchor | None = None
        self._checkpoint = tempfile.mkdtemp(prefix="kedge-spark-", dir=_memory())
        self._query = self._start(own, options)
        self._watcher = threading.Thread(target=self._watch, name=f"kedge-run {directory.path}", daemon=True)
        self._watcher.start()

    def _start(self, spark: SparkSession, options: Options) -> StreamingQuery:
        slots = spark.sparkContext.defaultParallelism
        nodes = min(options.nodes or slots, self._definition.tasks)
        run = {
            "path": self._directory.path,
            "id": self._definition.id,
            "epoch": self._epoch,
            "nodes": nodes,
            "readers": slots,
            "rows_max": options.rows_max,
            "poll_ms": options.poll_ms,
        }
        assembly = Assembly(self._directory.path, self._definition.id, options.tables)
        source = spark.readStream.format(NAME).option("run", json.dumps(run)).load()
        if wanted(spark):
            self._anchor = Anchor(spark, nodes)
            exchanged = self._anchor.placed(source)
        else:
            exchanged = source.repartitionById(nodes, "node")
        manifests = exchanged.mapInArrow(assembly, MANIFESTS)
        return (
            manifests.writeStream.queryName(f"kedge-{self._definition.id[:8]}-{self._epoch}")
            .option("checkpointLocation", f"file://{self._checkpoint}")
            .foreachBatch(self._commit)
            .start()
        )

    def _commit(self, frame: DataFrame, _: int) -> None:
        """Spark's batch is computed here; the ledger's record makes it true."""
        rows = frame.collect()
        with self._turn:
            if self._stopping:
                raise ClosedError(f"The run in {self._directory.path} was stopped.")
            try:
                self._commit_rows(rows)
            except BaseException as error:
                self._failure = error
                raise
            self._turn.notify_all()

    def _commit_rows(self, rows: list[Any]) -> None:
        plan = Plan.from_json(json.loads(rows[0].plan))
        record = commit_record(
            self.state,
            plan,
            [Manifest.from_json(json.loads(row.manifest)) for row in rows],
            result_partitions=self._into.partitions,
            now_us=self._directory.host.clock.now_us(),
        )
        self._ledger.commit(record)
        self.state = release(self._directory, self._ledger, self.state)

    def _watch(self) -> None:
        """Ends the query when the run is over, and clears up when the query is."""
        try:
            while self._query.isActive and not self.state.final and not self._stopping:
                with self._turn:
                    self._turn.wait(_WATCH_SECONDS)
            self._query.stop()
            failed = self._query.exception()
            if failed is not None and self._failure is None and not self._stopping:
                failure = translated(str(failed))
                self._failure = taken_over(self._directory, self._epoch) or failure
        except BaseException as error:  # the JVM may be gone
            self._failure = self._failure or error
        finally:
            shutil.rmtree(self._checkpoint, ignore_errors=True)
            self._warming.join()  # who stops now may stop Spark next: no job may be left behind
            self._release_anchor()
            with self._turn:
                self._ended = True
                self._turn.notify_all()

    def _release_anchor(self) -> None:
        anchor, self._anchor = self._anchor, None
        if anchor is not None:
            with suppress(Exception):  # the JVM may be gone, and the cache with it
                anchor.release()

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
        with self._turn:
            self._turn.wait_for(lambda: done() or self._ended)
        self._raise_failure()
        if not done():
            raise ClosedError(f"The run in {self._directory.path} was stopped before it got there. Start it again.")

    def stop(self) -> None:
        """Stop; a batch that is being committed is, any other is dropped and planned anew at the next start."""
        with self._turn:
            self._stopping = True
            self._turn.notify_all()
        self._watcher.join()
        self._raise_failure()

    def wait(self, timeout_s: float | None) -> bool:
        """Wait for the end; whether it has come."""
        with self._turn:
            self._turn.wait_for(lambda: self._ended, timeout_s)
        self._raise_failure()
        return self._ended

    def is_active(self) -> bool:
        """Whether the query goes on."""
        return not self._ended

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure


def _memory() -> str | None:
    """A directory in memory for what is thrown away: Spark's logs cost a tenth of a second a batch on a disk."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108  (mkdtemp makes it private)


def translated(text: str) -> BaseException:
    """The error that a Python process of Spark raised, from the text that Spark makes of it."""
    found = re.search(r"^kedge\.errors\.(\w+): (.*)$", text, re.MULTILINE)
    if found is None or not hasattr(errors, found[1]):
        return errors.UnavailableError(
            f"Spark ended the query: {text.strip().splitlines()[0]} Start the run again to go on. All of it:\n{text}",
            code="spark-failed",
        )
    kind: type[errors.KedgeError] = getattr(errors, found[1])
    return kind(found[2])


def _session(spark: SparkSession) -> SparkSession:
    """A session for the run alone: its settings and sources are not the user's."""
    own = spark.newSession()
    own.conf.set("spark.sql.adaptive.enabled", "false")
    own.conf.set("spark.sql.codegen.wholeStage", "false")  # a batch has a few large rows: compiling never pays
    own.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    if tuple(map(int, own.version.split(".")[:2])) >= (4, 3):
        own.conf.set("spark.sql.streaming.checkpointFileManagerClass", _FILES)
    own.dataSource.register(RunSource)
    return own


def _absolute(path: str) -> str:
    """Workers may have another working directory."""
    return path if "://" in path else os.path.abspath(path)
