"""Lowering: a plan becomes one instruction stream for each core, with addresses.

    step --> rounds --> [main -> staging] barrier [staging -> local, compute, back] barrier [staging -> main]

At O0 every step reads its inputs from the main memory and leaves its output there. One core issues the DMA, all cores
work on their pieces tile by tile. Nothing is loaded twice in a row: a buffer that already holds a box keeps it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hw_models.chip import Chip
from hw_models.errors import DoesNotFit, PlanError
from hw_models.routes import main_memory, staging_memory
from isched.movement import gather, relative, scatter
from isched.program import Instr, Placement, Program, Stream
from isched.target import Copy, LowerTarget
from partitioner.binding import cut_quanta, piece_boxes
from partitioner.graph import Constants, Graph
from partitioner.layers import Layer
from partitioner.plan import Plan, Step
from partitioner.regions import Box, box_shape, box_size
from partitioner.target import Load, Work
from partitioner.tiling import (
    Tiling,
    buffer_sizes,
    choose_rounds,
    choose_tiles,
    overflow,
    place_buffers,
    staged_boxes,
    tile_boxes,
)

__all__ = ["lower_plan", "place_tensors"]

MOST_INSTRUCTIONS = 1_000_000
"""A program of more is refused while it is being made: no code space holds it, and hours would pass."""

TENSOR_ALIGNMENT_BYTES = 64
"""Tensors start at multiples of this in the main memory: a DDR burst of 64 bytes."""


@dataclass(slots=True)
class _Lowering:
    """What the steps of one plan share while their instructions are collected."""

    graph: Graph
    constants: Constants
    chip: Chip
    target: LowerTarget
    placement: dict[str, Placement]
    reads: dict[str, Placement]
    main: str
    streams: list[list[Instr]] = field(default_factory=list)
    tilings: dict[tuple[str, tuple[int, ...]], Tiling] = field(default_factory=dict)

    def barrier(self, source: str) -> None:
        for stream in self.streams:
            stream.append(self.target.synchronise(source))

    def copy(self, core: int, copies: list[Copy], source: str) -> None:
        if copies:
            self.streams[core].extend(self.target.copy(tuple(copies), source, self.chip))


def lower_plan(
    plan: Plan,
    graph: Graph,
    constants: Constants,
    chip: Chip,
    target: LowerTarget,
    base_bytes: int,
    isolated: bool = False,
) -> Program:
    """The program of one cluster; tensors lie in the main memory from `base_bytes` on.

    With `isolated`, each layer reads copies of its inputs (placements of kind `probe`, to be filled by whoever runs the
    program) instead of what the layers before it wrote: every layer can then be judged by itself in one run.
    Raises DoesNotFit naming the layer or tensor, the demand and the bound.
    """
    main = main_memory(chip)
    placements = place_tensors(graph, chip, base_bytes, isolated)
    by_name = {p.tensor: p for p in placements if p.kind != "probe"}
    reads = by_name | {p.of: p for p in placements if p.kind == "probe"}
    state = _Lowering(graph, constants, chip, target, by_name, reads, main, [[] for _ in range(chip.cores_per_cluster)])
    for step in plan.steps:
        if step.kind == "run":
            for layer in plan.group_by_name[step.group].layers:
                _lower_layer(state, step, layer)
    streams = tuple(Stream(core, tuple(instrs)) for core, instrs in enumerate(state.streams))
    return Program(plan.name, chip.name, 0, target.barrier, placements, streams)


def place_tensors(graph: Graph, chip: Chip, base_bytes: int, isolated: bool) -> tuple[Placement, ...]:
    """Every tensor one after the other, without reuse, so that each can be read after the run. Views are aliases."""
    main = main_memory(chip)
    offset = base_bytes
    placements: list[Placement] = []
    by_name: dict[str, Placement] = {}

    def place(name: str, kind: str, size_bytes: int, of: str = "") -> None:
        nonlocal offset
        placement = Placement(name, kind, main, offset, size_bytes, of)
        placements.append(placement)
        by_name.setdefault(name, placement)
        offset += -(-size_bytes // TENSOR_ALIGNMENT_BYTES) * TENSOR_ALIGNMENT_BYTES

    # Constants first, so that the program file holds them as one run of bytes.
    for tensor in sorted(graph.tensors, key=lambda t: not t.constant):
        producer = graph.producer.get(tensor.name)
        if producer is not None and producer.kind == "view":
            source = by_name[producer.inputs[0]]
            alias = Placement(tensor.name, "alias", main, source.offset_bytes, tensor.size_bytes, source.tensor)
            placements.append(alias)
            by_name[tensor.name] = alias
            continue
        kind = "constant" if tensor.constant else "input" if tensor.name in graph.inputs else "value"
        place(tensor.name, "output" if kind == "value" and tensor.name in graph.outputs else kind, tensor.size_bytes)
    if isolated:
        for tensor in graph.tensors:
            if tensor.name in graph.producer:
                place(f"{tensor.name}::probe", "probe", tensor.size_bytes, tensor.name)
    bound = chip.memory(main).size_bytes
    if offset > bound:
        largest = max(graph.tensors, key=lambda tensor: tensor.size_bytes)
        raise DoesNotFit(
            f"graph {graph.name} (largest tensor {largest.name})",
            demand_bytes=offset,
            bound_bytes=bound,
            where=main,
            levers=("a smaller batch", f"a chip with more {main}"),
        )
    return tuple(placements)


def _lower_layer(state: _Lowering, step: Step, layer: Layer) -> None:
    """Rounds that fit the staging memory; in each, all cores work on their pieces."""
    graph, chip, target = state.graph, state.chip, state.target
    quanta = cut_quanta(graph, layer, step.box, target, chip)
    staging = staging_memory(chip, target.work(graph, layer, step.box, chip).local)
    rounds = piece_boxes(step.box, choose_rounds(graph, layer, step.box, target, chip, quanta, staging), quanta)
    staged: dict[str, tuple[Box, int]] = {}
    for box in rounds:
        staged = _stage_inputs(state, layer, box, staging, staged)
        output_bytes = _staging_end(state, staged, staging)
        state.barrier(layer.name)
        for core, piece in zip(step.binding.cores, piece_boxes(box, step.binding.pieces, quanta), strict=False):
            _lower_piece(state, layer, core, piece, staging, staged, (box, output_bytes))
            _require_size(state, layer)
        state.barrier(layer.name)
        _store_output(state, layer, box, staging, output_bytes)


def _require_size(state: _Lowering, layer: Layer) -> None:
    count = sum(len(stream) for stream in state.streams)
    if count > MOST_INSTRUCTIONS:
        raise PlanError(
            f"layer {layer.name}",
            needs=f"at most {MOST_INSTRUCTIONS:,} instructions up to here",
            has=f"{count:,}",
            change="use a smaller batch or smaller tensors",
        )


def _stage_inputs(
    state: _Lowering, layer: Layer, box: Box, staging: str, before: dict[str, tuple[Box, int]]
) -> dict[str, tuple[Box, int]]:
    """Bring what a round reads from the main memory; keep what the round before left at the same place."""
    graph = state.graph
    boxes = staged_boxes(state.target.work(graph, layer, box, state.chip))
    offset = 0
    staged: dict[str, tuple[Box, int]] = {}
    copies: list[Copy] = []
    unit = state.chip.memory(staging).alignment_bytes
    # What does not change between rounds comes first, so that its place does not move.
    for name, wanted in sorted(boxes.items(), key=lambda item: not graph.by_name[item[0]].constant):
        tensor = graph.by_name[name]
        staged[name] = (wanted, offset)
        if before.get(name) != staged[name]:
            base = state.reads[name].offset_bytes
            copies += gather(state.main, base, tensor.shape, wanted, tensor.item_bytes, staging, offset)
        offset += -(-box_size(wanted) * tensor.item_bytes // unit) * unit
    state.copy(0, copies, layer.name)
    return staged


def _staging_end(state: _Lowering, staged: dict[str, tuple[Box, int]], staging: str) -> int:
    unit = state.chip.memory(staging).alignment_bytes
    ends = (offset + box_size(box) * state.graph.by_name[name].item_bytes for name, (box, offset) in staged.items())
    return -(-max(ends, default=0) // unit) * unit


def _store_output(state: _Lowering, layer: Layer, box: Box, staging: str, offset_bytes: int) -> None:
    tensor = state.graph.by_name[layer.output]
    base = state.placement[layer.output].offset_bytes
    state.copy(
        0, list(scatter(staging, offset_bytes, state.main, base, tensor.shape, box, tensor.item_bytes)), layer.name
    )


def _lower_piece(
    state: _Lowering,
    layer: Layer,
    core: int,
    piece: Box,
    staging: str,
    staged: dict[str, tuple[Box, int]],
    output: tuple[Box, int],
) -> None:
    """The tiles of one core's piece: loads, instructions, store."""
    graph, chip, target = state.graph, state.chip, state.target
    tiles, works = _tile_piece(state, layer, piece)
    places = _place_tile_buffers(chip, layer, works)
    tensor = graph.by_name[layer.output]
    held: dict[str, tuple[str, Box]] = {}
    before = places[0]
    for tile, work, offsets in zip(tiles, works, places, strict=True):
        if offsets != before:
            held.clear()
        before = offsets
        memory = {buffer.name: buffer.memory for buffer in work.buffers}
        passes = target.lower(graph, state.constants, layer, tile, work, offsets, chip)
        for step, instrs in zip(work.passes, passes, strict=True):
            loads = [load for load in step.loads if held.get(load.buffer) != (load.tensor, load.box)]
            copies = [
                copy for load in loads for copy in _load(state, load, memory[load.buffer], offsets, staging, staged)
            ]
            state.copy(core, copies, layer.name)
            held.update({load.buffer: (load.tensor, load.box) for load in loads})
            state.streams[core].extend(instrs)
        box, base = output
        back = scatter(
            work.local, offsets[work.output], staging, base, box_shape(box), relative(tile, box), tensor.item_bytes
        )
        state.copy(core, list(back), layer.name)


