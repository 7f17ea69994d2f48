"""Durable ordered rows in partitions: units, segments, append, read, recover."""
