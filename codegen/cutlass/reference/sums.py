"""Sums in fp32 in any order: what they are, and K 2^-23 of the sum of magnitudes as the bound of their rounding.

    rows [P, K], columns [F, K], samples as pairs of both  -->  sums of K products [S]

Each of K additions may round the sum so far by a unit, for the matrix units cut where others round. Products of halves
are exact in fp32; where an operand is off, so are its products. No sum of stored halves is beyond fp32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from codegen.cutlass.reference.evaluated import UNIT, Evaluated
from codegen.judgement import Doubles, Points

__all__ = ["pieces", "plain_sum", "sums_of_products"]

ELEMENTS_AT_A_TIME = 1 << 21
"""Of gathered operands, so that memory stays small."""

WASTE = 8
"""How many products of all rows with all columns may be computed for each one that is asked for: a matrix product
does more in a second than pairs that are gathered."""

Gather = Callable[[Points], Evaluated]
"""Rows or columns [N, K] by their numbers."""


def pieces(count: int, length: int) -> Iterator[slice]:
    """Of `count` things of `length` elements each as many at a time as memory should hold, one at least."""
    step = max(1, ELEMENTS_AT_A_TIME // length)
    return (slice(first, first + step) for first in range(0, count, step))


def plain_sum(terms: Evaluated) -> Evaluated:
    """Sums along the last axis."""
    magnitudes = terms.sizes.sum(-1)
    return _bounded(terms.numbers.sum(-1), terms.error.sum(-1), magnitudes, terms.numbers.shape[-1])


def sums_of_products(
    rows: Gather, columns: Gather, of_row: Points, of_column: Points, length: int, bias: Evaluated | None
) -> Evaluated:
    """Of row `of_row[s]` with column `of_column[s]` for each sample s, `length` long; `bias` [S] is one term more."""
    numbers, errors, sizes = np.empty((3, len(of_row)))
    order = np.argsort(of_row, kind="stable")  # samples that share a row stay together
    for piece in pieces(len(order), length):
        some = order[piece]
        numbers[some], errors[some], sizes[some] = _products(rows, columns, of_row[some], of_column[some])
    if bias is None:
        return _bounded(numbers, errors, sizes, length)
    return _bounded(numbers + bias.numbers, errors + bias.error, sizes + bias.sizes, length + 1)


def _bounded(numbers: Doubles, errors: Doubles, sizes: Doubles, terms: int) -> Evaluated:
    """Infinite and NaN sums are certain unless an infinite term is not."""
    finite = np.isfinite(numbers)
    error = np.where(finite, errors + terms * UNIT * sizes, np.where(np.isfinite(errors), 0.0, np.inf))
    return Evaluated(numbers, np.where(np.isnan(error), np.inf, error))


def _products(rows: Gather, columns: Gather, of_row: Points, of_column: Points) -> tuple[Doubles, Doubles, Doubles]:
    """Sums, by how much they are off for what the operands are, sums of magnitudes."""
    some_rows, row = np.unique(of_row, return_inverse=True)
    some_columns, column = np.unique(of_column, return_inverse=True)
    a, b = rows(some_rows), columns(some_columns)
    if len(some_rows) * len(some_columns) <= WASTE * len(row):
        return _both(a, b, lambda x, y: np.asarray((x @ y.T)[row, column]))
    a, b = a.at(row), b.at(column)
    return _both(a, b, lambda x, y: np.asarray(np.einsum("sk,sk->s", x, y)))


def _both(a: Evaluated, b: Evaluated, sums: Callable[[Doubles, Doubles], Doubles]) -> tuple[Doubles, Doubles, Doubles]:
    numbers, sizes = sums(a.numbers, b.numbers), sums(a.sizes, b.sizes)
    errors = np.zeros(len(numbers))
    if a.error.any():
        errors += sums(a.error, b.sizes)
    if b.error.any():
        errors += sums(np.abs(a.numbers), b.error)
    return numbers, errors, sizes
