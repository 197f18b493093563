"""Extents of matrices in shared memory, as planes.cuh lays them out."""

from __future__ import annotations


def rounded_up(value: int, to: int) -> int:
    return -(-value // to) * to


def copied_pitch(rows: int, depth: int) -> int:
    """Rows of a plane for which threads that copy the units of a row hit different banks."""
    apart = 1 if depth >= 64 else 64 // depth
    return (rows + 7 - apart) // 8 * 8 + apart
