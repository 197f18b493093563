"""Products of matrices as loops that the accelerator unrolls itself, beside the streams of explicit instructions.

layer [rows, depth] x [depth, columns] --tilings--> parts of rows, columns and depth --> one loop_ws for each part
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from codegen.gemmini.isa.geometry import ACCUMULATOR, BASE, MAIN, SCRATCHPAD, ArrayGeometry
from codegen.gemmini.isa.matrix_loops import LOOP, MatrixLoop
from codegen.gemmini.isa.unrolled import Part
from codegen.gemmini.kernels.accelerator_loops import (
    BIAS_BYTES,
    Touches,
    equal_parts,
    local_rows,
    main_rows,
    moved_bytes,
    powers,
    turns,
)
from codegen.gemmini.kernels.finish import finish_of
from codegen.gemmini.kernels.product_shape import product_shape
from codegen.gemmini.streams.instructions import accelerator_instr
from codegen.gemmini.streams.streams import once
from isched.program.program import Instr, Region
from partitioner.ir.graph import Constants, Graph
from partitioner.ir.layers import Layer
from partitioner.ir.regions import full_box


@dataclass(frozen=True, slots=True)
class MatrixTiling:
    """Blocks of rows, columns and depth of one loop; `rows_inside` says that the next loop has other rows, so that the
    second factor may stay, else other columns."""

    i: int
    j: int
    k: int
    rows_inside: bool

    def __str__(self) -> str:
        order = "rows" if self.rows_inside else "columns"
        return f"loops of {self.i} x {self.j} blocks, {self.k} deep, {order} inside, by {LOOP}"


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

    def tilings(self, geometry: ArrayGeometry) -> Iterator[MatrixTiling]:
        """Ways to cut a layer into loops, each as deep as fits, in equal parts."""
        dim = geometry.dim
        most_sums, most = geometry.accumulator_rows // 2 // dim, geometry.local_rows // 2 // dim
        all_i, all_j, all_k = (-(-extent // dim) for extent in (self.rows, self.columns, self.depth))
        seen: set[MatrixTiling] = set()
        for wanted_j in (*powers(all_j), all_j):
            for wanted_i in (*powers(all_i), all_i, most_sums // wanted_j):
                if not 0 < wanted_i * wanted_j <= most_sums or wanted_i + wanted_j > most:
                    continue
                i, j, k = (
                    equal_parts(extent, wanted)
                    for extent, wanted in ((all_i, wanted_i), (all_j, wanted_j), (all_k, most // (wanted_i + wanted_j)))
                )
                seen |= {MatrixTiling(i, j, k, inside) for inside in (False, True)}
        yield from sorted(seen, key=lambda each: (each.i, each.j, each.k, each.rows_inside))

    def loops(self, tiling: MatrixTiling, geometry: ArrayGeometry) -> Iterator[MatrixLoop]:
        """The loops, in order."""
        i, j, k = (blocks * geometry.dim for blocks in (tiling.i, tiling.j, tiling.k))
        rows, columns, depths = range(0, self.rows, i), range(0, self.columns, j), range(0, self.depth, k)
        for turn in turns(rows, columns, depths, tiling.rows_inside):
            row, column, deep = turn.row, turn.column, turn.deep
            yield MatrixLoop(
                rows=min(i, self.rows - row),
                columns=min(j, self.columns - column),
                depth=min(k, self.depth - deep),
                a=0 if turn.stay[0] else BASE + self.a + row * self.depth + deep,
                b=0 if turn.stay[1] else BASE + self.b + deep * self.columns + column,
                d=BASE + self.d + BIAS_BYTES * column if self.d >= 0 and deep == 0 else 0,
                c=BASE + self.c + row * self.columns + column if deep + k >= self.depth else 0,
                a_step=self.depth, b_step=self.columns, d_step=0, c_step=self.columns,
                a_half=turn.halves[0], b_half=turn.halves[1], accumulates=deep > 0 or self.d >= 0,
            )  # fmt: skip

    def settings(self, geometry: ArrayGeometry) -> tuple[Instr, ...]:
        """What is configured before the loops."""
        load = (
            once("config_ld", state=state, pixels_per_row=1, block_rows=geometry.dim, scale=1.0, stride=stride)
            for state, stride in enumerate((self.depth, self.columns, 0))
        )
        execute = once("config_ex", weight_stationary=1, a_stride=1, c_stride=1)
        store = once("config_st", activation=int(self.relu), stride=self.columns, scale=self.scale)
        return (
            accelerator_instr("load", "config_ld", tuple(load), (), (), 1.0, self.name),
            accelerator_instr("array", "config_ex", (execute,), (), (), 1.0, self.name),
            accelerator_instr("store", "mvout", (store,), (), (), 1.0, self.name),
        )

    def touched(self, loop: MatrixLoop, geometry: ArrayGeometry, sums: Region) -> Touches:
        """What a loop reads and writes."""
        dim = geometry.dim
        i, j, k = loop.blocks(dim)
        a = local_rows(SCRATCHPAD, loop.first_row("a", geometry), i * k * dim, dim)
        b = local_rows(SCRATCHPAD, loop.first_row("b", geometry), j * k * dim, dim)
        sums = Region(ACCUMULATOR, sums.offset_bytes, i * j * dim * dim * 4)
        factors = ((loop.a, loop.rows, loop.depth, loop.a_step, a), (loop.b, loop.depth, loop.columns, loop.b_step, b))
        brought = [(main_rows(*matrix), place) for *matrix, place in factors if matrix[0]]
        found: dict[Part, tuple[tuple[Region, ...], tuple[Region, ...], float]] = {}
        if loop.d:
            found["added"] = ((Region(MAIN, loop.d - BASE, BIAS_BYTES * loop.columns),), (sums,), float(loop.rows))
        if brought:
            reads, writes = zip(*brought, strict=True)
            found["load"] = (reads, writes, moved_bytes(reads))
        found["compute"] = ((a, b, sums) if loop.accumulates else (a, b), (sums,), float(i * j * k * dim))
        if loop.c:
            result = main_rows(loop.c, loop.rows, loop.columns, loop.c_step)
            found["store"] = ((sums,), (result,), float(result.size_bytes))
        return found


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
