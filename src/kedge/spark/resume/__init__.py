"""Queries that survive the death of their driver: plan surgery on classic PySpark.

Reading order: `api` (what users call), `plan` (nodes and cuts), `identity` (the same query in another process),
`model` (what to save), `engine` (save and scan by partition), `parts` (inside the workers), `job` (the directory),
`learn`, `steps` (Spark Connect), `report`.
"""
