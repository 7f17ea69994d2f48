"""A step that is saved now, with public DataFrame calls only: the form that works on Spark Connect.

The identity is the query's own text (explain), with expression ids by order, and its files. Partitions are whatever
Spark makes of the query this time, so an attempt counts only when all its partitions were saved by one run.
"""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from kedge.errors import UsageError
from kedge.spark.resume.identity import digest
from kedge.spark.resume.job import Job, Part
from kedge.spark.resume.parts import SAVED, restorer, saver

_IDS = re.compile(r"(plan_id=|id=#|subquery#|#)(\d+)")
_UNSTABLE = re.compile(r"\b(rand|randn|uuid|shuffle|current_timestamp|current_date|now|localtimestamp)\(")


def saved_step(df: DataFrame, name: str, job: Job) -> DataFrame:
    """The rows of `df`, saved under `name` by this process or an earlier one."""
    job.claim()
    text, files = _text(df), sorted(df.inputFiles())
    if _UNSTABLE.search(text):
        warnings.warn(
            f"step {name} is not deterministic: its rows stay those of the run that saves it", stacklevel=3
        )
        text = _IDS.sub("", re.sub(r"\b(rand|randn|uuid|shuffle)\([^)]*\)", r"\1", text))
    ident = digest(f"{name}\n{text}\n{files}\n{df.schema.json()}")
    for cut in job.cuts().values():
        if cut.label == f"step {name}" and (cut.id != ident or not cut.done):
            why = "it was not complete" if cut.id == ident else "its query or its files changed"
            job.withdraw(cut, why)
    found = job.cuts().get(ident)
    schema = StructType()
    for index, column in enumerate(df.schema.fields):
        schema.add(f"c{index}", column.dataType, True)
    arrow = to_arrow_schema(schema, timezone="UTC")
    if found is None:
        parts = _save(df, name, job, ident, schema, arrow)
    else:
        parts = [found.parts[i] for i in range(found.partitions)]
    session: Any = df.sparkSession
    indexes = session.range(0, max(1, len(parts)), 1, max(1, len(parts)))
    rows: DataFrame = indexes.mapInArrow(restorer(job.at, parts, arrow), schema)
    return rows.toDF(*df.columns) if df.columns else rows


def _save(df: DataFrame, name: str, job: Job, ident: str, schema: StructType, arrow: Any) -> list[Part]:
    record = {
        "partitions": 1 << 30,
        "label": f"step {name}",
        "whole": True,
        "plan": ident,
        "inputs": {},
        "options": {},
    }
    attempt = job.announce(ident, record)
    plain = df.toDF(*schema.names) if schema.names else df
    saved = plain.mapInArrow(saver(job.at, attempt.folder, range(1 << 20), arrow), SAVED).collect()
    parts = [part for part in (Part.named(row["file"]) for row in saved) if part is not None]
    parts.sort(key=lambda part: part.partition)
    if [part.partition for part in parts] != list(range(len(parts))):
        raise UsageError(
            f"step {name}: Spark ran partitions that do not count from 0; cache or repartition it first."
        )
    job.add("cut", cut=ident, attempt=attempt.attempt, **{**record, "partitions": len(parts)})
    job.add("saved", cut=ident, attempt=attempt.attempt, parts=len(parts), bytes=sum(part.bytes for part in parts))
    return parts


def _text(df: DataFrame) -> str:
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        df.explain("extended")
    text = told.getvalue().partition("== Physical Plan ==")[0]
    names: dict[str, str] = {}
    return _IDS.sub(lambda match: match[1] + names.setdefault(match[2], str(len(names))), text)
