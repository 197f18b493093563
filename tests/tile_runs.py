"""One tile of one layer on the simulated chip, several times over: each core lowers it with other pitches.

inputs --DMA, barrier--> core 0: dense   core 1: output with a pitch   core 2: ...   --barrier, DMA--> output areas

Buffers lie apart in L1; loads of a strided buffer arrive densely and are spread by a copy inside L1. The output's area
is filled with a pattern first, and comes back whole, so that what lies between its rows can be seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np
import numpy.typing as npt

from codegen.neuralscale.instructions.arithmetic import FP16
from codegen.neuralscale.instructions.builder import InstructionBuilder, MatrixPlace
from codegen.neuralscale.target import TARGET
from hw_models.chip import Chip
from isched.hazards.verify_program import verify_program
from isched.lowering.strided_copies import packed_copies
from isched.program.program import Instr, Program, Region, Stream, TensorPlacement
from isched.program.target import MemoryCopy
from partitioner.ir.graph import Constants, Graph
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box, box_shape, box_size, full_box
from partitioner.ir.target import TileLoad, TileWork
from partitioner.memory.memory_plan_types import Place

__all__ = ["PATTERN", "pitched_variants", "run_tile"]

Bits = npt.NDArray[np.uint16]
PATTERN = 0x4700
"""7.0, what lies between the rows of an output before the tile runs."""
WORD_BYTES = 2
ALIGNMENT_BYTES = 64


def pitched_variants(graph: Graph, layer: Layer, work: TileWork, box: Box) -> list[dict[str, int]]:
    """Pitches to try: none, one for each strided buffer alone, and one for each of them at once."""
    boxes = [(load.buffer, load.tensor, load.box) for step in work.passes for load in step.loads]
    widths = dict.fromkeys((*(name for name, *_ in boxes), work.output), 0)
    for name, tensor, of in (*boxes, (work.output, layer.output, box)):
        widths[name] = max(widths[name], _row_bytes(graph, tensor, of))
    strided = [buffer.name for buffer in work.buffers if buffer.strided]
    pitches = {name: widths[name] + WORD_BYTES * (3 + position) for position, name in enumerate(strided)}
    return [{}, *({name: pitch} for name, pitch in pitches.items()), pitches]


def run_tile(
    graph: Graph,
    constants: Constants,
    layer: Layer,
    box: Box,
    chip: Chip,
    variants: Sequence[Mapping[str, int]],
    seed: int = 0,
) -> list[Bits]:
    """What lies in the output's area of each core afterwards, [rows, 16-bit words of a pitch]; one variant a core."""
    work = TARGET.work(graph, layer, box, chip)
    run = _Run(graph, constants, layer, box, work, chip)
    rows, row_bytes = prod(box_shape(box)[:-1]), _row_bytes(graph, layer.output, box)
    areas = [rows * v.get(work.output, row_bytes) for v in variants]
    streams: list[list[Instr]] = [[] for _ in range(chip.cores_per_cluster)]
    streams[0] += TARGET.copy(tuple(run.stage_inputs()), layer.name, chip)
    _barrier(streams)
    staged = [run.take(run.llb, area) for area in areas]
    for core, (pitches, area, place) in enumerate(zip(variants, areas, staged, strict=True)):
        streams[core] += run.tile(pitches, area, place)
    _barrier(streams)
    back = [run.place("output", f"area{core}", area) for core, area in enumerate(areas)]
    pairs = zip(staged, back, areas, strict=True)
    copies = [MemoryCopy(Region("LLB", start, area), Region("DDR", to.offset_bytes, area)) for start, to, area in pairs]
    streams[0] += TARGET.copy(tuple(copies), layer.name, chip)
    numbered = tuple(Stream(core, tuple(instrs)) for core, instrs in enumerate(streams))
    program = Program(graph.name, chip.name, 0, TARGET.barrier, tuple(run.placements), numbered)
    verify_program(program, chip)
    reads = [(TARGET.address("DDR", to.offset_bytes), area) for to, area in zip(back, areas, strict=True)]
    memory = TARGET.run(TARGET.emit(program, graph, constants), run.loads(seed), tuple(reads), seed).memory
    return [np.frombuffer(memory[read], np.uint16).reshape(rows, -1) for read in reads]


def _row_bytes(graph: Graph, tensor: str, box: Box) -> int:
    return graph.by_name[tensor].item_bytes * box_shape(box)[-1]


def _barrier(streams: list[list[Instr]]) -> None:
    for stream in streams:
        stream.append(TARGET.synchronise("barrier"))


