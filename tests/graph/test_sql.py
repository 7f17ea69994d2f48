"""The SQL front end: names and types recorded from Spark 4.3, refusals with their place."""

from __future__ import annotations

import copy

import pyarrow as pa
import pytest

from kedge import graph
from kedge.errors import UsageError

MOMENT = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [
        ("ts", MOMENT),
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("h", pa.int16()),
        ("b", pa.int8()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("t", pa.bool_()),
        ("st", pa.string()),
        ("dt", pa.date32()),
        ("dec", pa.decimal128(5, 2)),
    ]
)
I8, I16, I32, I64, F32, F64, BOOL = (
    pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.bool_())  # fmt: skip

# expression, name of the column in Spark 4.3, type
EXPRESSIONS = [
    ("i+l", "(i + l)", I64),
    ("i+i", "(i + i)", I32),
    ("i+h", "(i + h)", I32),
    ("h+h", "(h + h)", I16),
    ("b+b", "(b + b)", I8),
    ("i*f", "(i * f)", F64),
    ("h+f", "(h + f)", F64),
    ("f+f", "(f + f)", F32),
    ("f+1.5", "(f + 1.5)", F64),
    ("d*1.5", "(d * 1.5)", F64),
    ("l/i", "(l / i)", F64),
    ("i DIV i", "(i div i)", I64),
    ("h DIV h", "(h div h)", I64),
    ("i % l", "(i % l)", I64),
    ("f % 2", "(f % 2)", F64),
    ("-i", "(- i)", I32),
    ("i=l", "(i = l)", BOOL),
    ("i<>l", "(NOT (i = l))", BOOL),
    ("i!=l", "(NOT (i = l))", BOOL),
    ("i==1", "(i = 1)", BOOL),
    ("NOT t", "(NOT t)", BOOL),
    ("t AND i>1 OR i<0", "((t AND (i > 1)) OR (i < 0))", BOOL),
    ("i IN (1,2)", "(i IN (1, 2))", BOOL),
    ("i NOT IN (1,2)", "(NOT (i IN (1, 2)))", BOOL),
    ("i BETWEEN 1 AND 2", "between(i, 1, 2)", BOOL),
    ("i NOT BETWEEN 1 AND 2", "(NOT between(i, 1, 2))", BOOL),
    ("i IS NULL", "(i IS NULL)", BOOL),
    ("i IS NOT NULL", "(i IS NOT NULL)", BOOL),
    ("CASE WHEN t THEN 1 ELSE 2 END", "CASE WHEN t THEN 1 ELSE 2 END", I32),
    ("CASE i WHEN 1 THEN 2 END", "CASE WHEN (i = 1) THEN 2 END", I32),
    ("CASE WHEN t THEN i WHEN i>2 THEN l END", "CASE WHEN t THEN i WHEN (i > 2) THEN l END", I64),
    ("st='x'", "(st = x)", BOOL),
    ("dt=date'2020-01-01'", "(dt = DATE '2020-01-01')", BOOL),
    ("dt > '2020-01-01'", "(dt > 2020-01-01)", BOOL),
    ("ts > '2020-01-01 00:00:00'", "(ts > 2020-01-01 00:00:00)", BOOL),
    ("ts > timestamp'2020-01-01 00:00:00.5'", "(ts > TIMESTAMP '2020-01-01 00:00:00.5')", BOOL),
    ("i <=> l", "(i <=> l)", BOOL),
    ("cast(i as bigint)", "i", I64),
    ("i - -1", "(i - -1)", I32),
    ("i>1.5", "(i > 1)", BOOL),
    ("f>1.5", "(f > 1.5)", BOOL),
    ("t=true", "(t = true)", BOOL),
    ("s.i", "i", I32),
    ("-i*2", "((- i) * 2)", I32),
]
AGGREGATES = [
    ("count(*)", "count(1)", I64),
    ("count(1)", "count(1)", I64),
    ("COUNT(i)", "count(i)", I64),
    ("count(2)", "count(2)", I64),
    ("sum(i)", "sum(i)", I64),
    ("SUM(l)", "sum(l)", I64),
    ("sum(f)", "sum(f)", F64),
    ("avg(i)", "avg(i)", F64),
    ("min(i)", "min(i)", I32),
    ("max(f)", "max(f)", F32),
    ("min(ts)", "min(ts)", MOMENT),
    ("min(dt)", "min(dt)", pa.date32()),
    ("min(t)", "min(t)", BOOL),
    ("sum(i+1)", "sum((i + 1))", I64),
    ("count(t)", "count(t)", I64),
    ("sum(CASE WHEN t THEN 1 ELSE 0 END)", "sum(CASE WHEN t THEN 1 ELSE 0 END)", I64),
    ("sum(-i)", "sum((- i))", I64),
    ("i", "i", I32),
    ("window.start", "start", MOMENT),
    ("window.end AS e", "e", MOMENT),
    ("window(ts, '10 seconds')", "window", pa.struct([("start", MOMENT), ("end", MOMENT)])),
]


