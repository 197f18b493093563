"""Products of matrices as loops that the accelerator unrolls itself, beside the streams of explicit instructions.

    layer [rows, depth] x [depth, columns] --tilings--> parts of rows, columns and depth --> one loop_ws for each part

The loads of a loop run while the one before it computes, since factors and sums have two places each. Where the whole
depth finds room, a factor that the next loop needs too stays in its half.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from codegen.gemmini.isa.geometry import ACCUMULATOR, BASE, MAIN, SCRATCHPAD, ArrayGeometry
from codegen.gemmini.isa.matrix_loops import MatrixLoop
from codegen.gemmini.isa.unrolled import Part
from codegen.gemmini.kernels.finish import finish_of
from codegen.gemmini.kernels.product_shape import product_shape
from codegen.gemmini.streams.instructions import accelerator_instr
from codegen.gemmini.streams.streams import Item, Unrolled, once
from isched.program.program import Instr, Region
from partitioner.ir.graph import Constants, Graph
from partitioner.ir.layers import Layer
from partitioner.ir.regions import full_box

BIAS_BYTES = 4


def loop_items(loop: MatrixLoop, dim: int) -> tuple[Item, ...]:
    """What the core issues for a loop."""
    return tuple(once(mnemonic, **fields) for mnemonic, fields in loop.operations(dim))


@dataclass(frozen=True, slots=True)
class MatrixLayer:
    """A layer that is one product of int8 matrices, a [rows, depth] by b [depth, columns], and what is added to each
    row, finished by one scale, with or without Relu. Offsets are those of the main memory; `d` is -1 where nothing is
    added."""

    name: str
    rows: int
    columns: int
    depth: int
    a: int
    b: int
    d: int
    c: int
    scale: float
    relu: bool


@dataclass(frozen=True, slots=True)
class LoopTiling:
    """Blocks of rows, columns and depth of one loop; `rows_inside` says that the next loop has other rows, so that the
    second factor may stay, else other columns."""

    i: int
    j: int
    k: int
    rows_inside: bool

    def __str__(self) -> str:
        order = "rows" if self.rows_inside else "columns"
        return f"loops of {self.i} x {self.j} blocks, {self.k} deep, {order} inside"


def matrix_layer(graph: Graph, constants: Constants, layer: Layer, places: Mapping[str, int]) -> MatrixLayer | str:
    """The layer, whose tensors lie at these offsets of the main memory, or why it is no such product."""
    op = layer.anchor(graph)
    finish = finish_of(graph, constants, layer)
    if not finish.on_array:
        return "the core finishes it"
    if finish.terms:
        return "values are added to its sums"
    shape = product_shape(graph, op, full_box(graph.by_name[op.outputs[0]].shape))
    steps, spans = (shape.down.step, shape.along.step), (shape.row_span, shape.column_span)
    if shape.taps > 1 or max(steps) > 1 or any(span.before or span.after for span in spans):
        return "it has windows, steps or padding"
    if shape.all_groups > 1 or shape.matrix_count > 1:
        return "it is several products"
    names = (*op.inputs[:2], *op.inputs[3:], layer.output)
    if any(name not in places for name in names):
        return "values stay in the scratchpad"
    bias = places[op.inputs[3]] if len(op.inputs) > 3 else -1
    a, b = (places[name] for name in op.inputs[:2])
    return MatrixLayer(layer.name, shape.pixels, shape.all_channels, shape.depth, a, b, bias,
                       places[layer.output], finish.scale, finish.relu)  # fmt: skip


def tilings(layer: MatrixLayer, geometry: ArrayGeometry) -> Iterator[LoopTiling]:
    """Ways to cut a layer into loops, each as deep as fits, in equal parts."""
    dim = geometry.dim
    most_sums, most = geometry.accumulator_rows // 2 // dim, geometry.local_rows // 2 // dim
    all_i, all_j, all_k = (-(-extent // dim) for extent in (layer.rows, layer.columns, layer.depth))
    seen: set[LoopTiling] = set()
    for wanted_j in (*_powers(all_j), all_j):
        for wanted_i in (*_powers(all_i), all_i, most_sums // wanted_j):
            if not 0 < wanted_i * wanted_j <= most_sums or wanted_i + wanted_j > most:
                continue
            i, j, k = (
                _equal(extent, wanted)
                for extent, wanted in ((all_i, wanted_i), (all_j, wanted_j), (all_k, most // (wanted_i + wanted_j)))
            )
            seen |= {LoopTiling(i, j, k, inside) for inside in (False, True)}
    yield from sorted(seen, key=lambda each: (each.i, each.j, each.k, each.rows_inside))


def _powers(extent: int) -> Iterator[int]:
    return (1 << power for power in range(extent.bit_length()))


def _equal(extent: int, most: int) -> int:
    """The largest of as few parts as there may be, which are as equal as can be."""
    parts = -(-extent // min(extent, most))
    return -(-extent // parts)


def layer_loops(layer: MatrixLayer, tiling: LoopTiling, dim: int) -> Iterator[MatrixLoop]:
    """The loops of a layer, in order."""
    i, j, k = tiling.i * dim, tiling.j * dim, tiling.k * dim
    whole = k >= layer.depth
    rows, columns = range(0, layer.rows, i), range(0, layer.columns, j)
    inside = tiling.rows_inside
    number = 0
    for run, outer in enumerate(columns if inside else rows):
        for turn, inner in enumerate(rows if inside else columns):
            row, column = (inner, outer) if inside else (outer, inner)
            for deep in range(0, layer.depth, k):
                last = deep + k >= layer.depth
                stays = whole and turn > 0
                own, kept = 1 + number % 2, 1 + run % 2
                yield MatrixLoop(
                    rows=min(i, layer.rows - row),
                    columns=min(j, layer.columns - column),
                    depth=min(k, layer.depth - deep),
                    a=0 if stays and not inside else BASE + layer.a + row * layer.depth + deep,
                    b=0 if stays and inside else BASE + layer.b + deep * layer.columns + column,
                    d=BASE + layer.d + BIAS_BYTES * column if layer.d >= 0 and deep == 0 else 0,
                    c=BASE + layer.c + row * layer.columns + column if last else 0,
                    a_step=layer.depth, b_step=layer.columns, d_step=0, c_step=layer.columns,
                    a_half=kept if whole and not inside else own,
                    b_half=kept if whole and inside else own,
                    accumulates=deep > 0 or layer.d >= 0,
                )  # fmt: skip
                number += 1


def loop_product_instrs(
    layer: MatrixLayer, loops: tuple[MatrixLoop, ...], geometry: ArrayGeometry, sums_half: int
) -> tuple[Instr, ...]:
    """Instructions of a layer, whose first sums take this half of the accumulator, 0 or 1."""
    source, dim = layer.name, geometry.dim
    strides = (layer.depth, layer.columns, 0)
    load = (
        once("config_ld", state=state, pixels_per_row=1, block_rows=dim, scale=1.0, stride=stride)
        for state, stride in enumerate(strides)
    )
    execute = once("config_ex", weight_stationary=1, a_stride=1, c_stride=1)
    store = once("config_st", activation=int(layer.relu), stride=layer.columns, scale=layer.scale)
    made = [
        accelerator_instr("load", "config_ld", tuple(load), (), (), 1.0, source),
        accelerator_instr("array", "config_ex", (execute,), (), (), 1.0, source),
        accelerator_instr("store", "mvout", (store,), (), (), 1.0, source),
    ]
    for loop in loops:
        made += _loop_instrs(loop, geometry, sums_half, source)
        sums_half = 1 - sums_half if loop.c else sums_half
    return tuple(made)


def _loop_instrs(loop: MatrixLoop, geometry: ArrayGeometry, sums_half: int, source: str) -> Iterator[Instr]:
    """One loop: what it moves in, computes and moves out, of which the first instruction carries the code."""
    dim = geometry.dim
    i, j, k = loop.blocks(dim)
    a = Region(SCRATCHPAD, loop.first_row("a", geometry) * dim, i * k * dim * dim)
    b = Region(SCRATCHPAD, loop.first_row("b", geometry) * dim, j * k * dim * dim)
    half = geometry.accumulator_rows // 2 * dim * 4
    sums = Region(ACCUMULATOR, sums_half * half, i * j * dim * dim * 4)
    factors = ((loop.a, loop.rows, loop.depth, loop.a_step, a), (loop.b, loop.depth, loop.columns, loop.b_step, b))
    brought = [(_matrix(*matrix), place) for *matrix, place in factors if matrix[0]]
    parts: list[tuple[Part, str, tuple[Region, ...], tuple[Region, ...], float]] = []
    if loop.d:
        added = Region(MAIN, loop.d - BASE, BIAS_BYTES * loop.columns)
        parts.append(("added", "load", (added,), (sums,), float(loop.rows)))
    if brought:
        reads, writes = zip(*brought, strict=True)
        parts.append(("load", "load", reads, writes, float(sum(region.size_bytes for region in reads))))
    reads = (a, b, sums) if loop.accumulates else (a, b)
    parts.append(("compute", "array", reads, (sums,), float(i * j * k * dim)))
    if loop.c:
        result = _matrix(loop.c, loop.rows, loop.columns, loop.c_step)
        parts.append(("store", "store", (sums,), (result,), float(result.size_bytes)))
    for number, (part, engine, reads, writes, cycles) in enumerate(parts):
        code = loop_items(loop, dim) if number == 0 else ()
        yield accelerator_instr(engine, f"loop.{part}", (*code, Unrolled(part)), reads, writes, cycles, source)


def _matrix(start: int, rows: int, row_bytes: int, step: int) -> Region:
    if rows == 1 or step == row_bytes:
        return Region(MAIN, start - BASE, row_bytes * rows)
    return Region(MAIN, start - BASE, row_bytes, rows, step)
