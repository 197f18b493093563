"""CumSum as a product with a triangle of ones.

    CumSum(x [..., n])  -->  x [..., n] x T [n, n],  T[j, i] = 1 where j <= i

An axis before the last one is multiplied from the left, so that nothing is transposed. A long axis is cut into blocks
of equal length: sums inside the blocks, and to each block the sum of all blocks before it, which is another CumSum.
"""

from __future__ import annotations

from math import isqrt, prod

import numpy as np

from dsa_sched.frontend.network.chain import Chain
from dsa_sched.frontend.network.network import FLOATING, Node
from dsa_sched.frontend.network.terms import number, triangle

LONGEST_TRIANGLE = 512
"""Largest number of elements of an axis for which one triangle is made; its square is stored and multiplied."""


def running_sum(chain: Chain, node: Node) -> bool:
    """A rule of the decomposition."""
    x, axis = node.inputs[0], chain.network.constants.get(node.inputs[1])
    shape = chain.shape(x)
    if axis is None or not shape or chain.network.values[node.outputs[0]].dtype not in FLOATING:
        return False
    place = int(axis.reshape(-1)[0]) % len(shape)
    exclusive, reverse = (bool(node.integer(name, 0)) for name in ("exclusive", "reverse"))
    outer, extent, inner = prod(shape[:place]), shape[place], prod(shape[place + 1 :])
    y = _along(chain, chain.reshaped(x, outer, extent, inner), exclusive, reverse)
    chain.add("Flatten", y, shape=shape)
    return True


def _along(chain: Chain, x: str, exclusive: bool, reverse: bool) -> str:
    """Running sums of [outer, extent, inner] along the middle axis."""
    outer, extent, inner = chain.shape(x)
    if extent <= LONGEST_TRIANGLE:
        return _product(chain, x, exclusive, reverse)
    length = isqrt(extent - 1) + 1
    blocks = -(-extent // length)
    more = blocks * length - extent
    if more:
        x = _padded(chain, x, more)
    blocked = chain.reshaped(x, outer * blocks, length, inner)
    inside = chain.reshaped(_product(chain, blocked, exclusive, reverse), outer, blocks, length, inner)
    totals = chain.reduced("ReduceSum", blocked, (1,))
    before = _along(chain, chain.reshaped(totals, outer, blocks, inner), True, reverse)
    whole = chain.add("Add", inside, chain.reshaped(before, outer, blocks, 1, inner))
    whole = chain.reshaped(whole, outer, blocks * length, inner)
    return chain.sliced(whole, 1, 0, 1, extent) if more else whole


def _padded(chain: Chain, x: str, more: int) -> str:
    """x followed by zeros along the middle axis."""
    outer, extent, inner = chain.shape(x)
    pads = chain.array(np.array([0, 0, 0, 0, more, 0], np.int64), number(0.0))
    return chain.add("Pad", x, pads, shape=(outer, extent + more, inner))


def _product(chain: Chain, x: str, exclusive: bool, reverse: bool) -> str:
    outer, extent, inner = chain.shape(x)
    last = inner == 1
    # From the right, row j of the triangle says which sums element j is part of; from the left, column j does.
    upper, diagonal = reverse != last, int(exclusive)
    ones = np.triu(np.ones((extent, extent)), diagonal) if upper else np.tril(np.ones((extent, extent)), -diagonal)
    term = triangle(extent, extent, diagonal if upper else -diagonal, upper, 1.0, 0.0)
    factor = chain.array(ones, term)
    if not last:
        return chain.add("MatMul", factor, x, shape=(outer, extent, inner))
    y = chain.add("MatMul", chain.reshaped(x, outer, extent), factor, shape=(outer, extent))
    return chain.reshaped(y, outer, extent, 1)
