"""Lines on the core, in float32: sums, means and maxima along any axes, and norms.

    reduce   total = 0, or -infinity; for each element, in the order of memory: total + x, or max(total, x)
    norm     m = sum(x) * (1 / n), d = x - m, v = sum(d * d) * (1 / n), r = 1 / sqrt(v + epsilon), result d * r

A norm that is not centred has d = x. Sums go from the first element of a line to the last, from zero on. As many lines
at a time are worked on as find room where sums wait; operators that follow are applied at last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from codegen.gemmini.isa.geometry import BASE, CODE_BYTES, SUMS_BYTES
from codegen.gemmini.kernels.elements import ElementChain, Placed, chain_of, element_loops, element_stream, source_place
from codegen.gemmini.kernels.loops import broadcast_steps
from codegen.gemmini.kernels.windows import WindowLayer, combined, filled
from codegen.gemmini.streams.streams import Item
from partitioner.ir.graph import Graph, Op
from partitioner.ir.regions import Box, box_shape

REDUCTIONS = ("reduce_mean", "reduce_sum", "reduce_max")
LINES = (*REDUCTIONS, "normalise")
DEVIATION, SCALE, TOTAL = "::deviation", "::inverse", "::total"
ROOM = SUMS_BYTES // 4
"""Elements that find room where sums wait."""


def lines_refusal(graph: Graph, op: Op) -> str | None:
    """Why lines are not computed; None where they are."""
    shape = graph.by_name[op.inputs[0]].shape
    length = prod(shape[axis] for axis in op.ints("axes"))
    if op.kind == "normalise" and length + 1 > ROOM:
        return f"its lines have {length:,} elements; {ROOM - 1:,} find room"
    return None


def line_streams(layer: WindowLayer) -> Iterator[Item]:
    """Loops of the whole layer."""
    op = layer.op
    shape, axes = layer.graph.by_name[op.inputs[0]].shape, op.ints("axes")
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    length = prod(shape[axis] for axis in axes)
    lines = ROOM // (length + 1) if op.kind == "normalise" else ROOM
    work = _normalised if op.kind == "normalise" else _reduced
    for box in boxes(shape, kept, lines):
        yield from work(layer, box)


def boxes(shape: Sequence[int], cut: Sequence[int], most: int) -> Iterator[Box]:
    """Boxes in order that make a shape together, whole except along the axes `cut`, of which each box has at most
    `most` elements, at least one."""
    axis = next((axis for axis in cut if shape[axis] > 1), None)
    if axis is None:
        yield tuple((0, extent) for extent in shape)
        return
    inner = prod(shape[other] for other in cut if other != axis)
    step = max(1, most // inner)
    for low in range(0, shape[axis], step):
        high = min(shape[axis], low + step)
        if inner <= most:
            yield tuple((low, high) if other == axis else (0, extent) for other, extent in enumerate(shape))
            continue
        rest = [extent if other != axis else 1 for other, extent in enumerate(shape)]
        for box in boxes(rest, cut, most):
            yield tuple((low, high) if other == axis else interval for other, interval in enumerate(box))


def _operand(layer: WindowLayer, box: Box) -> Placed:
    return layer.at(layer.op.inputs[0], tuple(low for low, _ in box), (1,) * len(box))


def waiting(start: int, shape: Sequence[int], lines: Sequence[int]) -> Placed:
    """A dense array, or one value for each line, where sums wait, `start` elements on."""
    return "float32", BASE + CODE_BYTES + 4 * start, broadcast_steps(lines, 4, len(shape))


def _without(shape: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))


def _reduced(layer: WindowLayer, box: Box) -> Iterator[Item]:
    graph, op = layer.graph, layer.op
    counts, axes = box_shape(box), op.ints("axes")
    lines = _without(counts, axes)
    total = waiting(0, counts, lines)
    largest = op.kind == "reduce_max"
    yield from filled(lines, float("-inf") if largest else 0.0, total)
    yield from combined(counts, (("larger" if largest else "add", 0, 1),), (total, _operand(layer, box), total))
    chain = chain_of(graph, layer.constants, (), {op.outputs[0]: TOTAL})
    if op.kind == "reduce_mean":
        rate = chain.number(1.0 / prod(counts[axis] for axis in axes))
        chain.value[op.outputs[0]] = chain.step("multiply", chain.value[op.outputs[0]], rate)
    result = tuple((0, 1) if axis in axes else interval for axis, interval in enumerate(box))
    yield from finished(layer, chain, {TOTAL: total}, result)


def _normalised(layer: WindowLayer, box: Box) -> Iterator[Item]:
    graph, op = layer.graph, layer.op
    counts, axes = box_shape(box), op.ints("axes")
    lines = _without(counts, axes)
    rate = 1.0 / prod(counts[axis] for axis in axes)
    total, x = waiting(0, counts, lines), _operand(layer, box)
    deviation = x
    if op.number("centred"):
        deviation = waiting(prod(lines), counts, counts)
        yield from filled(lines, 0.0, total)
        yield from combined(counts, (("add", 0, 1),), (total, x, total))
        chain = ElementChain(graph, layer.constants)
        value, mean = chain.source("x"), chain.source("total")
        chain.step("subtract", value, chain.step("multiply", mean, chain.number(rate)))
        yield from element_loops(counts, chain.elements, (x, total, deviation))
    yield from filled(lines, 0.0, total)
    yield from combined(counts, (("multiply", 1, 1), ("add", 0, 2)), (total, deviation, total))
    chain = ElementChain(graph, layer.constants)
    mean = chain.step("multiply", chain.source("total"), chain.number(rate))
    root = chain.step("root", (power := chain.step("add", mean, chain.number(op.number("epsilon")))), power)
    chain.step("divide", chain.number(1.0), root)
    yield from element_loops(lines, chain.elements, (total, total))
    chain = chain_of(graph, layer.constants, (), {op.outputs[0]: DEVIATION})
    chain.value[op.outputs[0]] = chain.step("multiply", chain.value[op.outputs[0]], chain.source(SCALE))
    yield from finished(layer, chain, {DEVIATION: deviation, SCALE: total}, box)


def finished(layer: WindowLayer, chain: ElementChain, places: dict[str, Placed], box: Box) -> tuple[Item, ...]:
    """Loops over a box of the result: the chain so far, of what lies at `places`, then the epilogue."""
    for follower in layer.layer.epilogue(layer.graph):
        chain.apply(follower)
    for name in chain.sources:
        if name not in places:
            places[name] = source_place(layer.graph, name, layer.operands[name], box, BASE)
    return element_stream(chain, layer.graph, box, places, layer.layer.output, layer.result, BASE)
