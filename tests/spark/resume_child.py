"""A driver to be killed: python resume_child.py TABLES AT QUERY_FILE TABLE,TABLE..."""

import sys

from resume_data import save_everything, views

from kedge.spark.resume import api
from kedge.spark.session import session

if __name__ == "__main__":
    tables, at, query, names = sys.argv[1:]
    spark = session(
        "killed", **{"spark.sql.files.maxPartitionBytes": 200_000, "spark.sql.files.openCostInBytes": 0}
    )
    views(spark, tables, names.split(","))
    save_everything()
    with open(query) as file:
        api.resume(spark.sql(file.read()), at=at, keep=True).collect()
