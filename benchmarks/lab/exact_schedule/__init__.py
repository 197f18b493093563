"""Optimal orders of small programs, by CP-SAT."""
