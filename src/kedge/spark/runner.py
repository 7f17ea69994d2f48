"""The Spark shell: a run as a Structured Streaming query.

    planner (a source) -> fragments (its read tasks) -> exchange by node -> assembly (mapInArrow)
                       -> commit (foreachBatch)

Invariants:
- The ledger is the only truth. Spark's checkpoint is a fresh temporary directory for each claim and is thrown away:
  its batch numbers are never used for anything.
- The commit happens in the driver, in the object that made the claim, from the plan and the manifests that came
  through the query; never from a listing.
- Until the planner asks for the run, the driver itself goes on with it, under the same claim (`kedge.spark.first`);
  then it has stopped for good (`kedge.spark.handover`).
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
from typing import TYPE_CHECKING

from pyspark.util import InheritableThread

from kedge import errors
from kedge.errors import ClosedError, UsageError
from kedge.run.coordinator import Coordinator
from kedge.run.core import Manifest, Plan
from kedge.run.directory import RunDirectory
from kedge.run.options import Options
from kedge.spark.anchor import Anchor, wanted
from kedge.spark.first import first_batches
from kedge.spark.handover import Handover
from kedge.spark.nodes import MANIFESTS, Assembly, Warming
from kedge.spark.planner import NAME, RunSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_WATCH_SECONDS = 0.1
_HANDOVER_SECONDS = 0.01  # while the planner may ask
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
        self._slots = spark.sparkContext.defaultParallelism  # fails before the claim where no driver's side is
        self._run = Coordinator(RunDirectory(directory.host, _absolute(directory.path)))
        self._options = options
        self._turn = self._run.turn
        self._stopping = self._ended = False
        self._failure: BaseException | None = None
        self._anchor: Anchor | None = None
        self._warming: threading.Thread | None = None
        self._first = first_batches(self._run, options, spark)
        self._folder = tempfile.mkdtemp(prefix="kedge-spark-", dir=_memory())
        self._handover = Handover(f"{self._folder}/handover")
        self._handover.open()
        name = f"kedge-run {directory.path}"
        self._thread = InheritableThread(self._go_on, args=(spark,), name=name, daemon=True)
        self._thread.start()

    def _go_on(self, spark: SparkSession) -> None:
        """Starts the query, hands over to it, ends it when the run is over, and clears up."""
        query: StreamingQuery | None = None
        try:
            if self._first is not None:
                self._first.begin()
            query = self._start(_session(spark))
            while query is not None and query.isActive and not self._over():
                self._hand_over()
                with self._turn:
                    self._turn.wait(_WATCH_SECONDS if self._first is None else _HANDOVER_SECONDS)
        except BaseException as error:  # the JVM may be gone
            self._failure = self._failure or error
        for step in (self._handover.refuse, self._end_first, lambda: self._end_query(query), self._clear_up):
            try:
                step()
            except BaseException as error:
                self._failure = self._failure or error
        with self._turn:
            self._ended = True
            self._turn.notify_all()

    def _start(self, spark: SparkSession) -> StreamingQuery | None:
        """The query, unless the run is over before Spark is ready for it."""
        path, definition, options = self._run.directory.path, self._run.definition, self._options
        warmed = Warming(path, definition.id)
        self._warming = threading.Thread(target=warmed.run, args=(spark,), name="kedge-warm", daemon=True)
        self._warming.start()
        nodes = min(options.nodes or self._slots, definition.tasks)
        run = {
            "path": path,
            "id": definition.id,
            "epoch": self._run.epoch,
            "nodes": nodes,
            "readers": self._slots,
            "rows_max": options.rows_max,
            "poll_ms": options.poll_ms,
            "handover": f"{self._folder}/handover",
        }
        source = spark.readStream.format(NAME).option("run", json.dumps(run)).load()
        if self._over():
            return None
        if wanted(spark):
            self._anchor = Anchor(spark, nodes)
            exchanged = self._anchor.placed(source)
        else:
            exchanged = source.repartitionById(nodes, "node")
        manifests = exchanged.mapInArrow(Assembly(path, definition.id, options.tables), MANIFESTS)
        return (
            manifests.writeStream.queryName(f"kedge-{definition.id[:8]}-{self._run.epoch}")
            .option("checkpointLocation", f"file://{self._folder}/checkpoint")
            .foreachBatch(self._commit)
            .start()
        )

    def _over(self) -> bool:
        """Whether there is nothing left to do, or nobody left to do it."""
        failed = self._first is not None and not self._first.is_active()
        return self._stopping or self._run.state.final or failed

    def _hand_over(self) -> None:
        """Let the planner begin once it asks, workers are warm, and nothing of the driver's is under way."""
        warm = self._warming is None or not self._warming.is_alive()
        if warm and self._handover.asked():
            self._end_first()
            self._handover.grant()

    def _end_first(self) -> None:
        """End the driver's own batches; raises what made them fail."""
        first, self._first = self._first, None
        if first is not None:
            first.stop()

    def _commit(self, frame: DataFrame, _: int) -> None:
        """Spark's batch is computed here; the ledger's record makes it true."""
        rows = frame.collect()
        if not rows:  # Spark begins with a batch even when there is nothing to do
            return
        with self._turn:
            if self._stopping:
                raise ClosedError(f"The run in {self._run.directory.path} was stopped.")
            try:
                plan = Plan.from_json(json.loads(rows[0].plan))
                self._run.commit(plan, [Manifest.from_json(json.loads(row.manifest)) for row in rows])
            except BaseException as error:
                self._failure = error
                raise

    def _end_query(self, query: StreamingQuery | None) -> None:
        """End Spark's part; raises what made it fail before the run was over."""
        if query is None:
            return
        query.stop()
        failed = query.exception()
        if failed is not None and self._failure is None and not (self._stopping or self._run.state.final):
            failure = translated(str(failed))
            raise self._run.taken_over() or failure

    def _clear_up(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._warming is not None:
            self._warming.join()  # who stops now may stop Spark next: no job may be left behind
        if self._anchor is not None:
            with suppress(Exception):  # the JVM may be gone, and the cache with it
                self._anchor.release()

    def drain(self) -> None:
        """Wait until the input that is durable now is committed."""
        self._run_until(self._run.drained())

    def finish(self) -> None:
        """Drain, close every window, and stop."""
        self._run.directory.ask_finish()
        self._run_until(lambda: self._run.state.final)
        self.stop()

    def _run_until(self, done: Callable[[], bool]) -> None:
        with self._turn:
            self._turn.wait_for(lambda: done() or self._ended)
        self._raise_failure()
        if not done():
            raise ClosedError(
                f"The run in {self._run.directory.path} was stopped before it got there. Start it again."
            )

    def stop(self) -> None:
        """Stop; a batch that is being committed is, any other is dropped and planned anew at the next start."""
        with self._turn:
            self._stopping = True
            self._turn.notify_all()
        self._thread.join()
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
    if path.startswith("memory://"):
        raise UsageError(f"{path} is in the memory of one process, and Spark works in others: use a directory.")
    return path if "://" in path else os.path.abspath(path)