def parse(text: str) -> graph.Graph:
    return graph.parse(text, {"s": SCHEMA}, {"s": "ts"})


@pytest.mark.parametrize(("expression", "name", "kind"), EXPRESSIONS, ids=lambda part: str(part)[:40])
def test_expressions_have_sparks_names_and_types(expression: str, name: str, kind: pa.DataType) -> None:
    parsed = parse(f"SELECT count({expression}), min({expression}) AS m FROM s GROUP BY window(ts, '10 seconds')")
    if "cast" not in expression:  # only a column's own name loses its cast
        assert parsed.result_schema.names[0] == f"count({name})"
    assert parsed.result_schema.field("m").type == kind
    if kind not in (F32, F64):
        keyed = parse(f"SELECT {expression} FROM s GROUP BY window(ts, '10 seconds'), {expression}")
        assert keyed.result_schema.names == [name]


@pytest.mark.parametrize(("item", "name", "kind"), AGGREGATES, ids=lambda part: str(part)[:40])
def test_result_columns_have_sparks_names_and_types(item: str, name: str, kind: pa.DataType) -> None:
    schema = parse(f"SELECT {item} FROM s GROUP BY window(ts, '10 seconds'), i").result_schema
    assert (schema.names, schema.types) == ([name], [kind])


@pytest.mark.parametrize(
    "group",
    ["window(ts, '10 seconds'), i", "i, window(ts, '10 seconds')", "w, i", "1, 2", "`window`(ts, '10 seconds'), i",
     "WINDOW (TS, 'interval 10 SECONDS'), I", "window(ts, '0 minutes 10 seconds', '10 seconds'), i"],
)  # fmt: skip
def test_every_spelling_of_group_by_is_one_graph(group: str) -> None:
    text = "SELECT window(ts, '10 seconds') AS w, i, count(*) AS n FROM s GROUP BY "
    assert parse(text + group) == parse(text + "window(ts, '10 seconds'), i")
    assert parse(text + group).fingerprint() == parse(text + "window(ts, '10 seconds'), i").fingerprint()


def test_only_needed_columns_are_read() -> None:
    parsed = parse("SELECT count(*), sum(l) FROM s WHERE f > 1 GROUP BY st, window(ts, '1 minute')")
    assert parsed.inputs[0].columns == ("ts", "l", "f", "st")
    assert parsed.inputs[0].event_time == "ts"
    assert parsed.window == (60_000_000, 60_000_000)


def test_explain_shows_the_operators() -> None:
    text = "SELECT i, count(*) AS n FROM s WHERE l > 3 GROUP BY window(ts, '1 second'), i HAVING n > 2 AND i = 1"
    assert parse(text).explain().splitlines() == [
        "Project key 0 AS i, aggregate 0 AS n having aggregate 0 > 2 and key 0 = 1",
        "   +- WindowAggregate by window(ts, 1000000 us, 1000000 us, 0 us), i: count(1)",
        "      +- Filter (l > 3)",
        "         +- Scan s [ts, i, l]",
    ]


