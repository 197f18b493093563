"""A chip without a code generator: the data for planning, from the chip file and the operators' access maps alone.

    box of a layer's output --access maps--> boxes of its inputs --cost model--> cycles of transfers and engines

Every operator is accepted and may be cut anywhere, since there are no templates with rules. Products are summed on the
matrix engine where the chip has one, everything else is counted as passes of the vector engine. Such a plan gives the
costs of a chip that is being designed; it cannot be lowered.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from hw_models.chip import Chip
from hw_models.cost import matrix_cycles, vector_cycles
from hw_models.errors import ChipError, TargetError
from hw_models.parts import MatrixEngine, VectorEngine
from hw_models.routes import main_memory, route
from partitioner.ir.graph import Constants, Graph, Op, channel_axis, multiplied_dtype
from partitioner.ir.layers import Layer, layer_boxes
from partitioner.ir.regions import Box, box_size
from partitioner.ir.target import Pass, TileBuffer, TileLoad, TileWork
from partitioner.ir.wants import Wants, floats_as

NEUTRAL = Wants(floats_as("float16"), "channels_last")
"""Usual wishes of accelerators: fp16, channels last, few kinds of operators."""


def generic_target(chip: Chip) -> GenericTarget:
    """A target that plans for an array of cores by its chip file alone. Raises TargetError for a chip that lacks what
    every plan needs, and for one of another kind, whose kernels are known only to a code generator."""
    if chip.kind != "cores":
        raise TargetError(
            f"chip {chip.name}",
            needs=f"a code generator for {chip.isa}, which plans for a chip of kind {chip.kind} ask for its kernels",
            has="none",
        )
    if problems := unplannable(chip):
        raise TargetError(f"chip {chip.name}", needs="what every plan uses", has="\n  ".join(("", *problems)).strip())
    return GenericTarget(chip.isa)


def unplannable(chip: Chip) -> tuple[str, ...]:
    """One sentence for each part that every plan uses and an array of cores does not have; it begins with the field."""
    return tuple(_absent_parts(chip))


def _absent_parts(chip: Chip) -> Iterator[str]:
    if not any(isinstance(engine, VectorEngine) for engine in chip.engines):
        yield "engines: none of kind vector, which computes everything that is not a product"
    try:
        main = main_memory(chip)
    except ChipError:
        yield "memories: none of scope cluster or chip, in which whole networks lie"
        return
    try:
        local = local_memory(chip)
    except ChipError:
        yield f"links: none lead from {main} to a memory of scope core, in which layers are computed"
        return
    try:
        route(chip, local, main)
    except ChipError:
        yield f"links: none lead from {local} to {main}, to which results return"
        return
    between = route(chip, main, local)[1:-1]
    if len(between) > 1:
        yield f"links: data pass through {' and '.join(between)} on their way to {local}; at most one memory"
    for memory in map(chip.memory, between):
        if memory.scope == "core":
            yield f"memories: {memory.name} has scope core, and is between {main} and {local}; it must be shared"


@dataclass(frozen=True, slots=True)
class GenericTarget:
    """Implements `partitioner.ir.target.PlanTarget` for any chip; `name` is its instruction set."""

    name: str
    wants: Wants = NEUTRAL

    def accepts(self, graph: Graph, op: Op, constants: Constants, chip: Chip) -> str | None:
        """Always None: no one has said what the chip cannot do."""
        del graph, op, constants, chip
        return None

    def can_fuse_epilogue(self, graph: Graph, layer: tuple[Op, ...], op: Op, operand: str) -> str | None:
        """None for an operand of the result's own shape, which can be worked on in place; else why not."""
        del layer
        if graph.by_name[operand].shape != graph.by_name[op.outputs[0]].shape:
            return f"{operand} is broadcast by {op.name}"
        return None

    def granularity(self, graph: Graph, layer: Layer) -> tuple[int, ...]:
        return (1,) * len(graph.by_name[layer.output].shape)

    def whole_axes(self, graph: Graph, layer: Layer) -> tuple[int, ...]:
        del graph, layer
        return ()

    def work(self, graph: Graph, layer: Layer, box: Box, chip: Chip) -> TileWork:
        """Raises ChipError for a chip that lacks the memories, links or engines that the layer needs."""
        boxes = layer_boxes(graph, layer, box)
        memory = local_memory(chip)
        loads = tuple(TileLoad(name, boxes[name], name) for name in layer.inputs(graph) if box_size(boxes[name]))
        needed = [TileBuffer(load.buffer, memory, "", _bytes(graph, load.tensor, load.box)) for load in loads]
        output = TileBuffer("output", memory, "", _bytes(graph, layer.output, box))
        cycles: dict[str, float] = {}
        for name in layer.ops:
            engine, number = _engine_cycles(graph, graph.op_by_name[name], boxes, chip)
            cycles[engine] = cycles.get(engine, 0.0) + number
        return TileWork((*needed, output), (Pass(loads),), "output", tuple(cycles.items()))


def local_memory(chip: Chip) -> str:
    """The largest memory of a core that links reach from the main memory. Raises ChipError when there is none."""
    main = main_memory(chip)
    reached = []
    for memory in (memory for memory in chip.memories if memory.scope == "core"):
        try:
            route(chip, main, memory.name)
        except ChipError:
            continue
        reached.append(memory)
    if not reached:
        raise ChipError(f"chip {chip.name}", needs=f"a memory of scope core that links reach from {main}", has="none")
    return max(reached, key=lambda memory: memory.size_bytes).name


def _bytes(graph: Graph, name: str, box: Box) -> int:
    return box_size(box) * graph.by_name[name].item_bytes


def _engine_cycles(graph: Graph, op: Op, boxes: dict[str, Box], chip: Chip) -> tuple[str, float]:
    """(engine, cycles) of one operator for the box of its output."""
    result = graph.by_name[op.outputs[0]]
    dtype = result.dtype
    outputs = sum(box_size(boxes[name]) for name in op.outputs if name in boxes)
    whole = sum(prod(graph.by_name[name].shape) for name in op.outputs)
    reduction = op.macs // whole
    if not reduction:
        elements = max(outputs, *(box_size(boxes[name]) for name in op.inputs)) if op.inputs else outputs
        return chip.vector.name, vector_cycles(chip, elements, _computed_in(chip.vector, dtype), len(op.stages))
    if not any(isinstance(engine, MatrixEngine) for engine in chip.engines):
        return chip.vector.name, vector_cycles(chip, outputs * reduction, _computed_in(chip.vector, dtype))
    box = boxes[op.outputs[0]]
    low, high = box[channel_axis(result, op.kind)] if box else (0, 1)
    channels = high - low
    pixels = outputs // max(1, channels)
    multiplied = _computed_in(chip.matrix, multiplied_dtype(graph, op))
    return chip.matrix.name, matrix_cycles(chip, pixels, channels, reduction, multiplied)


def _computed_in(engine: MatrixEngine | VectorEngine, dtype: str) -> str:
    """The element type itself where the engine has it, else the engine's first."""
    names = [rate.dtype for rate in engine.rates]
    return dtype if dtype in names else names[0]
