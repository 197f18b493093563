"""Optimal orders of small programs by CP-SAT; the oracle of tests and benchmarks."""