def _tile_piece(state: _Lowering, layer: Layer, piece: Box) -> tuple[tuple[Box, ...], list[Work]]:
    """Tiles of a piece and their work. Pieces of one shape share a tiling, unless a border made it too coarse."""
    graph, chip, target = state.graph, state.chip, state.target
    key = (layer.name, box_shape(piece))
    tiling = state.tilings.get(key)
    for _ in range(2):
        if tiling is None:
            tiling, _cycles = choose_tiles(graph, layer, piece, target, chip)
            state.tilings[key] = tiling
        tiles = tile_boxes(piece, tiling)
        works = [target.work(graph, layer, tile, chip) for tile in tiles]
        if all(overflow(chip, buffer_sizes((work,))) is None for work in works):
            break
        tiling = None
    return tiles, works


def _load(
    state: _Lowering, load: Load, memory: str, offsets: dict[str, int], staging: str, staged: dict[str, tuple[Box, int]]
) -> list[Copy]:
    box, base = staged[load.tensor]
    item_bytes = state.graph.by_name[load.tensor].item_bytes
    return list(
        gather(staging, base, box_shape(box), relative(load.box, box), item_bytes, memory, offsets[load.buffer])
    )


def _place_tile_buffers(chip: Chip, layer: Layer, works: list[Work]) -> list[dict[str, int]]:
    """Offsets of the buffers of each tile: the same for all where one place can be large enough for every tile.

    It cannot where one tile needs most of one buffer and another most of a second; then each tile has its own.
    """
    for work in works:
        if over := overflow(chip, buffer_sizes((work,))):
            where, demand, bound = over
            raise DoesNotFit(f"layer {layer.name}", demand_bytes=demand, bound_bytes=bound, where=where, levers=())
    together = buffer_sizes(works)
    if overflow(chip, together) is None:
        return [place_buffers(chip, together)] * len(works)
    return [place_buffers(chip, buffer_sizes((work,))) for work in works]
