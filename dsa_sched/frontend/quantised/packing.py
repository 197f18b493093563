"""Which weights that meet values in floating point stay int8 in memory, to be converted by the core that uses them.

MatMul(x, DQ(w))  -->  IntegerMatMul(x in floating point, w int8, scale per column)     where the target packs w
                  -->  MatMul(x, numbers of w)                                          elsewhere
"""

from __future__ import annotations

from dsa_sched.frontend.network.refusals import Packs
from dsa_sched.frontend.quantised.products import IntegerProduct
from partitioner.ir.target import WeightPacking, WeightUse
from partitioner.ir.wants import Rounding

PACKED = "weights stay int8"
UNPACKED = "weights are dequantised when the file is read"
"""Verdicts, for explanations."""


def packing_of(
    product: IntegerProduct, operand_elements: int, rows: int, rounding: Rounding, packs: Packs
) -> WeightPacking:
    """Whether the weights of a product with a constant stay int8. `operand_elements` is the number of elements of its
    other factor, `rows` that of rows of its result, with a row per pixel for a convolution."""
    assert product.weights is not None
    if product.rest is not None:
        return WeightPacking(False, "less their zero points, the weights have more than eight bits with a sign")
    if product.groups > 1:
        return WeightPacking(False, "the convolution has groups")
    if (least := float(product.scale.float64.min())) < rounding.smallest_normal:
        return WeightPacking(False, f"the smallest scale is {least:.1e}, where {rounding.dtype} has fewer digits")
    depth = product.weights.array.size // product.channels
    return packs(WeightUse(operand_elements, rows, depth, product.channels))
