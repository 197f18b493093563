"""Numbers with the largest error of a GPU's numbers, and the arithmetic of single precision on such pairs.

    (x, e), (y, f)  --mul-->  (x y, the farthest corner of both intervals, and 2^-23 of that for rounding)

A kernel loads fp16, computes in fp32 and rounds once where a layer is stored. Each function here is one such step: its
numbers are exact (float64), and its error counts the errors of the operands and the rounding of the step itself. Steps
are as precise as CUDA documents the plain functions without `-use_fast_math`, with room for the approximate
instructions of PTX; each step says how much.

A number that fp32 cannot hold is infinite. Infinities and NaN are either certain, with an error of 0, or any value may
take their place: then the error is infinite.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from itertools import product
from math import erf as _erf_of_one
from types import EllipsisType

import numpy as np

from codegen.judgement import Array, Doubles

UNIT = 2.0**-23
"""Distance from 1 to the next number of fp32. A step may round by this, twice the error of rounding to nearest."""

LEAST = 2.0**-126
"""Smallest normal number of fp32: smaller ones may be flushed to zero."""

LARGEST, OVERFLOW = 2.0**128 - 2.0**104, 2.0**128 - 2.0**103
"""Largest number of fp32, and the smallest that rounds to infinity."""

ELEMENTARY_UNITS = 4.0
"""Error of a division, a root and the elementary functions, in units of the result; CUDA documents 2 at most."""

ARGUMENT_UNITS = 2.0
"""Relative error of an exponent, in units of its argument: exp(x) may be ex2(x * log2(e)), product and factor
rounded."""

Index = Array | int | slice | EllipsisType
"""Index of elements, by numpy's rules."""


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Numbers in exact arithmetic; a GPU's numbers, in fp32 and before they are rounded to fp16, are within `error` of
    them."""

    numbers: Doubles
    error: Doubles

    def at(self, *index: Index) -> Evaluated:
        """The elements at an index, by numpy's rules."""
        return Evaluated(self.numbers[index], self.error[index])

    @property
    def sizes(self) -> Doubles:
        """Largest possible magnitudes of a GPU's numbers."""
        sizes = np.abs(self.numbers)
        return np.asarray(sizes + self.error) if self.error.any() else sizes


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor in memory, in its own type, and the error of each of its elements; None where it has no errors. Elements
    become float64 when they are taken, since a whole tensor may be large."""

    values: Array
    errors: Doubles | None = None

    def at(self, *index: Index) -> Evaluated:
        """The elements at an index, by numpy's rules."""
        numbers = np.asarray(self.values[index], np.float64)
        if self.errors is None:
            return Evaluated(numbers, np.broadcast_to(0.0, numbers.shape))
        return Evaluated(numbers, np.asarray(self.errors[index]))

    def moved(self, axes: tuple[int, ...]) -> Stored:
        """The tensor with its axes in another order."""
        return self.each(lambda array: array.transpose(axes))

    def each(self, arrange: Callable[[Array], Array]) -> Stored:
        """The tensor with its elements arranged in another way."""
        errors = None if self.errors is None else np.asarray(arrange(self.errors), np.float64)
        return Stored(arrange(self.values), errors)


def off(found: Doubles, numbers: Doubles) -> Doubles:
    """|found - numbers|: 0 for the same infinity or both NaN, infinite where only one of both is finite."""
    apart = np.abs(found - numbers)
    same = (found == numbers) | (np.isnan(found) & np.isnan(numbers))
    return np.where(same, 0.0, np.where(np.isfinite(apart), apart, np.inf))


def monotone(function: Callable[..., Doubles], *operands: Evaluated) -> Evaluated:
    """A function that rises or falls with each operand: its value is farthest from the exact one at a corner."""
    numbers = np.asarray(function(*(operand.numbers for operand in operands)))
    error = np.zeros(numbers.shape)
    if any(operand.error.any() for operand in operands):
        for signs in product((-1.0, 1.0), repeat=len(operands)):
            ends = (operand.numbers + sign * operand.error for sign, operand in zip(signs, operands, strict=True))
            error = np.maximum(error, off(np.asarray(function(*ends)), numbers))
    return Evaluated(numbers, error)


