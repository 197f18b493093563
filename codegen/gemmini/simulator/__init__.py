"""Executes any program of the instruction set, bit for bit."""
