"""Runs: the batch protocol and its embedded shell."""
