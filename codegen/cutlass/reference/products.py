"""Matrix products: leading axes broadcast, a bias with an element a column."""

from __future__ import annotations

import numpy as np

from codegen.cutlass.reference.evaluated import Evaluated, Stored
from codegen.cutlass.reference.operands import RuleInputs, aligned
from codegen.cutlass.reference.sums import Gather, sums_of_products
from codegen.judgement import Points


def matrix_product(asked: RuleInputs) -> Evaluated:
    """a [..., M, K] times b [..., K, N] plus bias [N]."""
    a, b = asked.tensor(0), asked.tensor(1)
    rank = b.values.ndim
    turned = b.moved((*range(rank - 2), rank - 1, rank - 2))
    lines, line = _lines(a, asked.points[:, :-1])
    columns, column = _lines(turned, np.delete(asked.points, -2, 1))
    if rank == 2:
        columns = _columns(b)
    bias = asked.vector(2) if len(asked.op.inputs) > 2 else None
    return sums_of_products(lines, columns, line, column, a.values.shape[-1], bias)


def _lines(factor: Stored, points: Points) -> tuple[Gather, Points]:
    """The last axis of a factor by the number of a line, and the number for each point."""
    extents = factor.values.shape[:-1]
    numbers = np.ravel_multi_index(aligned(points, extents), extents)
    return lambda some: factor.at(*np.unravel_index(some, extents)), numbers


def _columns(matrix: Stored) -> Gather:
    """As the lines of the transposed matrix, in the order of memory: a long matrix is read once from end to end."""

    def gather(some: Points) -> Evaluated:
        return matrix.each(lambda array: np.take(array, some, 1).T).at(...)

    return gather
