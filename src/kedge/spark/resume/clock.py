"""A query that reads the clock, made to read one moment: `current_timestamp()` becomes a literal.

Spark's optimizer puts the present into every plan, so the same query is another one in each process. Here the
analyzed plan is rebuilt with the moment of the job's first run in place of the clock, and planned from there.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from pyspark.sql import DataFrame

from kedge.errors import UsageError
from kedge.spark.resume.plan import kind, seq

_CLOCK = re.compile(r"\b(current_timestamp|current_date|current_time|localtimestamp|now)\(\w*\)?")
_DAY_US = 86_400_000_000


def read_by(df: DataFrame) -> str:
    """The first expression of a query that reads the clock; empty when none does."""
    execution: Any = df._jdf.queryExecution()  # pyright: ignore
    found = _CLOCK.search(str(execution.analyzed().toString()))
    return found[0] if found else ""


def stopped(df: DataFrame, at_us: int) -> DataFrame:
    """The same query at the moment `at_us`."""
    jdf: Any = df._jdf  # pyright: ignore
    rebuilt = _Rebuild(df, at_us).plan(jdf.queryExecution().analyzed())
    session: Any = df.sparkSession._jsparkSession  # pyright: ignore
    jvm: Any = df.sparkSession.sparkContext._jvm  # pyright: ignore[reportPrivateUsage]
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(session, rebuilt), df.sparkSession)


class _Rebuild:
    """One analyzed plan, rebuilt where it reads the clock; everything else is the same object."""

    def __init__(self, df: DataFrame, at_us: int) -> None:
        context: Any = df.sparkSession.sparkContext
        self._gateway, self._jvm, self._at_us = context._gateway, context._jvm, at_us
        catalyst = self._jvm.org.apache.spark.sql.catalyst
        self._literal, self._types = catalyst.expressions.Literal, self._jvm.org.apache.spark.sql.types.DataTypes
        self._zone = str(df.sparkSession.conf.get("spark.sql.session.timeZone"))

    def plan(self, node: Any) -> Any:
        """A logical plan."""
        children = seq(node.children())
        after = [self.plan(child) for child in children]
        if any(a is not b for a, b in zip(after, children, strict=True)):
            node = node.withNewChildren(self._seq(after))
        if not seq(node.subqueries()) and not any(
            _CLOCK.search(str(e.toString())) for e in seq(node.expressions())
        ):
            return node
        fields = [node.productElement(i) for i in range(node.productArity())]
        made = self._gateway.new_array(self._jvm.Object, len(fields))
        for index, field in enumerate(fields):
            made[index] = self._field(field)
        return node.makeCopy(made)

    def _field(self, field: Any) -> Any:
        if self._is(field, "scala.collection.Seq"):
            return self._seq([self._field(each) for each in seq(field)])
        if self._is(field, "scala.Some"):
            return self._jvm.scala.Some(self._field(field.get()))
        return self._expression(field) if self._is(field, _EXPRESSION) else field

    def _expression(self, expression: Any) -> Any:
        literal = self._present(expression)
        if literal is not None:
            return literal
        if self._is(expression, "org.apache.spark.sql.catalyst.expressions.PlanExpression"):
            expression = expression.withNewPlan(self.plan(expression.plan()))
        children = seq(expression.children())
        after = [self._expression(child) for child in children]
        same = all(a is b for a, b in zip(after, children, strict=True))
        return expression if same else expression.withNewChildren(self._seq(after))

    def _present(self, expression: Any) -> Any:
        name = kind(expression)
        if name in ("CurrentTimestamp", "Now"):
            return self._literal(self._at_us, self._types.TimestampType)
        if name == "LocalTimestamp":
            return self._literal(self._local_us(expression), self._types.TimestampNTZType)
        if name == "CurrentDate":
            return self._literal(self._local_us(expression) // _DAY_US, self._types.DateType)
        if name == "CurrentTime":
            raise UsageError("current_time() can't be pinned: take the time of day from current_timestamp().")
        return None

    def _local_us(self, expression: Any) -> int:
        zone = expression.timeZoneId()
        name = str(zone.get()) if zone.isDefined() else self._zone
        moment = datetime.fromtimestamp(self._at_us // 1_000_000, UTC).astimezone(ZoneInfo(name))
        offset = moment.utcoffset()
        return self._at_us + (int(offset.total_seconds()) if offset else 0) * 1_000_000

    def _is(self, value: Any, name: str) -> bool:
        return hasattr(value, "_target_id") and bool(self._jvm.java.lang.Class.forName(name).isInstance(value))

    def _seq(self, values: list[Any]) -> Any:
        return self._jvm.PythonUtils.toSeq(values)


_EXPRESSION = "org.apache.spark.sql.catalyst.expressions.Expression"
