"""`format("kedge")`: streams as a data source and sink of Spark, in batch and in streaming.

    kedge.register(spark)
    spark.read.format("kedge").load("data/rides")
    spark.readStream.format("kedge").option("maxRowsPerBatch", 1_000_000).load("data/rides")
    df.write.format("kedge").mode("append").save("data/rides")
    df.writeStream.format("kedge").option("checkpointLocation", ...).start("data/rides")

The results of a run are a stream like any other and are read the same way.
"""

# ruff: noqa: N802  (the names of the methods are Spark's)

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from kedge.errors import UsageError
from kedge.spark.options import read_options, write_options
from kedge.spark.reader import BatchReader, StreamReader, opened
from kedge.spark.types import chosen, to_spark
from kedge.spark.writer import BatchWriter, StreamWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class KedgeSource(DataSource):
    """A kedge stream in Spark."""

    @classmethod
    def name(cls) -> str:
        """What stands in `format(...)`."""
        return "kedge"

    def schema(self) -> StructType:
        """The stream's columns, or those that the option `columns` names."""
        options = read_options(self._given())
        found = opened(options.path)
        if options.columns is None:
            return to_spark(found.schema)
        return to_spark(chosen(found.schema, options.columns, f"The stream {found.path}"))

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`."""
        return BatchReader(read_options(self._given()), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """For `spark.readStream`."""
        return StreamReader(read_options(self._given()), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For `df.write`."""
        if overwrite:
            raise UsageError("A stream is only appended to: use mode('append'), or write to another stream.")
        return BatchWriter(write_options(self._given()), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """For `df.writeStream`."""
        if overwrite:
            raise UsageError("A stream is only appended to: use outputMode('append') or outputMode('update').")
        return StreamWriter(write_options(self._given()), schema)

    def _given(self) -> dict[str, str]:
        given: Any = self.options
        return dict(given)


def register(spark: SparkSession) -> None:
    """Make `format("kedge")` (streams) and `format("kedge-store")` (versioned stores) known to a Spark session.

    >>> register(spark)
    >>> spark.read.format("kedge").load("data/rides").count()
    1000
    """
    # Without it Spark refuses sources that can use filters, rather than not handing them over.
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(KedgeSource)
    from kedge.spark.store_sink import StoreFormat

    spark.dataSource.register(StoreFormat)
