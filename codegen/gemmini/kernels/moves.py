"""What only moves elements, on the core: parts that are joined, axes in another order, some of the elements, or some of
them again and again.

Each operand of the anchor is a source with steps of its own over a box of the result; the operators that follow are
applied on the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from codegen.gemmini.isa.geometry import BASE
from codegen.gemmini.kernels.elements import Placed, chain_of, element_stream, source_place
from codegen.gemmini.kernels.loops import strides
from codegen.gemmini.kernels.windows import WindowLayer
from codegen.gemmini.streams.streams import Item
from partitioner.ir.regions import Box, full_box

MOVES = ("concat", "transpose", "slice", "take")
MOVED = "::moved"


def moved_streams(layer: WindowLayer) -> Iterator[Item]:
    """Loops of the whole layer."""
    for box, place in _parts(layer):
        yield from finished(layer, box, place)


def finished(layer: WindowLayer, box: Box, place: Placed) -> tuple[Item, ...]:
    """Loops over a box of the result whose elements before the epilogue lie at `place`."""
    graph, op = layer.graph, layer.op
    chain = chain_of(graph, layer.constants, layer.layer.epilogue(graph), {op.outputs[0]: MOVED})
    places = {MOVED: place}
    for name in chain.sources:
        if name != MOVED:
            places[name] = source_place(graph, name, layer.operands[name], box, BASE)
    return element_stream(chain, graph, box, places, layer.layer.output, layer.result, BASE)


def _parts(layer: WindowLayer) -> Iterator[tuple[Box, Placed]]:
    """Boxes of the result, each with the place of its elements."""
    graph, op = layer.graph, layer.op
    whole = full_box(graph.by_name[op.outputs[0]].shape)
    if op.kind == "concat":
        axis, first = int(op.number("axis")), 0
        for name in op.inputs:
            end = first + graph.by_name[name].shape[axis]
            yield (*whole[:axis], (first, end), *whole[axis + 1 :]), _place(layer, name)
            first = end
    elif op.kind == "transpose":
        dtype, start, steps = _place(layer, op.inputs[0])
        yield whole, (dtype, start, [steps[axis] for axis in op.ints("perm")])
    elif op.kind == "take":
        dtype, start, steps = _place(layer, op.inputs[0])
        axis, end = int(op.number("axis")), 0
        for first, step, count in _runs(op.ints("indices")):
            box = (*whole[:axis], (end, end + count), *whole[axis + 1 :])
            yield box, (dtype, start + first * steps[axis], (*steps[:axis], step * steps[axis], *steps[axis + 1 :]))
            end += count
    else:
        dtype, start, steps = _place(layer, op.inputs[0])
        start += sum(first * step for first, step in zip(op.ints("starts"), steps, strict=True))
        yield whole, (dtype, start, [step * own for step, own in zip(op.ints("steps"), steps, strict=True)])


def _runs(indices: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Indices as runs of equal steps, each as (first index, step, number of indices)."""
    place = 0
    while place < len(indices):
        end = place + 1
        step = indices[end] - indices[place] if end < len(indices) else 0
        while end < len(indices) and indices[end] - indices[end - 1] == step:
            end += 1
        yield indices[place], step, end - place
        place = end


def _place(layer: WindowLayer, name: str) -> tuple[str, int, Sequence[int]]:
    """The whole of an operand."""
    tensor = layer.graph.by_name[name]
    return tensor.dtype, BASE + layer.operands[name].offset_bytes, strides(tensor.shape, tensor.item_bytes)
