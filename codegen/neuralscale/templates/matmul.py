"""Matrix multiplication: `memul` from L1 into IM, then bias and epilogue.

    a [..., M, K] x b [K, N]        all leading axes of `a` are rows of one product
    a [..., M, K] x b [..., K, N]   one product for each leading index of the result; an axis of 1 meets all of them

Long reductions are cut (`codegen.neuralscale.instructions.reductions`): one pass per run, with partial sums added in
order. Those of int8 are described in `codegen.neuralscale.templates.products`.

The matrix array takes `array_pixels` rows by `array_channels` columns at once. A few rows after the last whole tile are
computed as columns where that takes fewer cycles: b transposed times their transpose, whose result is transposed back.

    rows --metr.m--> IM --mov.m--> among the weights      b --mov.m--> IM      memul.ts.mm, metr.m

The products and the order of their addition stay the same, so no bit differs.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod

from codegen.neuralscale.instructions.arithmetic import Arithmetic, arithmetic_of
from codegen.neuralscale.instructions.builder import MAX_EXTENT, MAX_STRIDE_BYTES
from codegen.neuralscale.instructions.reductions import reduction_runs, staged_runs
from codegen.neuralscale.templates.products import (
    PACKED,
    bias_operand,
    column_buffers,
    column_loads,
    packed_weights,
    product_problem,
    sum_buffers,
    sum_factor,
    summed,
    unpacked,
    unpacking_cycles,
    weight_buffers,
    with_scale,
)
from codegen.neuralscale.templates.template import (
    Template,
    data_buffer,
    finish_buffers,
    finish_cycles,
    finish_loads,
)
from codegen.neuralscale.templates.tile import WEIGHTS, Tile, load_bytes
from hw_models.chip import Chip
from isched.program.program import Instr
from partitioner.ir.graph import Graph, Op
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box, box_shape
from partitioner.ir.target import Pass, TileBuffer, TileLoad, TileWork


class MatmulTemplate(Template):
    """Two operands of two or more axes, fp16, or int8 with fp16 results, or fp16 by int8 with a scale per column,
    constant or not, leading axes broadcast; an optional bias over the columns; where the second one has several
    matrices, rows of at most 32,767 elements."""

    def accepts(self, graph: Graph, op: Op, chip: Chip) -> str | None:
        del chip
        a, b = (graph.by_name[name].shape for name in op.inputs[:2])
        if len(a) < 2 or len(b) < 2:
            return f"operands of shapes {list(a)} and {list(b)}; both need at least two axes"
        item_bytes = max(graph.by_name[name].item_bytes for name in op.inputs[:2])
        if item_bytes * max(a[-1], b[-1]) > MAX_STRIDE_BYTES and prod(b[:-2]) > 1:
            return f"rows longer than {MAX_STRIDE_BYTES // item_bytes:,} elements of several matrices"
        return product_problem(graph, op)

    def work(self, graph: Graph, layer: Layer, box: Box, chip: Chip) -> TileWork:
        op = layer.anchor(graph)
        arithmetic = arithmetic_of(graph, op)
        operand_bytes = arithmetic.operand_bytes
        runs = _runs(graph, op)
        loads = [_product_loads(graph, op, box, *channels) for channels in zip(_staged(graph, op), runs, strict=True)]
        passes = [Pass(step) for step in loads]
        passes = with_scale(passes, column_loads(graph, op, box[-1]), finish_loads(graph, layer, box))
        buffers = [
            data_buffer("rows", max(load_bytes(graph, rows) for rows, _ in loads), strided=True),
            *weight_buffers(graph, op, [right for _, right in loads], "columns", strided=True),
            *column_buffers(graph, op, box),
            *sum_buffers(arithmetic, box, len(runs)),
        ]
        products, rows = _products(graph, op, box)
        columns = box[-1][1] - box[-1][0]
        matrix = products * sum(arithmetic.matrix_cycles(chip, rows, columns, high - low) for low, high in runs)
        before = len(passes) - 1 + (1 if bias_operand(graph, op) else 0)
        scalings = len(passes) if arithmetic.scaled else 0
        vector = sum(cycles for _, cycles in finish_cycles(graph, layer, box, chip, before, scalings))
        vector += unpacking_cycles(graph, op, [right for _, right in loads], chip)
        if rest := _turned_rows(graph, op, box, chip):
            depth = runs[0][1]
            matrix = _turned_cycles(chip, arithmetic, rows, rest, columns, depth)
            vector += arithmetic.vector_cycles(chip, depth * rest) + arithmetic.vector_cycles(chip, depth * columns)
            buffers += [
                TileBuffer("rows_turned", "L1", WEIGHTS, operand_bytes * depth * rest, briefly=True),
                TileBuffer("rows_inside", "IM", "", operand_bytes * depth * rest, passing=True, briefly=True),
                TileBuffer("columns_inside", "IM", "", operand_bytes * depth * columns, passing=True, briefly=True),
                TileBuffer("sum_turned", "IM", "", arithmetic.sum_bytes * columns * rest, passing=True, briefly=True),
            ]
        buffers += finish_buffers(graph, layer, box)
        return TileWork(tuple(buffers), tuple(passes), "output", (("matrix", matrix), ("vector", vector)))

    def lower(self, tile: Tile) -> tuple[tuple[Instr, ...], ...]:
        op = tile.layer.anchor(tile.graph)
        runs = _runs(tile.graph, op)
        rest = _turned_rows(tile.graph, op, tile.box, tile.chip)
        if rest and max(tile.pitches_bytes.values(), default=0) <= MAX_STRIDE_BYTES:
            return summed(tile, [tuple(_multiply_turned(tile, rest))])
        steps = zip(runs, tile.work.passes, strict=True)
        return summed(tile, [tuple(_multiply(tile, op, run, step.loads[0].box[-1])) for run, step in steps])


def _runs(graph: Graph, op: Op) -> tuple[tuple[int, int], ...]:
    return reduction_runs(graph.by_name[op.inputs[0]].shape[-1], 1, arithmetic_of(graph, op).exact)


def _products(graph: Graph, op: Op, box: Box) -> tuple[int, int]:
    """(number of separate products, rows of each) in a box of the output."""
    outer = box_shape(box)[:-1]
    if prod(graph.by_name[op.inputs[1]].shape[:-2]) == 1 and len(graph.by_name[op.inputs[0]].shape) == len(box):
        return 1, prod(outer)
    return prod(outer[:-1]), outer[-1]


def _turned_rows(graph: Graph, op: Op, box: Box, chip: Chip) -> int:
    """Number of rows of a box, after its last whole tile of the array, that are computed as columns; 0 for none."""
    arithmetic = arithmetic_of(graph, op)
    products, rows = _products(graph, op, box)
    runs, array = _runs(graph, op), chip.matrix
    rest, columns, depth = rows % array.array_pixels, box[-1][1] - box[-1][0], runs[0][1]
    if arithmetic.exact:  # metr.m and memul.ts.mm do not take int8
        return 0
    if products > 1 or len(runs) > 1 or rest == rows or not 0 < rest <= array.array_channels:
        return 0
    item_bytes, sums, turned = arithmetic.operand_bytes, rows * columns + columns * rest, depth * (columns + rest)
    inside_bytes = arithmetic.sum_bytes * sums + item_bytes * turned
    if inside_bytes > chip.memory("IM").size_bytes or item_bytes * max(depth, columns) > MAX_STRIDE_BYTES:
        return 0
    less = _turned_cycles(chip, arithmetic, rows, rest, columns, depth) < arithmetic.matrix_cycles(
        chip, rows, columns, depth
    )
    return rest if less else 0


def _turned_cycles(chip: Chip, arithmetic: Arithmetic, rows: int, rest: int, columns: int, depth: int) -> float:
    """Cycles of the matrix engine for `rows` rows, of which the last `rest` are computed as columns."""
    whole = arithmetic.matrix_cycles(chip, rows - rest, columns, depth)
    turned = arithmetic.vector_cycles(chip, depth * rest) + arithmetic.vector_cycles(chip, columns * rest)
    return whole + arithmetic.matrix_cycles(chip, columns, rest, depth) + turned


def _multiply_turned(tile: Tile, rest: int) -> Iterator[Instr]:
    """Compute one product whose last rows are computed as columns."""
    issue, output = tile.issue, tile.output
    low, high = tile.work.passes[0].loads[1].box[-2]
    depth, whole = high - low, output.rows - rest
    rows, total = tile.matrix("rows", output.rows, depth), tile.sums("sum", output.rows, output.columns)
    columns = tile.matrix("columns", depth, output.columns)
    columns_inside = tile.operand("columns_inside", depth, output.columns)
    rows_inside, rows_turned = (tile.operand(name, depth, rest) for name in ("rows_inside", "rows_turned"))
    turned = tile.sums("sum_turned", output.columns, rest)
    yield from unpacked(tile, columns)
    yield issue.transpose(rows_inside, rows.part(whole, rest))
    yield from issue.unary("mov.m", rows_turned, rows_inside)
    yield from issue.unary("mov.m", columns_inside, columns)
    yield issue.memul(total.part(0, whole), rows.part(0, whole), columns)
    yield issue.memul(turned, columns_inside, rows_turned, turned=True)
    yield issue.transpose(total.part(whole, rest), turned)


def _leading(graph: Graph, name: str, box: Box) -> Box:
    """The box of a factor's leading axes that meets a box of the output."""
    extents = graph.by_name[name].shape[:-2]
    met = box[len(box) - 2 - len(extents) : -2]
    return tuple(span if extent > 1 else (0, 1) for span, extent in zip(met, extents, strict=True))


