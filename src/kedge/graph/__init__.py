"""Queries as operators, and the SQL front end."""

from kedge.graph.operators import Aggregate, Filter, Graph, Having, Input, Output, Project, Window, WindowAggregate
from kedge.graph.sql import parse

__all__ = [
    "Aggregate",
    "Filter",
    "Graph",
    "Having",
    "Input",
    "Output",
    "Project",
    "Window",
    "WindowAggregate",
    "parse",
]
