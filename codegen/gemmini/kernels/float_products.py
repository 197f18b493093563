"""Products of matrices of float32 on the core: of values that a quantised network leaves in floating point.

    [..., m, k] x [..., k, n]   sums from zero, or from the bias, on: for each k in order, sum + a * b, rounded twice

Either factor may be constant, and is repeated along axes before the last two that it lacks. As many rows of the result
at a time are worked on as find room where sums wait; operators that follow are applied at last.
"""

from __future__ import annotations

from collections.abc import Iterator

from codegen.gemmini.isa.geometry import BASE
from codegen.gemmini.kernels.elements import Placed, chain_of, source_place
from codegen.gemmini.kernels.lines import ROOM, boxes, finished, waiting
from codegen.gemmini.kernels.loops import broadcast_steps
from codegen.gemmini.kernels.windows import WindowLayer, combined, filled
from codegen.gemmini.streams.streams import Item
from partitioner.ir.graph import Graph, Op
from partitioner.ir.regions import Box, box_shape

FLOAT = "float32"
PRODUCT = "::product"


def is_float_product(graph: Graph, op: Op) -> bool:
    """Whether an operator is a product of matrices of float32."""
    return op.kind == "matmul" and all(graph.by_name[name].dtype == FLOAT for name in op.inputs)


def float_product_refusal(graph: Graph, op: Op) -> str | None:
    """Why a product is not computed; None where it is."""
    *_, columns = graph.by_name[op.outputs[0]].shape
    return None if columns <= ROOM else f"rows of its result have {columns:,} elements; {ROOM:,} find room"


def float_product_streams(layer: WindowLayer) -> Iterator[Item]:
    """Loops of the whole layer."""
    shape = layer.graph.by_name[layer.op.outputs[0]].shape
    rows = range(len(shape) - 1)
    for box in boxes(shape, rows, ROOM // shape[-1]):
        yield from _rows(layer, box)


def _rows(layer: WindowLayer, box: Box) -> Iterator[Item]:
    graph, op = layer.graph, layer.op
    counts, depth = box_shape(box), graph.by_name[op.inputs[0]].shape[-1]
    product = waiting(0, counts, counts)
    if len(op.inputs) > 2:
        bias = source_place(graph, op.inputs[2], layer.operands[op.inputs[2]], box, BASE)
        yield from combined(counts, (("larger", 0, 0),), (bias, product))
    else:
        yield from filled(counts, 0.0, product)
    left, right = (_factor(layer, name, box, which) for which, name in enumerate(op.inputs[:2]))
    *outer, column = product[2]
    to: Placed = (product[0], product[1], (*outer, 0, column))
    steps = (("multiply", 1, 2), ("add", 0, 3))
    yield from combined((*counts[:-1], depth, counts[-1]), steps, (to, left, right, to))
    chain = chain_of(graph, layer.constants, (), {op.outputs[0]: PRODUCT})
    yield from finished(layer, chain, {PRODUCT: product}, box)


def _factor(layer: WindowLayer, name: str, box: Box, which: int) -> Placed:
    """The first or second factor, over the axes of the result with k before the last one."""
    tensor = layer.graph.by_name[name]
    *outer, row, column = broadcast_steps(tensor.shape, 4, len(box))
    start = BASE + layer.operands[name].offset_bytes
    start += sum(low * step for (low, _), step in zip(box, outer, strict=False))
    if which == 0:
        return tensor.dtype, start + box[-2][0] * row, (*outer, row, column, 0)
    return tensor.dtype, start + box[-1][0] * column, (*outer, 0, row, column)
