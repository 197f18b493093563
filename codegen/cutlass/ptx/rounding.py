"""Rounding towards zero (rz), down (rm) and up (rp): libraries of C use it inside of exp and round.

A sum in float64 and what it leaves over decide on which side of the exact value the nearest number lies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from codegen.cutlass.ptx.scalars import Array

__all__ = ["DIRECTIONS", "add_directed", "convert_directed", "fma_directed", "multiply_directed", "subtract_directed"]

DIRECTIONS: Final = ("rz", "rm", "rp")

Directed = Callable[..., Array]


def _towards(direction: str, sums: Array, rest: Array, dtype: np.dtype[np.generic]) -> Array:
    """The exact `sums + rest` (float64, `rest` at most half a unit of the last place) as `dtype`."""
    near = sums.astype(dtype)
    wide = near.astype(np.float64)
    above = (wide > sums) | ((wide == sums) & (rest < 0))
    below = (wide < sums) | ((wide == sums) & (rest > 0))
    down = above if direction == "rm" else above & (sums > 0) if direction == "rz" else np.zeros_like(above)
    up = below if direction == "rp" else below & (sums < 0) if direction == "rz" else np.zeros_like(below)
    low, high = dtype.type(-np.inf), dtype.type(np.inf)
    return np.where(down, np.nextafter(near, low), np.where(up, np.nextafter(near, high), near))


def _sum(a: Array, b: Array) -> tuple[Array, Array]:
    """Two float64: the sum, and what rounding it left over."""
    total = a + b
    other = total - a
    rest = (a - (total - other)) + (b - other)
    return total, np.where(np.isfinite(total), rest, 0.0)


def add_directed(direction: str) -> Directed:
    """f32 a + b."""

    def add(a: Array, b: Array) -> Array:
        return _towards(direction, *_sum(a.astype(np.float64), b.astype(np.float64)), a.dtype)

    return add


def subtract_directed(direction: str) -> Directed:
    """f32 a - b."""

    def subtract(a: Array, b: Array) -> Array:
        return _towards(direction, *_sum(a.astype(np.float64), -b.astype(np.float64)), a.dtype)

    return subtract


def multiply_directed(direction: str) -> Directed:
    """f32 a b: float64 holds the whole product."""

    def multiply(a: Array, b: Array) -> Array:
        product = a.astype(np.float64) * b.astype(np.float64)
        return _towards(direction, product, np.zeros_like(product), a.dtype)

    return multiply


def fma_directed(direction: str) -> Directed:
    """f32 a b + c."""

    def fma(a: Array, b: Array, c: Array) -> Array:
        product = a.astype(np.float64) * b.astype(np.float64)
        return _towards(direction, *_sum(product, c.astype(np.float64)), a.dtype)

    return fma


def convert_directed(direction: str, values: Array, dtype: np.dtype[np.generic]) -> Array:
    """Numbers that float64 holds exactly, as `dtype`."""
    wide = values.astype(np.float64)
    return _towards(direction, wide, np.zeros_like(wide), dtype)
