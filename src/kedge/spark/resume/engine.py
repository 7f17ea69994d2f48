"""Run a plan stage by stage: save the partitions that are missing, scan those that are there.

Each saved stage is one Spark job over exactly its missing partitions (`PartitionPruningRDD`): a task computes one
partition, hands it to Python as Arrow, and puts one durable file when it is finished. Partition i of a stage is the
same in every process because its plan is static and its identity covers files and options; what can still make it
another (`identity.order_matters`, Spark's own determinism level, another number of partitions) makes the attempt
count only as a whole.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from kedge.spark.resume import layout as layouts
from kedge.spark.resume.job import Cut, Job, Part, missing
from kedge.spark.resume.model import Stage
from kedge.spark.resume.parts import SAVED, SAVING, restorer, saver, tasks_of
from kedge.spark.resume.plan import Planned, settings

_UNSAVEABLE = ("interval", "variant", "void", "geography", "geometry", "calendar", "udt")


class NotSavedError(Exception):
    """The place takes no more; the query itself is fine."""


class Engine:
    """One plan, one job, one run."""

    def __init__(self, planned: Planned, job: Job, stages: Sequence[Stage]) -> None:
        self.planned, self.job, self.stages = planned, job, stages
        self.session: SparkSession = planned.session
        self.scans: dict[int, Any] = {}
        self._full = False  # the place has refused a file
        self.final: Any = None  # the plan that the result was made with

    def save(self, stage: Stage, cut: Cut | None) -> Cut | None:
        """Save what is missing of a stage and let everything above it read that; None where it can't be saved."""
        if self._full:
            return None
        splits = stage.splits if cut is None else cut.record.get("splits", {})
        with settings(self.session, splits):
            plan = self.planned.runnable(self.planned.rebuilt(stage.node, self.scans), whole=False)
            rdd = plan.execute()
            count, layout = int(rdd.getNumPartitions()), layouts.of(rdd)
        schema, whole = positional(stage.node.jvm.schema()), stage.whole or self._mixes_badly(rdd)
        if cut is not None and (cut.partitions != count or cut.record.get("layout") != layout or whole):
            self.job.withdraw(cut, "its partitions can't be told apart from those of another attempt")
            cut = None
        if cut is None:
            about = {"partitions": count, "label": stage.label, "whole": whole, "layout": layout, "splits": splits}
            cut = self.job.announce(stage.identity.id, {**about, **stage.identity.to_json()})
        stage.partitions, stage.reused = count, len(cut.parts)
        wanted = missing(cut)
        try:
            if wanted:
                for part in self._write(rdd, schema, cut, wanted):
                    cut.parts[part.partition] = part
        except NotSavedError as error:
            self._full = True
            warnings.warn(f"{stage.label} is not saved, the query goes on without saving: {error}", stacklevel=4)
            self.job.withdraw(cut, "it could not be written")
            return None
        self.job.add("saved", cut=cut.id, attempt=cut.attempt, parts=len(cut.parts), bytes=cut.bytes)
        self.use(stage, cut)
        return cut

    def use(self, stage: Stage, cut: Cut) -> None:
        """Let everything above read a stage that is completely saved."""
        schema = positional(stage.node.jvm.schema())
        scan = self._scan(schema, [cut.parts[i] for i in range(cut.partitions)])
        for other in self.stages:  # the same intermediate may stand at several places of a plan
            if other.identity.id == stage.identity.id:
                output = other.node.jvm.output()
                self.scans[id(other.node)] = self._leaf(output, scan, other)

    def result(self) -> DataFrame:
        """The whole query over what is saved."""
        root = self.planned.rebuilt(self.planned.root, self.scans)
        inside = any(id(stage.node) in self.scans and stage.step for stage in self.stages)
        saved = id(self.planned.root) in self.scans
        plan = self.planned.static(root) if inside or saved else self.planned.runnable(root, whole=True)
        self.final = plan
        jvm_df = self.planned.jsession.internalCreateDataFrame(
            plan.execute(),
            jvm_of(self.planned.df).schema(),
            False,  # pyright: ignore
        )
        return DataFrame(jvm_df, self.session)

    def _write(self, rdd: Any, schema: StructType, cut: Cut, wanted: Sequence[int]) -> list[Part]:
        jvm = self.planned.jvm
        pruned = jvm.org.apache.spark.rdd.PartitionPruningRDD.create(
            rdd, jvm.PythonUtils.toSeq(list(wanted)).toSet()
        )
        rows = DataFrame(
            self.planned.jsession.internalCreateDataFrame(pruned, self._jschema(schema), False), self.session
        )
        save = saver(self.job.at, cut.folder, wanted, arrow(schema))
        self.session.sparkContext.setJobDescription(f"kedge resume: save {cut.label}")
        try:
            saved = rows.mapInArrow(save, SAVED).collect()
        except Exception as error:
            if SAVING in str(error):
                line = next(line for line in str(error).splitlines() if SAVING in line)
                raise NotSavedError(line.partition(SAVING)[2].lstrip(": ")) from error
            raise
        finally:
            self.session.sparkContext.setJobDescription(None)  # pyright: ignore[reportArgumentType]
        found = [Part.named(row["file"]) for row in saved]
        return [part for part in found if part is not None]

    def _scan(self, schema: StructType, parts: Sequence[Part]) -> Any:
        indexes = self.session.range(0, len(parts), 1, tasks_of(parts))
        rows = indexes.mapInArrow(restorer(self.job.at, parts, arrow(schema)), schema)
        return jvm_of(rows).queryExecution().toRdd()  # pyright: ignore

    def _leaf(self, output: Any, rdd: Any, stage: Stage) -> Any:
        execution = self.planned.jvm.org.apache.spark.sql.execution
        physical = self.planned.jvm.org.apache.spark.sql.catalyst.plans.physical
        partitioning = physical.UnknownPartitioning(rdd.getNumPartitions())
        none = getattr(getattr(self.planned.jvm.scala, "None$"), "MODULE$")
        empty = self.planned.jvm.PythonUtils.toSeq([])
        leaf = execution.RDDScanExec(output, rdd, f"kedge {stage.identity.id}", partitioning, empty, none)
        link = stage.node.jvm.logicalLink()
        if link.isDefined():
            leaf.setLogicalLink(link.get())
        return leaf

    def _mixes_badly(self, rdd: Any) -> bool:
        return str(rdd.outputDeterministicLevel().toString()) == "INDETERMINATE"

    def _jschema(self, schema: StructType) -> Any:
        return self.planned.jsession.parseDataType(schema.json())


def jvm_of(df: DataFrame) -> Any:
    """The JVM object of a classic DataFrame."""
    return cast(Any, df)._jdf


def positional(jvm_schema: Any) -> StructType:
    """A schema with names by position: an intermediate may have two columns of one name."""
    schema = StructType.fromJson(json.loads(jvm_schema.json()))
    renamed = StructType()
    for index, column in enumerate(schema.fields):
        renamed.add(f"c{index}", column.dataType, True)
    return renamed


def arrow(schema: StructType) -> pa.Schema:
    """The same for Arrow; times with a zone are in UTC."""
    return to_arrow_schema(schema, timezone="UTC")


def unsaveable(node: Any) -> str:
    """Why the rows of a node have no form on disk; empty when they have one."""
    text = str(node.schema().json()).lower()
    found = [name for name in _UNSAVEABLE if f'"{name}' in text]
    if found:
        return f"it has columns of type {found[0]}"
    try:
        arrow(positional(node.schema()))
    except Exception as error:
        return f"its columns have no Arrow type ({error})"
    return ""
