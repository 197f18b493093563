"""Sums in fp32 in any order: their exact values, and K 2^-23 of the sum of magnitudes as the bound of their rounding.

    rows [P, K], columns [F, K], samples as pairs of both  -->  sums of K products [S]

Each of K additions may change the sum so far by a unit, because the matrix units truncate where others round. Products
of fp16 numbers are exact in fp32; an operand's error is passed on to its products. No sum of stored fp16 values is
beyond fp32. A missing product of average size is larger than this bound up to K = 2,900, where K K 2^-23 = 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from codegen.cutlass.reference.evaluated import UNIT, Evaluated
from codegen.judgement import Doubles, Points

ELEMENTS_AT_A_TIME = 1 << 21
"""Number of gathered operands at a time, so that memory stays small."""

WASTE = 32
"""Largest number of products of all rows with all columns per product that is asked for: a matrix product computes this
many times more per second than gathered pairs do."""

Gather = Callable[[Points], Evaluated]
"""Function that gives rows or columns [N, K] by their numbers."""

Sums = Callable[[Doubles, Doubles], Doubles]
"""Function that sums the products of rows with columns, for each sample."""


def pieces(count: int, length: int) -> Iterator[slice]:
    """Slices of `count` things of `length` elements each, as many at a time as memory should hold, and at least one."""
    step = max(1, ELEMENTS_AT_A_TIME // length)
    return (slice(first, first + step) for first in range(0, count, step))


def plain_sum(terms: Evaluated) -> Evaluated:
    """Sums along the last axis."""
    magnitudes = terms.sizes.sum(-1)
    return _bounded(terms.numbers.sum(-1), terms.error.sum(-1), magnitudes, terms.numbers.shape[-1])


def sums_of_products(
    rows: Gather, columns: Gather, of_row: Points, of_column: Points, length: int, bias: Evaluated | None
) -> Evaluated:
    """Products of row `of_row[s]` with column `of_column[s]` for each sample s, `length` long, summed; `bias` [S] is
    one more term."""
    numbers, errors, sizes = np.empty((3, len(of_row)))
    for samples, a, b, sums in _blocks(rows, columns, of_row, of_column, length):
        numbers[samples], errors[samples], sizes[samples] = _products(a, b, sums)
    if bias is None:
        return _bounded(numbers, errors, sizes, length)
    return _bounded(numbers + bias.numbers, errors + bias.error, sizes + bias.sizes, length + 1)


def _blocks(
    rows: Gather, columns: Gather, of_row: Points, of_column: Points, length: int
) -> Iterator[tuple[Points, Evaluated, Evaluated, Sums]]:
    """Samples with the rows and columns that they need, as pairs or as matrices, whichever is less work."""
    some_rows, row = np.unique(of_row, return_inverse=True)
    some_columns, column = np.unique(of_column, return_inverse=True)
    if len(some_rows) * len(some_columns) > WASTE * len(of_row):
        for piece in pieces(len(of_row), length):
            yield np.arange(len(of_row))[piece], rows(of_row[piece]), columns(of_column[piece]), _pairs
        return
    order = np.argsort(row, kind="stable")
    for across in pieces(len(some_columns), length):
        b = columns(some_columns[across])
        here = order[(column[order] >= across.start) & (column[order] < across.stop)]
        for down in pieces(len(some_rows), length):
            samples = here[slice(*np.searchsorted(row[here], (down.start, down.stop)))]
            chosen = _chosen(row[samples] - down.start, column[samples] - across.start)
            yield samples, rows(some_rows[down]), b, chosen


def _bounded(numbers: Doubles, errors: Doubles, sizes: Doubles, terms: int) -> Evaluated:
    """The sums with their errors. Infinite and NaN sums are certain unless an infinite term is not."""
    finite = np.isfinite(numbers)
    error = np.where(finite, errors + terms * UNIT * sizes, np.where(np.isfinite(errors), 0.0, np.inf))
    return Evaluated(numbers, np.where(np.isnan(error), np.inf, error))


def _chosen(row: Points, column: Points) -> Sums:
    return lambda a, b: np.asarray((a @ b.T)[row, column])


def _pairs(a: Doubles, b: Doubles) -> Doubles:
    return np.asarray(np.einsum("sk,sk->s", a, b))


def _products(a: Evaluated, b: Evaluated, sums: Sums) -> tuple[Doubles, Doubles, Doubles]:
    """Sums, their errors from the operands' errors, and sums of magnitudes."""
    numbers, sizes = sums(a.numbers, b.numbers), sums(a.sizes, b.sizes)
    errors = np.zeros(len(numbers))
    if a.error.any():
        errors += sums(a.error, b.sizes)
    if b.error.any():
        errors += sums(np.abs(a.numbers), b.error)
    return numbers, errors, sizes
