"""Spark: data source, sink, runner, plan surgery. The only room that imports pyspark."""
