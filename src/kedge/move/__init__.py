"""Planners for moving state: pure functions on arrays."""