def _staged(graph: Graph, op: Op) -> tuple[tuple[int, int], ...]:
    return staged_runs(graph.by_name[op.inputs[0]].shape[-1], 1, arithmetic_of(graph, op).exact)


def _product_loads(
    graph: Graph, op: Op, box: Box, staged: tuple[int, int], run: tuple[int, int]
) -> tuple[TileLoad, TileLoad]:
    a, b = op.inputs[:2]
    return (
        TileLoad(a, (*_leading(graph, a, box), box[-2], staged), "rows"),
        TileLoad(b, (*_leading(graph, b, box), run, box[-1]), PACKED if packed_weights(graph, op) else "columns"),
    )


def _multiply(tile: Tile, op: Op, run: tuple[int, int], staged: tuple[int, int]) -> Iterator[Instr]:
    """Compute the products of one run of the reduction; the columns `staged` of `a` are loaded."""
    reduction, first = run[1] - run[0], run[0] - staged[0]
    products, rows = _products(tile.graph, op, tile.box)
    columns = tile.output.columns
    outer = box_shape(tile.box)[:-2]
    of_a, of_b = (box_shape(_leading(tile.graph, name, tile.box)) for name in op.inputs[:2])
    a, b = tile.matrix("rows", 1, staged[1] - staged[0]), tile.matrix("columns", 1, columns)
    total, factor = tile.sums("sum", products * rows, columns), sum_factor(tile)
    yield from unpacked(tile, tile.matrix("columns", reduction, columns))
    points = product(*(range(extent) for extent in outer)) if products > 1 else [(0,) * len(outer)]
    for i, point in enumerate(points):
        left, right = _place(point, of_a) * rows, _place(point, of_b) * reduction
        most = 1 if not a.part(0, 2, first, reduction).dense and a.pitch_bytes > MAX_STRIDE_BYTES else MAX_EXTENT
        for row in range(0, rows, most):
            count = min(most, rows - row)
            yield tile.issue.memul(
                total.part(i * rows + row, count),
                a.part(left + row, count, first, reduction),
                b.part(right, reduction),
                factor=factor,
            )


def _place(point: tuple[int, ...], extents: tuple[int, ...]) -> int:
    """The index of a factor's matrix that meets a position of the product's leading axes."""
    place = 0
    for position, extent in zip(point[len(point) - len(extents) :], extents, strict=True):
        place = place * extent + min(position, extent - 1)
    return place