def rounded(exact: Evaluated, units: float | Doubles = 1.0) -> Evaluated:
    """The value after one more rounding: off by `units` of the size of the result, flushed to zero, or beyond the
    range."""
    numbers, sizes = exact.numbers, exact.sizes
    rounding = np.where((sizes > 0) & (np.asarray(units) > 0), UNIT * units * sizes + LEAST, 0.0)
    error = np.where(np.isfinite(numbers), exact.error + rounding, exact.error)
    beyond = np.isfinite(numbers) & (sizes + rounding > LARGEST)
    if beyond.any():
        certain = beyond & (np.abs(numbers) - error >= OVERFLOW)
        numbers = np.where(certain, np.copysign(np.inf, numbers), numbers)
        error = np.where(certain, 0.0, np.where(beyond, np.inf, error))
    return Evaluated(numbers, error)


def immediate(number: float) -> Evaluated:
    """A number of an attribute, as an fp32 immediate holds it."""
    exact = np.asarray(number, np.float64)
    return Evaluated(exact, off(exact.astype(np.float32).astype(np.float64), exact))


def add(*terms: Evaluated) -> Evaluated:
    """The sum of all terms, each addition rounded."""
    return reduce(lambda x, y: rounded(monotone(np.add, x, y)), terms)


def sub(x: Evaluated, y: Evaluated) -> Evaluated:
    return rounded(monotone(np.subtract, x, y))


def mul(x: Evaluated, y: Evaluated) -> Evaluated:
    return rounded(monotone(np.multiply, x, y))


def divide(x: Evaluated, y: Evaluated) -> Evaluated:
    """x / y; the error is infinite where y may have either sign."""
    quotient = rounded(monotone(np.divide, x, y), ELEMENTARY_UNITS)
    either = (y.error > 0) & (np.abs(y.numbers) <= y.error)
    return Evaluated(quotient.numbers, np.where(either, np.inf, quotient.error)) if either.any() else quotient


def maximum(x: Evaluated, y: Evaluated) -> Evaluated:
    """The larger number, without rounding; NaN if either is."""
    return monotone(np.maximum, x, y)


def minimum(x: Evaluated, y: Evaluated) -> Evaluated:
    """The smaller number, without rounding; NaN if either is."""
    return monotone(np.minimum, x, y)


def negate(x: Evaluated) -> Evaluated:
    return Evaluated(-x.numbers, x.error)


def exp(x: Evaluated, argument: Doubles | None = None) -> Evaluated:
    """e^x. Where x is a difference, `argument` is the size of the terms that may have been multiplied by log2(e) before
    it."""
    sizes = x.sizes if argument is None else argument
    certain_zero = (x.numbers == 0) & (x.error == 0) & (sizes == 0)
    units = np.where(np.isfinite(sizes), ELEMENTARY_UNITS + ARGUMENT_UNITS * sizes, 0.0)
    return rounded(monotone(np.exp, x), np.where(certain_zero, 0.0, units))


def log(x: Evaluated) -> Evaluated:
    """ln(x): in addition to its relative error it is off by units of 1, as lg2.approx is near 1."""
    exact = monotone(np.log, x)
    loose = np.where(np.isfinite(exact.numbers), exact.error + ELEMENTARY_UNITS * UNIT, exact.error)
    return rounded(Evaluated(exact.numbers, loose), ELEMENTARY_UNITS)


def erf(x: Evaluated) -> Evaluated:
    return rounded(monotone(_erf, x), ELEMENTARY_UNITS)


def sqrt(x: Evaluated) -> Evaluated:
    """The root; the error is infinite where x may be negative."""
    return rounded(monotone(np.sqrt, x), ELEMENTARY_UNITS)


def _erf(x: Doubles) -> Doubles:
    return np.asarray(np.frompyfunc(_erf_of_one, 1, 1)(x), np.float64)
