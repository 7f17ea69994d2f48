"""Compiled fragments and tables."""

from kedge.kernel.program import Fragment, Program, compile_graph
from kedge.kernel.table import Applied, Grow, Table, apply_all, dump_all, load_all, move_all

__all__ = [
    "Applied",
    "Fragment",
    "Grow",
    "Program",
    "Table",
    "apply_all",
    "compile_graph",
    "dump_all",
    "load_all",
    "move_all",
]
