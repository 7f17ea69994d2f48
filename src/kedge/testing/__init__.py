"""Shipped: reference models, check suites, the simulator's workloads."""
