"""Compiled fragments and tables."""
