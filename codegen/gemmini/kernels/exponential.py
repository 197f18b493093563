"""Softmax on the core, in float32, and the exponential that it is made of.

    rows [n, k]: the largest of each; exp(x - largest); their sum; quotients, and the operators that follow

exp(t) is 2^n p(r) as in `functions.py`, of operands that are not positive. The emulation does the same steps in the
same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from codegen.gemmini.isa.geometry import BASE, CODE_BYTES, SUMS_BYTES
from codegen.gemmini.kernels.elements import ElementChain, Placed, chain_of, element_loops, element_stream, source_place
from codegen.gemmini.kernels.functions import reduced
from codegen.gemmini.kernels.windows import WindowLayer, combined, filled
from codegen.gemmini.streams.streams import Item
from partitioner.ir.graph import Graph, Op
from partitioner.ir.regions import Box

LEAST = -87.0
"""Smallest operand: exp of it is about the smallest normal number of float32."""

EXPONENT, TOTAL = "::exponent", "::total"


def softmax_refusal(graph: Graph, op: Op) -> str | None:
    """Why a softmax is not computed; None where it is."""
    shape = graph.by_name[op.inputs[0]].shape
    if int(op.number("axis")) not in (-1, len(shape) - 1):
        return "its axis is not the last one in memory"
    if not _rows_at_once(shape[-1]):
        return f"its rows have {shape[-1]:,} elements; {SUMS_BYTES // 4 - 2:,} find room"
    return None


def _rows_at_once(columns: int) -> int:
    return SUMS_BYTES // (4 * (columns + 2))


def softmax_streams(layer: WindowLayer) -> Iterator[Item]:
    """Loops of the whole layer, as many rows at a time as find room where sums wait. All axes but the last are one."""
    *outer, columns = layer.graph.by_name[layer.op.inputs[0]].shape
    for box, rows in _boxes(outer, columns):
        yield from _rows(layer, box, rows, columns)


def _boxes(outer: Sequence[int], columns: int) -> Iterator[tuple[Box, int]]:
    """Boxes of rows that follow each other, with their number: some of the outermost axis that has more than one."""
    at_once = _rows_at_once(columns)
    if not outer:
        yield ((0, columns),), 1
        return
    inner = 1
    for extent in outer[1:]:
        inner *= extent
    if inner > at_once:
        for first in range(outer[0]):
            for box, rows in _boxes(outer[1:], columns):
                yield ((first, first + 1), *box), rows
        return
    step = at_once // inner
    for first in range(0, outer[0], step):
        end = min(outer[0], first + step)
        yield ((first, end), *((0, extent) for extent in outer[1:]), (0, columns)), (end - first) * inner


def exponential(chain: ElementChain, value: object) -> object:
    """Steps of exp of a value that is not positive."""
    t = chain.step("larger", value, chain.number(LEAST))
    n, p = reduced(chain, t)
    return chain.step("multiply", p, chain.step("power", n, n))


def _rows(layer: WindowLayer, box: Box, rows: int, columns: int) -> Iterator[Item]:
    graph, op = layer.graph, layer.op
    name = op.inputs[0]
    waiting = BASE + CODE_BYTES
    exponents: Placed = ("float32", waiting, (4 * columns, 4))
    ends = waiting + 4 * rows * columns
    largest, total = (("float32", ends + 4 * rows * number, (4, 0)) for number in range(2))
    start = layer.at(name, tuple(low for low, _ in box), (1,) * len(box))[1]
    x: Placed = (graph.by_name[name].dtype, start, (4 * columns, 4))
    counts = (rows, columns)
    yield from filled((rows,), float("-inf"), (largest[0], largest[1], (4,)))
    yield from combined(counts, (("larger", 0, 1),), (largest, x, largest))
    chain = ElementChain(graph, layer.constants)
    exponential(chain, chain.step("subtract", chain.source("x"), chain.source("largest")))
    yield from element_loops(counts, chain.elements, (x, largest, exponents))
    yield from filled((rows,), 0.0, (total[0], total[1], (4,)))
    yield from combined(counts, (("add", 0, 1),), (total, exponents, total))
    yield from _quotients(layer, box, exponents[1], total[1])


def _quotients(layer: WindowLayer, box: Box, exponents: int, total: int) -> tuple[Item, ...]:
    graph, op = layer.graph, layer.op
    chain = chain_of(graph, layer.constants, (), {op.outputs[0]: EXPONENT})
    chain.value[op.outputs[0]] = chain.step("divide", chain.value[op.outputs[0]], chain.source(TOTAL))
    for follower in layer.layer.epilogue(graph):
        chain.apply(follower)
    steps, step = [4], 4 * (box[-1][1] - box[-1][0])
    sums, sums_step = [0], 4
    for low, high in reversed(box[:-1]):
        steps.append(step)
        sums.append(sums_step)
        step, sums_step = step * (high - low), sums_step * (high - low)
    places: dict[str, Placed] = {
        EXPONENT: ("float32", exponents, steps[::-1]),
        TOTAL: ("float32", total, sums[::-1]),
    }
    for name in chain.sources:
        if name not in places:
            places[name] = source_place(graph, name, layer.operands[name], box, BASE)
    return element_stream(chain, graph, box, places, layer.layer.output, layer.result, BASE)
