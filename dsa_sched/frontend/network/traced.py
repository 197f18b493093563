"""Constants together with how they follow from the file: what is done to the array is noted in its term.

TracedArray(array, term).transpose(1, 0).take((2, 0))

The methods are numpy's, as far as terms have them; arithmetic is in float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dsa_sched.frontend.network.terms import Term, number
from partitioner.ir.wants import Rounding

Array = npt.NDArray[np.generic]
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TracedArray:
    """An array, and its derivation from the file."""

    array: Array
    term: Term

    @classmethod
    def of(cls, value: float) -> TracedArray:
        """A number of an operator's definition."""
        return cls(np.array(value, np.float64), number(value))

    @property
    def shape(self) -> Shape:
        return self.array.shape

    @property
    def float64(self) -> npt.NDArray[np.float64]:
        """The numbers alone."""
        return np.asarray(self.array, np.float64)

    def reshape(self, *shape: int) -> TracedArray:
        return TracedArray(self.array.reshape(shape), self.term.reshape(*shape))

    def transpose(self, *perm: int) -> TracedArray:
        return TracedArray(self.array.transpose(perm), self.term.transpose(*perm))

    def broadcast(self, *shape: int) -> TracedArray:
        return TracedArray(np.broadcast_to(self.array, shape), self.term.broadcast(*shape))

    def take(self, rows: Sequence[int]) -> TracedArray:
        """These indices of the first axis."""
        return TracedArray(self.array[list(rows)], self.term.take(tuple(rows)))

    def pad(self, *counts: int) -> TracedArray:
        """The array with this many zeros after the elements of each axis."""
        if not any(counts):
            return self
        return TracedArray(np.pad(self.array, [(0, count) for count in counts]), self.term.pad(*counts))

    def spread(self, axis: int, step: int) -> TracedArray:
        """The array with its elements `step` apart along an axis: step - 1 zeros after each."""
        if step == 1:
            return self
        before, extent, after = self.shape[:axis], self.shape[axis], self.shape[axis + 1 :]
        pads = (*(0,) * (axis + 1), step - 1, *(0,) * len(after))
        return self.reshape(*before, extent, 1, *after).pad(*pads).reshape(*before, extent * step, *after)

    @classmethod
    def joined(cls, parts: Sequence[TracedArray], axis: int) -> TracedArray:
        """Arrays one after the other along an axis."""
        return cls(
            np.concatenate([part.array for part in parts], axis), Term.joined([part.term for part in parts], axis)
        )

    def sum(self, axes: Shape) -> TracedArray:
        return TracedArray(np.asarray(self.float64.sum(axis=axes)), self.term.sum(axes))

    def product(self, other: TracedArray) -> TracedArray:
        """Product of two matrices."""
        return TracedArray(self.float64 @ other.float64, self.term.product(other.term))

    def least(self, other: TracedArray) -> TracedArray:
        return TracedArray(np.minimum(self.array, other.array), self.term.least(other.term))

    def rounded(self, rounding: Rounding) -> TracedArray:
        """The numbers that a type has for these."""
        return TracedArray(rounding.rounded(self.float64), self.term.rounded(rounding.dtype))

    def integral(self) -> TracedArray:
        """The nearest integers of 32 bits, ties to even."""
        return TracedArray(np.rint(self.float64).astype(np.int32), self.term.rounded("int32"))

    def root(self) -> TracedArray:
        return TracedArray(np.sqrt(self.float64), self.term.root())

    def __neg__(self) -> TracedArray:
        return TracedArray(-self.float64, number(0) - self.term)

    def __add__(self, other: TracedArray) -> TracedArray:
        return TracedArray(self.float64 + other.float64, self.term + other.term)

    def __sub__(self, other: TracedArray) -> TracedArray:
        return TracedArray(self.float64 - other.float64, self.term - other.term)

    def __mul__(self, other: TracedArray) -> TracedArray:
        return TracedArray(self.float64 * other.float64, self.term * other.term)

    def __truediv__(self, other: TracedArray) -> TracedArray:
        return TracedArray(self.float64 / other.float64, self.term / other.term)
