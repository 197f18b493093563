"""The class of all templates, and the epilogue of a layer, which they share.

    anchor's own buffers, loads, cycles --single_pass--> TileWork      anchor's instructions --finish--> output in L1

The epilogue runs in place on the tile, on the vector engine; its first operator reads the anchor's result where it lies
(IM). Integer sums are first multiplied by a scale, which makes them fp16. Where the output of the layer is int8, a
`narrow` ends the epilogue: what comes before it runs in a tile of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import replace

from codegen.neuralscale.instructions.arithmetic import arithmetic_of, conversion_cycles
from codegen.neuralscale.instructions.builder import MatrixPlace
from codegen.neuralscale.templates import elementwise
from codegen.neuralscale.templates.tile import DATA, OUTPUT, RUNNING, WEIGHTS, Tile, load_bytes, stored_bytes
from hw_models.chip import Chip
from isched.program.program import Instr
from partitioner.ir.graph import Graph, Op
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box, box_size
from partitioner.ir.target import Pass, TileBuffer, TileLoad, TileWork

Cycles = tuple[tuple[str, float], ...]
"""Cycles of each engine, by its kind; those of a kind that stands twice add up."""


class Template(ABC):
    """A family of anchor operators. The docstring of each is what `dsa-sched ops` prints of it."""

    def accepts(self, graph: Graph, op: Op, chip: Chip) -> str | None:
        """None, or why no tile of `op` can be computed."""
        del graph, op, chip
        return None

    def whole_axes(self, graph: Graph, op: Op) -> tuple[int, ...]:
        """Axes that no tile cuts, because each element of a line along them depends on all of it."""
        del graph, op
        return ()

    def granularity(self, graph: Graph, op: Op) -> tuple[int, ...]:
        """By axis of the output, the unit in which tiles are cut; 0 where they are not."""
        whole = self.whole_axes(graph, op)
        return tuple(0 if axis in whole else 1 for axis in range(len(graph.by_name[op.outputs[0]].shape)))

    @abstractmethod
    def work(self, graph: Graph, layer: Layer, box: Box, chip: Chip) -> TileWork:
        """Buffers, loads and cycles of the tile that computes a box of the layer's output."""

    @abstractmethod
    def lower(self, tile: Tile) -> tuple[tuple[Instr, ...], ...]:
        """The instructions of each pass of a tile."""


class OnePassTemplate(Template):
    """A template that loads everything at once and leaves its result where the output lies."""

    @abstractmethod
    def computed(self, tile: Tile) -> Iterator[Instr]:
        """The instructions of the anchor."""

    def lower(self, tile: Tile) -> tuple[tuple[Instr, ...], ...]:
        return ((*self.computed(tile), *finish(tile, tile.output)),)


class PointwiseTemplate(OnePassTemplate):
    """Element by element, in fp16, with conversions from and to int8; one operand has the shape of the output, the
    other may be broadcast to it."""

    def accepts(self, graph: Graph, op: Op, chip: Chip) -> str | None:
        return elementwise.accepts(graph, op, chip)

    def work(self, graph: Graph, layer: Layer, box: Box, chip: Chip) -> TileWork:
        op = layer.anchor(graph)
        loads = elementwise.operand_loads(graph, op, op.inputs, box, "anchor")
        buffers = (operand_buffer(graph, layer, load, box) for load in loads)
        cycles = finish_cycles(graph, layer, box, chip, elementwise.passes(graph, op))
        return single_pass(graph, layer, box, loads, buffers, cycles)

    def computed(self, tile: Tile) -> Iterator[Instr]:
        op = tile.layer.anchor(tile.graph)
        running = elementwise.running_operand(tile.graph, op)
        current = tile.matrix(f"anchor.{running}", tile.output.rows, tile.output.columns)
        yield from elementwise.apply(tile, tile.issue, op, current, tile.output, "anchor")


def single_pass(
    graph: Graph,
    layer: Layer,
    box: Box,
    loads: Iterable[TileLoad],
    buffers: Iterable[TileBuffer],
    cycles: Cycles,
    strided: bool = True,
) -> TileWork:
    """The work of a tile that loads everything at once, with what the epilogue needs. `strided` says that the anchor,
    too, can write an output with a pitch."""
    step = Pass((*loads, *finish_loads(graph, layer, box)))
    return TileWork((*buffers, *finish_buffers(graph, layer, box, strided)), (step,), OUTPUT, cycles)


def data_buffer(name: str, size_bytes: int, strided: bool = False) -> TileBuffer:
    """A buffer among the data in L1."""
    return TileBuffer(name, "L1", DATA, size_bytes, strided=strided)


def input_buffer(graph: Graph, op: Op, region: Box, strided: bool = True) -> TileBuffer:
    """The buffer of a box of the first operand."""
    return data_buffer("input", stored_bytes(graph, op.inputs[0], region), strided)


