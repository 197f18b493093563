"""Arithmetic that numpy lacks: directed rounding, and operations on the bits of integers.

C libraries use rounding towards zero (rz), down (rm) and up (rp) inside exp and round. A sum in float64 and its
rounding error decide on which side of the exact value the nearest number lies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from codegen.cutlass.ptx.state.scalars import Array


def mul_hi(a: Array, b: Array) -> Array:
    """The upper half of the product."""
    bits = 8 * a.dtype.itemsize
    if bits < 64:
        wide = np.dtype(f"{a.dtype.kind}8")
        return np.asarray((a.astype(wide) * b.astype(wide) >> wide.type(bits)).astype(a.dtype))
    x, y = np.broadcast_arrays(a.view(np.uint64), b.view(np.uint64))
    low, half = np.uint64(0xFFFF_FFFF), np.uint64(32)
    x0, x1, y0, y1 = x & low, x >> half, y & low, y >> half
    middle = (x0 * y0 >> half) + (x0 * y1 & low) + (x1 * y0 & low)
    high = x1 * y1 + (x0 * y1 >> half) + (x1 * y0 >> half) + (middle >> half)
    if a.dtype.kind == "i":
        zero = np.uint64(0)
        high = high - np.where(a < 0, y, zero) - np.where(b < 0, x, zero)
    return np.asarray(high.view(a.dtype))


def shf(low: Array, high: Array, count: Array, *, left: bool) -> Array:
    """32 bits of the 64 bits of `high` and `low`, shifted."""
    both = high.astype(np.uint64) << np.uint64(32) | low.astype(np.uint64)
    count = count.astype(np.uint64)
    return ((both << count) >> np.uint64(32) if left else both >> count).astype(np.uint32)


def bfe(a: Array, start: Array, length: Array) -> Array:
    """The field of `length` bits from `start`, extended by its top bit where signed."""
    bits = 8 * a.dtype.itemsize
    start, length = start & 255, length & 255
    if a.dtype.kind == "u":
        field = np.right_shift(a, np.minimum(start, bits).astype(a.dtype))
        mask = np.where(
            length >= bits,
            ~a.dtype.type(0),
            (a.dtype.type(1) << np.minimum(length, bits - 1).astype(a.dtype)) - a.dtype.type(1),
        )
        return np.asarray(field & mask)
    top = np.minimum(start + length, bits)
    moved = np.left_shift(a, (bits - top).astype(a.dtype))
    found: Array = np.where(
        length == 0, a.dtype.type(0), np.right_shift(moved, np.minimum(bits - top + start, bits - 1).astype(a.dtype))
    )
    return found


def bfi(a: Array, b: Array, start: Array, length: Array) -> Array:
    """`b` with the low `length` bits of `a` inserted at `start`."""
    bits = 8 * a.dtype.itemsize
    start, length = start & 255, length & 255
    one = a.dtype.type(1)
    ones = np.where(length >= bits, ~a.dtype.type(0), (one << np.minimum(length, bits - 1).astype(a.dtype)) - one)
    shift = np.minimum(start, bits).astype(a.dtype)
    mask = np.left_shift(ones, shift)
    return np.asarray((b & ~mask) | (np.left_shift(a, shift) & mask))


def popc(a: Array) -> Array:
    """Number of set bits."""
    return np.bitwise_count(a).astype(np.uint32)


def clz(a: Array) -> Array:
    """Number of zeros above the highest set bit."""
    return (8 * a.dtype.itemsize - popc(_filled(a))).astype(np.uint32)


def bfind(a: Array) -> Array:
    """Position of the highest bit that differs from the sign; 2^32 - 1 where there is none."""
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    plain = (np.where(a < 0, ~a, a) if a.dtype.kind == "i" else a).view(unsigned)
    return popc(_filled(plain)) - np.uint32(1)


def bfind_shift(a: Array) -> Array:
    """Distance of that bit (see `bfind`) from the top bit; 2^32 - 1 where there is none."""
    found, top = bfind(a), np.uint32(8 * a.dtype.itemsize - 1)
    return np.asarray(np.where(found == np.uint32(0xFFFF_FFFF), found, top - found))


def _filled(a: Array) -> Array:
    """All bits below the highest set bit, set."""
    shift = 1
    while shift < 8 * a.dtype.itemsize:
        a = a | a >> a.dtype.type(shift)
        shift *= 2
    return a


def brev(a: Array) -> Array:
    """The bits in reverse order."""
    size = a.dtype.itemsize
    bits = np.unpackbits(np.ascontiguousarray(a).view(np.uint8).reshape(-1, size), axis=1, bitorder="little")
    return np.packbits(bits[:, ::-1], axis=1, bitorder="little").reshape(-1).view(a.dtype)


def prmt(a: Array, b: Array, selector: Array) -> Array:
    """Four bytes of the eight of `b` and `a`; a selector's bit 3 spreads the byte's sign."""
    both = a.astype(np.uint64) | b.astype(np.uint64) << np.uint64(32)
    result = np.zeros(np.broadcast_shapes(both.shape, selector.shape), np.uint32)
    for k in range(4):
        chosen = selector >> np.uint32(4 * k)
        byte = (both >> ((chosen & 7).astype(np.uint64) << np.uint64(3)) & np.uint64(255)).astype(np.uint32)
        sign = np.where(byte & 128, np.uint32(255), np.uint32(0))
        result |= np.where(chosen & 8, sign, byte) << np.uint32(8 * k)
    return result


def lop3(a: Array, b: Array, c: Array, table: Array) -> Array:
    """The function of three bits whose truth table is `table`, on each bit."""
    bits = int(table[0])
    result = np.zeros(np.broadcast_shapes(a.shape, b.shape, c.shape), np.uint32)
    for row in range(8):
        if bits >> row & 1:
            result |= (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
    return result


DIRECTIONS: Final = ("rz", "rm", "rp")

Directed = Callable[..., Array]


def _towards(direction: str, sums: Array, rest: Array, dtype: np.dtype[np.generic]) -> Array:
    """The exact `sums + rest` (float64, `rest` at most half a unit of the last place), rounded to `dtype`."""
    near = sums.astype(dtype)
    wide = near.astype(np.float64)
    above = (wide > sums) | ((wide == sums) & (rest < 0))
    below = (wide < sums) | ((wide == sums) & (rest > 0))
    down = above if direction == "rm" else above & (sums > 0) if direction == "rz" else np.zeros_like(above)
    up = below if direction == "rp" else below & (sums < 0) if direction == "rz" else np.zeros_like(below)
    low, high = dtype.type(-np.inf), dtype.type(np.inf)
    return np.where(down, np.nextafter(near, low), np.where(up, np.nextafter(near, high), near))


def _sum(a: Array, b: Array) -> tuple[Array, Array]:
    """The sum of two float64 numbers, and its rounding error."""
    total = a + b
    other = total - a
    rest = (a - (total - other)) + (b - other)
    return total, np.where(np.isfinite(total), rest, 0.0)


def add_directed(direction: str) -> Directed:
    """f32 a + b with directed rounding."""

    def add(a: Array, b: Array) -> Array:
        return _towards(direction, *_sum(a.astype(np.float64), b.astype(np.float64)), a.dtype)

    return add


def subtract_directed(direction: str) -> Directed:
    """f32 a - b with directed rounding."""

    def subtract(a: Array, b: Array) -> Array:
        return _towards(direction, *_sum(a.astype(np.float64), -b.astype(np.float64)), a.dtype)

    return subtract


def multiply_directed(direction: str) -> Directed:
    """f32 a b with directed rounding: float64 holds the whole product."""

    def multiply(a: Array, b: Array) -> Array:
        product = a.astype(np.float64) * b.astype(np.float64)
        return _towards(direction, product, np.zeros_like(product), a.dtype)

    return multiply


def fma_directed(direction: str) -> Directed:
    """f32 a b + c with directed rounding."""

    def fma(a: Array, b: Array, c: Array) -> Array:
        product = a.astype(np.float64) * b.astype(np.float64)
        return _towards(direction, *_sum(product, c.astype(np.float64)), a.dtype)

    return fma


def convert_directed(direction: str, values: Array, dtype: np.dtype[np.generic]) -> Array:
    """Numbers that float64 holds exactly, rounded to `dtype`."""
    wide = values.astype(np.float64)
    return _towards(direction, wide, np.zeros_like(wide), dtype)