@dataclass(slots=True)
class _Run:
    """What the cores share: where tensors lie in DDR and LLB."""

    graph: Graph
    constants: Constants
    layer: Layer
    box: Box
    work: TileWork
    chip: Chip
    placements: list[TensorPlacement] = field(default_factory=list)
    staged: dict[str, int] = field(default_factory=dict)
    llb: dict[str, int] = field(default_factory=lambda: {"LLB": 0})

    def take(self, used: dict[str, int], size_bytes: int, memory: str = "LLB") -> int:
        start = used.get(memory, 0)
        used[memory] = start + -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        return start

    def place(self, kind: str, name: str, size_bytes: int) -> TensorPlacement:
        last = self.placements[-1] if self.placements else None
        start = TARGET.data_base_bytes if last is None else last.offset_bytes + last.size_bytes
        offset = -(-start // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        self.placements.append(TensorPlacement(name, kind, "DDR", offset, size_bytes))
        return self.placements[-1]

    def stage_inputs(self) -> Iterator[MemoryCopy]:
        """Every tensor that the tile reads, whole, into the LLB."""
        for name in dict.fromkeys(load.tensor for step in self.work.passes for load in step.loads):
            size = self.graph.by_name[name].size_bytes
            place = self.place("input", name, size)
            self.staged[name] = self.take(self.llb, size)
            yield MemoryCopy(Region("DDR", place.offset_bytes, size), Region("LLB", self.staged[name], size))

    def loads(self, seed: int) -> dict[int, bytes]:
        rng = np.random.default_rng(seed)
        result = {}
        for place in self.placements:
            if place.kind == "input":
                tensor = self.graph.by_name[place.tensor]
                drawn = rng.normal(0, 1 if tensor.dtype == "float16" else 40, tensor.shape).astype(tensor.dtype)
                array = self.constants[tensor.constant] if tensor.constant else drawn
                result[TARGET.address("DDR", place.offset_bytes)] = array.tobytes()
        return result

    def tile(self, pitches: Mapping[str, int], area: int, place: int) -> Iterator[Instr]:
        """Loads, the tile's instructions, and the output's area into the LLB."""
        used: dict[str, int] = {}
        offsets = {}
        dense = self.take(used, max(buffer.size_bytes for buffer in self.work.buffers), "L1")
        for buffer in self.work.buffers:
            size = max([buffer.size_bytes, *(self._size(load, pitches) for load in self._loads(buffer.name))])
            offsets[buffer.name] = self.take(used, area if buffer.name == self.work.output else size, buffer.memory)
        output = MatrixPlace(self.work.local, offsets[self.work.output], 1, area // FP16.item_bytes, FP16.item_bytes)
        issue = InstructionBuilder(self.chip, self.layer.name, FP16)
        yield from issue.fill(output, float(np.uint16(PATTERN).view(np.float16)))
        steps = TARGET.lower(self.graph, self.constants, self.layer, self.box, self.work, offsets, self.chip, pitches)
        for step, instrs in zip(self.work.passes, steps, strict=True):
            for load in step.loads:
                yield from self._load(load, dense, offsets[load.buffer], pitches.get(load.buffer, 0))
            yield from instrs
        back = MemoryCopy(Region("L1", output.offset_bytes, area), Region("LLB", place, area))
        yield from TARGET.copy((back,), self.layer.name, self.chip)

    def _loads(self, buffer: str) -> Iterator[TileLoad]:
        yield from (load for step in self.work.passes for load in step.loads if load.buffer == buffer)

    def _size(self, load: TileLoad, pitches: Mapping[str, int]) -> int:
        return prod(box_shape(load.box)[:-1]) * pitches.get(load.buffer, _row_bytes(self.graph, load.tensor, load.box))

    def _load(self, load: TileLoad, dense: int, offset: int, pitch: int) -> Iterator[Instr]:
        """Densely from the LLB, and then to rows that lie `pitch` bytes apart."""
        tensor = self.graph.by_name[load.tensor]
        start = self.staged[load.tensor]
        into = dense if pitch else offset
        staged, here = Place("LLB", start, full_box(tensor.shape)), Place("L1", into, load.box)
        copies = packed_copies(staged, here, load.box, tensor.item_bytes, at_source=False)
        yield from TARGET.copy(tuple(copies), self.layer.name, self.chip)
        if pitch:
            rows, row = prod(box_shape(load.box)[:-1]), _row_bytes(self.graph, load.tensor, load.box)
            assert rows * row == tensor.item_bytes * box_size(load.box)
            source = Region("L1", dense, row, rows, row if rows > 1 else 0)
            spread = MemoryCopy(source, Region("L1", offset, row, rows, pitch if rows > 1 else 0))
            yield from TARGET.copy((spread,), self.layer.name, self.chip)
