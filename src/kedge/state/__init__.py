"""Versioned structures: one log of net changes, forwards and backwards."""