def test_graphs_are_values() -> None:
    parsed = parse("SELECT i, count(*) AS n FROM s WHERE st = 'x' GROUP BY window(ts, '1 second'), i")
    other = copy.deepcopy(parsed)
    assert (other == parsed, other.fingerprint() == parsed.fingerprint()) == (True, True)
    changed = parse("SELECT i, count(*) AS n FROM s WHERE st = 'y' GROUP BY window(ts, '1 second'), i")
    assert changed.fingerprint() != parsed.fingerprint()


GROUP = " FROM s GROUP BY window(ts, '10 seconds')"
REFUSED = [
    ("SELECT 1 +", "not SQL of Spark"),
    ("SELECT count(*) FROM s", "no GROUP BY with a window"),
    ("SELECT i, count(*) FROM s GROUP BY i", "GROUP BY has no window"),
    ("SELECT l" + GROUP, r"Line 1, column 8 \('l'\): l is neither in GROUP BY"),
    ("SELECT count(*),\n  nope" + GROUP, r"Line 2, column 3 \('nope'\): 's' has no column 'nope'"),
    ("SELECT count(upper(st))" + GROUP, r"UPPER\(st\) is not supported"),
    ("SELECT count(DISTINCT i)" + GROUP, "DISTINCT"),
    ("SELECT sum(st)" + GROUP, "sum of string is not supported"),
    ("SELECT sum(dec)" + GROUP, "column 'dec' has the type decimal"),
    ("SELECT sum(i) + 1" + GROUP, "expression over aggregates"),
    ("SELECT sum(sum(i))" + GROUP, "aggregate inside an aggregate"),
    ("SELECT count(i * 1.5)" + GROUP, r"\* of int32 and decimal"),
    ("SELECT count(i = 'x')" + GROUP, "= of int32 and string"),
    ("SELECT count(*)" + GROUP + ", d", "a key of type double"),
    ("SELECT count(*)" + GROUP + " ORDER BY 1", "ORDER is not supported"),
    ("SELECT count(*)" + GROUP + " LIMIT 1", "LIMIT is not supported"),
    ("SELECT DISTINCT count(*)" + GROUP, "DISTINCT is not supported"),
    ("SELECT count(*)" + GROUP + ", window(ts, '5 seconds')", "second window"),
    (
        "SELECT count(*) FROM s GROUP BY window(ts, '10 seconds', '5 seconds')",
        "sliding windows are not supported yet",
    ),
    ("SELECT count(*) FROM s GROUP BY window(ts, '1 month')", "this is no duration"),
    ("SELECT count(*) FROM s GROUP BY window(dt, '1 day')", "event time of 's'.*That is ts"),
    ("SELECT count(*) FROM nowhere GROUP BY window(ts, '1 day')", "no stream 'nowhere'. There are: s"),
    ("SELECT count(*) FROM s, s AS z GROUP BY window(ts, '1 day')", "one stream"),
    ("SELECT count(*) FROM s WHERE i GROUP BY window(ts, '1 day')", "a condition is needed"),
    ("SELECT count(*) FROM s WHERE i IN (l) GROUP BY window(ts, '1 day')", "IN needs constants"),
    ("SELECT count(*) AS n, sum(i) AS n" + GROUP, "same name"),
    ("SELECT count(*)" + GROUP + " HAVING count(*) > sum(i)", r"SUM\(i\) is not supported"),
    ("DROP TABLE s", "One SELECT is needed"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED, ids=[text[:50] for text, _ in REFUSED])
def test_what_is_not_supported_is_named_with_its_place(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=f"(?s){message}"):
        parse(text)


def test_a_place_is_the_users_even_if_the_text_was_rewritten() -> None:
    with pytest.raises(UsageError, match=r"Line 2, column 39 \('nope'\)"):
        parse("SELECT count(*) FROM s\n  GROUP BY window(ts, '10 seconds'),  nope")
