"""A step that is saved now, with public DataFrame calls only: the form that works on Spark Connect.

On classic PySpark the identity is that of the physical plan, as for `kedge.resume`. On Connect it is the client's own
plan (which holds local rows and the code of functions), the analyzed plan with expression ids by order, and the
input files with sizes and times. Partitions are whatever Spark makes of the query this time, so an attempt counts
only when all its partitions were saved by one run. That is also why a step may be random or read the clock: its rows
stay those of the run that saved it.
"""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from kedge.errors import UnavailableError, UsageError
from kedge.spark.resume import clock, identity
from kedge.spark.resume.job import Job, Part
from kedge.spark.resume.parts import SAVED, SAVING, damaged, restorer, saver, tasks_of
from kedge.spark.resume.plan import Planned

_IDS = re.compile(r"(plan_id=|id=#|subquery#|#)(\d+)")
_UNSTABLE = re.compile(r"\b(rand|randn|uuid|shuffle|current_timestamp|current_date|now|localtimestamp)\(")
_NO_IDENTITY = re.compile(r"\b(LogicalRDD|ExistingRDD|RelationV2|JDBCRelation)\b")
_SEED = re.compile(r"-?\d{10,}")


def saved_step(df: DataFrame, name: str, job: Job) -> DataFrame:
    """The rows of `df`, saved under `name` by this process or an earlier one."""
    job.claim()
    known = _connect(df) if getattr(df, "_jdf", None) is None else _classic(df)
    if known.unknown:
        warnings.warn(f"step {name} can't be recognised by another process: {known.unknown}", stacklevel=3)
    elif known.unstable:
        warnings.warn(
            f"step {name} is not deterministic: its rows stay those of the run that saves it", stacklevel=3
        )
    columns = _SEED.sub("seed", df.schema.json()) if known.unstable else df.schema.json()
    ident = identity.digest(f"{name}\n{known.id}\n{columns}\n{job.token() if known.unknown else ''}")
    found = _found(df, name, job, ident, known)
    schema = StructType()
    for index, column in enumerate(df.schema.fields):
        schema.add(f"c{index}", column.dataType, True)
    arrow = to_arrow_schema(schema, timezone="UTC")
    parts = _save(df, name, job, ident, known, schema, arrow) if found is None else found
    session: Any = df.sparkSession
    indexes = session.range(0, len(parts), 1, tasks_of(parts))
    rows: DataFrame = indexes.mapInArrow(restorer(job.at, parts, arrow), schema)
    return rows.toDF(*df.columns) if df.columns else rows


def _found(df: DataFrame, name: str, job: Job, ident: str, known: identity.Identity) -> list[Part] | None:
    """The parts of an earlier process, whole and undamaged; what is not is withdrawn."""
    for cut in job.cuts().values():
        if cut.label != f"step {name}":
            continue
        if cut.id != ident:
            now = identity.Identity(cut.id, known.plan, dict(known.inputs), dict(known.options), "", "")
            why = identity.differences(cut.record, now)
            warnings.warn(f"{job.at}: step {name} is not reused: {why}.", stacklevel=4)
            job.withdraw(cut, why)
        elif not cut.done:
            job.withdraw(cut, "it was not complete")
        elif cut.parts and damaged(df.sparkSession, job.at, list(cut.parts.values())):
            warnings.warn(f"{job.at}: step {name} is not reused: its files are damaged.", stacklevel=4)
            job.withdraw(cut, "its files are damaged")
        else:
            return [cut.parts[i] for i in range(cut.partitions)]
    return None


def _save(
    df: DataFrame, name: str, job: Job, ident: str, known: identity.Identity, schema: StructType, arrow: Any
) -> list[Part]:
    record = {
        "partitions": 1 << 30,
        "label": f"step {name}",
        "whole": True,
        "plan": known.plan,
        "inputs": known.inputs,
        "options": known.options,
    }
    attempt = job.announce(ident, record)
    plain = df.toDF(*schema.names) if schema.names else df
    try:
        saved = plain.mapInArrow(saver(job.at, attempt.folder, range(1 << 20), arrow), SAVED).collect()
    except Exception as error:
        if SAVING in str(error):
            line = next(line for line in str(error).splitlines() if SAVING in line)
            raise UnavailableError(line.partition(SAVING)[2].lstrip(": ")) from error
        raise
    parts = [part for part in (Part.named(row["file"]) for row in saved) if part is not None]
    parts.sort(key=lambda part: part.partition)
    if [part.partition for part in parts] != list(range(len(parts))):
        raise UsageError(
            f"step {name}: Spark ran partitions that do not count from 0; cache or repartition it first."
        )
    job.add("cut", cut=ident, attempt=attempt.attempt, **{**record, "partitions": len(parts)})
    job.add("saved", cut=ident, attempt=attempt.attempt, parts=len(parts), bytes=sum(part.bytes for part in parts))
    return parts


def _classic(df: DataFrame) -> identity.Identity:
    reads_clock = clock.read_by(df)
    root = Planned(clock.stopped(df, 0) if reads_clock else df).root
    found = identity.of(root, identity.Files(df.sparkSession), pinned=True)
    return replace(found, unstable=found.unstable or reads_clock)


def _connect(df: DataFrame) -> identity.Identity:
    text = _text(df)
    unstable = _UNSTABLE.search(text)
    if unstable:
        text = _SEED.sub("seed", text)
    told: Any = df
    plan = "\n".join(_message(told._plan.to_proto(told._session.client)))
    plan = identity.digest(f"{text}\n{_SEED.sub('seed', plan) if unstable else plan}")
    inputs = _files(df)
    without = _NO_IDENTITY.search(text)
    whole = identity.digest(f"{plan}\n{sorted(inputs.items())}")
    return identity.Identity(
        whole, plan, inputs, {}, without[0] if without else "", unstable[0] if unstable else ""
    )


def _text(df: DataFrame) -> str:
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        df.explain("extended")
    text = told.getvalue().partition("== Analyzed Logical Plan ==")[2].partition("== Optimized Logical Plan ==")[0]
    names: dict[str, str] = {}
    return _IDS.sub(lambda match: match[1] + names.setdefault(match[2], str(len(names))), text)


def _message(message: Any) -> list[str]:
    """A protocol buffer as lines, without the numbers that a client gives its plans as it goes."""
    found: list[str] = []
    for field, value in message.ListFields():
        if field.name in ("plan_id", "target_plan_id", "origin", "source_info"):
            continue
        for each in value if isinstance(value, (list, tuple)) or hasattr(value, "append") else [value]:
            if hasattr(each, "ListFields"):
                found += [f"{field.name}.{line}" for line in _message(each)]
            else:
                found.append(f"{field.name}={each!r}")
    return found


def _files(df: DataFrame) -> dict[str, list[int]]:
    """The input files with sizes and times, asked of Spark: only the server can see them."""
    paths = sorted(df.inputFiles())
    if not paths:
        return {}
    escaped = [re.sub(r"([\[\]{}*?\\,])", r"\\\1", unquote(path)) for path in paths]
    listed = df.sparkSession.read.format("binaryFile").load(escaped)
    rows = listed.selectExpr("path", "length", "unix_micros(modificationTime) AS us").collect()
    return {row["path"]: [int(row["length"]), int(row["us"]) // 1000] for row in rows}
