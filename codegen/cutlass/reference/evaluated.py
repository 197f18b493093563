"""Numbers with how far a GPU's may be from them, and the arithmetic of single precision on such pairs.

    (x, e), (y, f)  --mul-->  (x y, the farthest corner of both intervals, and 2^-23 of that for rounding)

A kernel loads halves, computes in fp32 and rounds once where a layer is stored. Each function here is one step of that:
its numbers are exact (float64), its error counts what the operands may be off, and what the step itself rounds. Steps
are of the class that CUDA documents for the plain functions without `-use_fast_math`, with room for the approximate
instructions of PTX; how much is said at each.

A number that fp32 cannot hold is infinite. Infinities and NaN are certain, with an error of 0, or anything may be in
their place: then the error is infinite.
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
"""Distance from 1 to the next number of fp32: a step may round by it, twice what one that rounds to nearest does."""

LEAST = 2.0**-126
"""What may be flushed to zero: the smallest normal number of fp32."""

LARGEST, OVERFLOW = 2.0**128 - 2.0**104, 2.0**128 - 2.0**103
"""The largest number of fp32, and the smallest that rounds to infinity."""

ELEMENTARY_UNITS = 4.0
"""Of a division, a root and the elementary functions, in units of the result; CUDA documents 2 at most."""

ARGUMENT_UNITS = 2.0
"""By which an exponent is off, in units of its argument: exp(x) may be ex2(x * log2(e)), product and factor rounded."""

Index = Array | int | slice | EllipsisType
"""Of elements, by numpy's rules."""


@dataclass(frozen=True, slots=True)
class Evaluated:
    """`numbers` as they are in exact arithmetic; a GPU's, in fp32 and not rounded to halves, are within `error`."""

    numbers: Doubles
    error: Doubles

    def at(self, *index: Index) -> Evaluated:
        """Elements by numpy's rules."""
        return Evaluated(self.numbers[index], self.error[index])

    @property
    def sizes(self) -> Doubles:
        """The largest magnitudes that a GPU's numbers may have."""
        sizes = np.abs(self.numbers)
        return np.asarray(sizes + self.error) if self.error.any() else sizes


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor as it lies in memory, in its own type, and how far each of its elements may be from what was read; None
    where none is. Elements become float64 where they are taken, for a whole tensor may be large."""

    values: Array
    errors: Doubles | None = None

    def at(self, *index: Index) -> Evaluated:
        """Elements by numpy's rules."""
        numbers = np.asarray(self.values[index], np.float64)
        if self.errors is None:
            return Evaluated(numbers, np.broadcast_to(0.0, numbers.shape))
        return Evaluated(numbers, np.asarray(self.errors[index]))

    def moved(self, axes: tuple[int, ...]) -> Stored:
        """With the axes in another order."""
        return self.each(lambda array: array.transpose(axes))

    def each(self, arrange: Callable[[Array], Array]) -> Stored:
        """With elements arranged in another way."""
        errors = None if self.errors is None else np.asarray(arrange(self.errors), np.float64)
        return Stored(arrange(self.values), errors)


def off(found: Doubles, numbers: Doubles) -> Doubles:
    """|found - numbers|: 0 for the same infinity or both NaN, infinite where only one of both is finite."""
    apart = np.abs(found - numbers)
    same = (found == numbers) | (np.isnan(found) & np.isnan(numbers))
    return np.where(same, 0.0, np.where(np.isfinite(apart), apart, np.inf))


def monotone(function: Callable[..., Doubles], *operands: Evaluated) -> Evaluated:
    """A function that rises or falls with each operand: it is farthest from its value at a corner."""
    numbers = np.asarray(function(*(operand.numbers for operand in operands)))
    error = np.zeros(numbers.shape)
    if any(operand.error.any() for operand in operands):
        for signs in product((-1.0, 1.0), repeat=len(operands)):
            ends = (operand.numbers + sign * operand.error for sign, operand in zip(signs, operands, strict=True))
            error = np.maximum(error, off(np.asarray(function(*ends)), numbers))
    return Evaluated(numbers, error)


def rounded(exact: Evaluated, units: float | Doubles = 1.0) -> Evaluated:
    """After one more rounding, by `units` of the size of the result, or flushed to zero, or beyond the range."""
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
    """Their sum, each addition rounded."""
    return reduce(lambda x, y: rounded(monotone(np.add, x, y)), terms)


def sub(x: Evaluated, y: Evaluated) -> Evaluated:
    return rounded(monotone(np.subtract, x, y))


def mul(x: Evaluated, y: Evaluated) -> Evaluated:
    return rounded(monotone(np.multiply, x, y))


def divide(x: Evaluated, y: Evaluated) -> Evaluated:
    """x / y; anything may come out where y may have either sign."""
    quotient = rounded(monotone(np.divide, x, y), ELEMENTARY_UNITS)
    either = (y.error > 0) & (np.abs(y.numbers) <= y.error)
    return Evaluated(quotient.numbers, np.where(either, np.inf, quotient.error)) if either.any() else quotient


def maximum(x: Evaluated, y: Evaluated) -> Evaluated:
    """The larger, without rounding; NaN if either is."""
    return monotone(np.maximum, x, y)


def minimum(x: Evaluated, y: Evaluated) -> Evaluated:
    """The smaller, without rounding; NaN if either is."""
    return monotone(np.minimum, x, y)


def negate(x: Evaluated) -> Evaluated:
    return Evaluated(-x.numbers, x.error)


def exp(x: Evaluated, argument: Doubles | None = None) -> Evaluated:
    """e^x. Where x is a difference, `argument` is the size of what may have been multiplied by log2(e) before it."""
    sizes = x.sizes if argument is None else argument
    certain_zero = (x.numbers == 0) & (x.error == 0) & (sizes == 0)
    units = np.where(np.isfinite(sizes), ELEMENTARY_UNITS + ARGUMENT_UNITS * sizes, 0.0)
    return rounded(monotone(np.exp, x), np.where(certain_zero, 0.0, units))


def log(x: Evaluated) -> Evaluated:
    """ln(x): beside its own size off by units of 1, as lg2.approx is near 1."""
    exact = monotone(np.log, x)
    loose = np.where(np.isfinite(exact.numbers), exact.error + ELEMENTARY_UNITS * UNIT, exact.error)
    return rounded(Evaluated(exact.numbers, loose), ELEMENTARY_UNITS)


def erf(x: Evaluated) -> Evaluated:
    return rounded(monotone(_erf, x), ELEMENTARY_UNITS)


def sqrt(x: Evaluated) -> Evaluated:
    """The root; where x may be negative, anything may come out."""
    return rounded(monotone(np.sqrt, x), ELEMENTARY_UNITS)


def _erf(x: Doubles) -> Doubles:
    return np.asarray(np.frompyfunc(_erf_of_one, 1, 1)(x), np.float64)
