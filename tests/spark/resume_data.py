"""Tables of the shape of TPC-H, own rows and own queries: three of them, for the kill tests of every lane."""

from __future__ import annotations

TABLES = ("customer", "orders", "lineitem", "nation")

QUERIES = {
    # a pricing summary: one long scan with a partial aggregate
    "summary": """
        SELECT flag, status, sum(quantity) AS quantity, sum(price * (1 - discount)) AS revenue, avg(price) AS price,
               count(*) AS rows
        FROM lineitem WHERE shipped <= date'1998-09-02' GROUP BY flag, status ORDER BY flag, status""",
    # revenue by nation: joins of three tables
    "nations": """
        SELECT n.name, sum(l.price * (1 - l.discount)) AS revenue
        FROM customer c JOIN orders o ON c.custkey = o.custkey JOIN lineitem l ON l.orderkey = o.orderkey
             JOIN nation n ON n.nationkey = c.nationkey
        WHERE o.ordered >= date'1994-01-01' GROUP BY n.name ORDER BY revenue DESC, n.name""",
    # the largest orders: an aggregate below a join, then a limit
    "largest": """
        SELECT o.orderkey, o.custkey, big.quantity
        FROM orders o JOIN (SELECT orderkey, sum(quantity) AS quantity FROM lineitem GROUP BY orderkey
                            HAVING sum(quantity) > 150) big ON big.orderkey = o.orderkey
        ORDER BY big.quantity DESC, o.orderkey LIMIT 50""",
}


def make(spark, folder, rows=200_000, files=8):
    """Write the tables: decimals, dates, strings; every value follows from the row number."""
    s = spark.range(0, rows, 1, files)
    s.selectExpr(
        f"id * 7919 % {rows // 4} AS orderkey",
        "cast(id % 50 + 1 AS decimal(12,2)) AS quantity",
        "cast((id * 31) % 100000 / 100 AS decimal(12,2)) AS price",
        "cast((id % 11) / 100 AS decimal(12,2)) AS discount",
        "substr('ANR', cast(id % 3 AS int) + 1, 1) AS flag",
        "substr('FO', cast(id % 2 AS int) + 1, 1) AS status",
        "date_add(date'1992-01-02', cast(id * 13 % 2500 AS int)) AS shipped",
    ).write.mode("overwrite").parquet(f"{folder}/lineitem")
    spark.range(0, rows // 4, 1, 4).selectExpr(
        "id AS orderkey",
        f"id * 104729 % {rows // 40} AS custkey",
        "date_add(date'1992-01-01', cast(id * 17 % 2400 AS int)) AS ordered",
    ).write.mode("overwrite").parquet(f"{folder}/orders")
    spark.range(0, rows // 40, 1, 2).selectExpr("id AS custkey", "id % 25 AS nationkey").write.mode(
        "overwrite"
    ).parquet(f"{folder}/customer")
    spark.range(0, 25, 1, 1).selectExpr("id AS nationkey", "concat('NATION ', id) AS name").write.mode(
        "overwrite"
    ).parquet(f"{folder}/nation")


def views(spark, folder, tables=TABLES):
    """Name the tables for SQL."""
    for table in tables:
        spark.read.parquet(f"{folder}/{table}").createOrReplaceTempView(table)
