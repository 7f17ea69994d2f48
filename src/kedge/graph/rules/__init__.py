"""Rewrites of a graph, one file each."""