def finish_loads(graph: Graph, layer: Layer, box: Box) -> tuple[TileLoad, ...]:
    """The boxes that the epilogue reads in addition to the tile."""
    inside = {output for name in layer.ops for output in graph.op_by_name[name].outputs}
    return tuple(
        load
        for position, op in enumerate(layer.epilogue(graph))
        for load in elementwise.operand_loads(
            graph, op, tuple(name for name in op.inputs if name not in inside), box, f"operand{position}"
        )
    )


def operand_buffer(graph: Graph, layer: Layer, load: TileLoad, box: Box) -> TileBuffer:
    """The buffer of an element-wise operand of a tile, with a pitch where the operand has the tile's shape. Tables lie
    where weights do."""
    size_bytes = load_bytes(graph, load)
    if load.tensor in {elementwise.table_operand(graph.op_by_name[name]) for name in layer.ops}:
        return TileBuffer(load.buffer, "L1", WEIGHTS, size_bytes)
    return TileBuffer(load.buffer, "L1", DATA, size_bytes, strided=box_size(load.box) == box_size(box))


def finish_buffers(graph: Graph, layer: Layer, box: Box, strided: bool = True) -> tuple[TileBuffer, ...]:
    """Buffers of the output, of each operand of the epilogue, of scratch tiles where an operator needs the tile twice,
    and of the tile before it is converted.

    `strided` says that the anchor, too, can write an output with a pitch."""
    buffers = [TileBuffer(OUTPUT, "L1", DATA, stored_bytes(graph, layer.output, box), strided=strided)]
    buffers += [operand_buffer(graph, layer, load, box) for load in finish_loads(graph, layer, box)]
    if tiles := max(elementwise.scratch_tiles(graph.op_by_name[name]) for name in layer.ops):
        item_bytes = arithmetic_of(graph, layer.anchor(graph)).item_bytes
        buffers.append(TileBuffer("scratch", "L1", DATA, tiles * item_bytes * box_size(box)))
    if _runs_apart(graph, layer):
        size_bytes = arithmetic_of(graph, layer.anchor(graph)).item_bytes * box_size(box)
        buffers.append(TileBuffer(RUNNING, "L1", DATA, size_bytes, briefly=True))
    return tuple(buffers)


def _runs_apart(graph: Graph, layer: Layer) -> bool:
    """Whether the values of a layer have another type than its output before they are converted; a lone conversion
    reads its operand."""
    *before, last = (graph.op_by_name[name] for name in layer.ops)
    return last.kind == "narrow" and bool(before or elementwise.passes(graph, last))


def finish_cycles(graph: Graph, layer: Layer, box: Box, chip: Chip, before: int = 0, scalings: int = 0) -> Cycles:
    """Cycles of the vector work of the epilogue, of lookups and conversions, of `before` passes that the anchor itself
    adds, and of `scalings` of its integer sums."""
    count = before + sum(elementwise.passes(graph, op) for op in layer.epilogue(graph))
    ops = [graph.op_by_name[name] for name in layer.ops]
    lookups = sum(op.kind == "lookup" for op in ops)
    conversions = sum(map(elementwise.conversions, ops))
    elements = box_size(box)
    arithmetic = arithmetic_of(graph, layer.anchor(graph))
    cycles = lookups * arithmetic.lookup_cycles(chip, elements)
    cycles += arithmetic.scaling_cycles(chip, elements, scalings) + conversion_cycles(chip, elements, conversions)
    cycles += arithmetic.vector_cycles(chip, elements, max(not (lookups or conversions or scalings), count))
    return (("vector", cycles),)


def epilogue_cycles(graph: Graph, layer: Layer, box: Box, chip: Chip) -> Cycles:
    """Cycles of the epilogue where there is one, for an anchor that itself writes the output."""
    return finish_cycles(graph, layer, box, chip) if layer.epilogue(graph) else ()


def finish(tile: Tile, result: MatrixPlace, bias: MatrixPlace | None = None) -> Iterator[Instr]:
    """Compute the finished output from the anchor's result: bias, epilogue, or a plain move.

    Each operator's instructions carry its own name, so that the source map leads to the node of the model.
    """
    issue, output, current = tile.issue, tile.output, result
    if bias is not None:
        yield from issue.by_column("veadd", output, current, bias)
        current = output
    for position, op in enumerate(tile.layer.epilogue(tile.graph)):
        yield from elementwise.apply(tile, replace(issue, source=op.name), op, current, output, f"operand{position}")
        current = output
    if current is not output and (current.memory, current.offset_bytes) != (output.memory, output.offset_bytes):
        yield from issue.unary("mov.m", output, current)
