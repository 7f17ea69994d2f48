"""Whole queries against plain Spark on the same rows: names, types and values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kedge import graph
from kedge.kernel import compile_graph

pytestmark = pytest.mark.slow
QUERIES = [
    "SELECT window(ts, '10 seconds') AS w, k, count(*), sum(v) FROM s GROUP BY window(ts, '10 seconds'), k",
    "SELECT k % 3, name, count(v) AS n, avg(v), min(v), max(f) FROM s WHERE v > 10 OR name = 'a' OR f < 1.5 "
    "GROUP BY window(ts, '7 seconds'), k % 3, name",
    "SELECT window.end AS e, flag, day, sum(k DIV 2) AS a, sum(CASE WHEN flag THEN 1 ELSE v END) AS b, count(1) "
    "FROM s "
    "WHERE NOT (k IN (1, 2, NULL) AND flag) GROUP BY window(ts, '1 minute', '1 minute', '5 seconds'), flag, day",
    "SELECT window(ts, '3 seconds'), avg(k) AS m, sum(f) FROM s WHERE k BETWEEN -3 AND 2.5 AND f IS NOT NULL "
    "GROUP BY window(ts, '3 seconds') HAVING m < 0.5 AND count(*) > 1",
    "SELECT name, day, max(ts), min(flag), sum(-k) FROM s WHERE ts > '1969-12-31 23:59:58' "
    "AND day <=> DATE '1970-01-02' "
    "GROUP BY window(ts, '10 seconds'), name, day",
]


def data() -> pa.Table:
    rng = np.random.default_rng(11)
    rows = 400

    def column(values: Any, kind: pa.DataType) -> pa.Array:
        return pa.array(list(values), kind, mask=rng.random(rows) < 0.1)

    return pa.table(
        {
            "ts": column((rng.integers(-40, 40, rows) * 500_000).tolist(), pa.timestamp("us", "UTC")),
            "k": column(rng.integers(-6, 6, rows).tolist(), pa.int32()),
            "name": column(rng.choice(["a", "b", "", "é"], rows).tolist(), pa.string()),
            "flag": column((rng.random(rows) < 0.5).tolist(), pa.bool_()),
            "day": column(rng.integers(0, 3, rows).astype("M8[D]").tolist(), pa.date32()),
            "v": column(rng.integers(-100, 100, rows).tolist(), pa.int64()),
            "f": column((rng.integers(-8, 8, rows) / 4).tolist(), pa.float64()),
        }
    )


def values(table: pa.Table) -> list[tuple[Any, ...]]:
    rows = [tuple(repr(value) for value in row.values()) for row in table.to_pylist()]
    return sorted(rows)


def test_plain_spark_gives_the_same(spark: Any) -> None:
    table = data()
    spark.createDataFrame(table).createOrReplaceTempView("s")
    for query in QUERIES:
        program = compile_graph(graph.parse(query, {"s": table.schema}, {"s": "ts"}), tasks=5)
        parts = [program.fragment("s", part, -(1 << 63)).partials for part in table.to_batches(max_chunksize=150)]
        ours = pa.Table.from_batches([program.results(program.combine(parts))])
        theirs = spark.sql(query).toArrow()
        assert ours.schema.names == theirs.schema.names, query
        assert [str(kind) for kind in ours.schema.types] == [str(kind) for kind in theirs.schema.types], query
        assert values(ours) == values(theirs), query
        assert ours.num_rows > 2, query
