"""Compiled fragments and tables."""

from kedge.kernel.program import Fragment, Program, compile_graph

__all__ = ["Fragment", "Program", "compile_graph"]
