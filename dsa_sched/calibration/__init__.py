"""Calibration: micro-benchmarks for a chip, and the numbers of its file fitted to their measured cycles."""
