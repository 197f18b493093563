"""The target for a chip whose file has names of its own for the memories.

    asked in the names of the chip file --> inside, the names of the instruction set --> answers in those of the file

Nothing else of the compiler needs to know the instruction set's names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from codegen.judgement import Array, Sampled
from codegen.neuralscale.benchmarks import benchmarks
from codegen.neuralscale.emit.memory_map import address_of
from codegen.neuralscale.emit.memory_names import memories_by_role, renamed
from codegen.neuralscale.emulation.layer_reference import emulate
from codegen.neuralscale.execution import trace, trace_again
from codegen.neuralscale.kernels.preparation import looked_up_rows, preparation_instructions, refused_preparation
from codegen.neuralscale.kernels.transfers import copy_instructions
from codegen.neuralscale.target import NeuralScaleTarget
from codegen.target import Benchmark
from hw_models.chip import Chip
from isched.program.program import Instr, Region
from isched.program.target import DENSE, MemoryCopy, RowRun
from isched.program.timed_ops import TimedOp, TimedStream
from partitioner.ir.graph import Constants, Graph, Op
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box
from partitioner.ir.target import TileWork, WeightPacking, WeightUse

Accessing = TypeVar("Accessing", Instr, TimedOp)


def named_for(target: NeuralScaleTarget, chip: Chip) -> NeuralScaleTarget:
    """The target that takes and gives a chip's own names of memories; `target` itself where these are the same."""
    names = {memory.name: role for role, memory in memories_by_role(chip).items()}
    if all(name == role for name, role in names.items()):
        return target
    return NamedTarget(inner_names=names, file_chip=chip, inner_chip=renamed(chip, names))


@dataclass(frozen=True, kw_only=True)
class NamedTarget(NeuralScaleTarget):
    """`inner_names` gives the instruction set's name of each memory of the chip, and `inner_chip` is the chip with
    these names."""

    inner_names: Mapping[str, str]
    file_chip: Chip
    inner_chip: Chip

    def address(self, memory: str, offset_bytes: int) -> int:
        return address_of(self.inner_names[memory], offset_bytes)

    def accepts(self, graph: Graph, op: Op, constants: Constants, chip: Chip) -> str | None:
        return NeuralScaleTarget.accepts(self, graph, op, constants, self._inner(chip))

    def table_for(self, graph: Graph, op: Op, chip: Chip) -> npt.NDArray[np.generic] | None:
        return NeuralScaleTarget.table_for(self, graph, op, self._inner(chip))

    def packs_weights(self, use: WeightUse, chip: Chip) -> WeightPacking:
        return NeuralScaleTarget.packs_weights(self, use, self._inner(chip))

    def work(self, graph: Graph, layer: Layer, box: Box, chip: Chip) -> TileWork:
        return _work(NeuralScaleTarget.work(self, graph, layer, box, self._inner(chip)), self._outer)

    def lower(
        self,
        graph: Graph,
        constants: Constants,
        layer: Layer,
        box: Box,
        work: TileWork,
        offsets_bytes: Mapping[str, int],
        chip: Chip,
        pitches_bytes: Mapping[str, int] = DENSE,
    ) -> tuple[tuple[Instr, ...], ...]:
        inside = _work(work, self.inner_names)
        passes = NeuralScaleTarget.lower(
            self, graph, constants, layer, box, inside, offsets_bytes, self._inner(chip), pitches_bytes
        )
        return tuple(self._outward(instrs) for instrs in passes)

    def copy(self, copies: tuple[MemoryCopy, ...], source: str, chip: Chip) -> tuple[Instr, ...]:
        inside = tuple(MemoryCopy(*_regions((copy.source, copy.destination), self.inner_names)) for copy in copies)
        return self._outward(copy_instructions(inside, source, self._inner(chip)))

    def prepare(self, graph: Graph, op: Op, places: Mapping[str, int], chip: Chip) -> tuple[Instr, ...]:
        return self._outward(preparation_instructions(graph, op, places, self._inner(chip)))

    def look_up(
        self, graph: Graph, op: Op, places: Mapping[str, int], runs: tuple[RowRun, ...], source: str, chip: Chip
    ) -> tuple[Instr, ...]:
        return self._outward(looked_up_rows(graph, op, places, runs, source, self._inner(chip)))

    def refuses_prepared(self, graph: Graph, op: Op, chip: Chip) -> str | None:
        return refused_preparation(graph, op, self._inner(chip))

    def trace(self, executable: bytes, cores: int, chip: Chip, cluster: int = 0) -> tuple[TimedStream, ...]:
        return self._streams(trace(executable, cores, self._inner(chip), cluster))

    def trace_again(self, executable: bytes, cores: int, chip: Chip, cluster: int = 0) -> tuple[TimedStream, ...]:
        return self._streams(trace_again(executable, cores, self._inner(chip), cluster))

    def benchmarks(self, chip: Chip) -> tuple[Benchmark, ...]:
        made = benchmarks(self._inner(chip))
        return tuple(replace(each, isolates=tuple(self._outer_path(path) for path in each.isolates)) for each in made)

    def _outer_path(self, path: str) -> str:
        """A path in the chip file, where it leads to a memory."""
        first, *rest = path.split(".")
        return ".".join((first, self._outer[rest[0]], *rest[1:])) if first == "memories" else path

    def emulate(self, sampled: Sampled) -> Array:
        return emulate(replace(sampled, chip=self._inner(sampled.chip)))

    @property
    def _outer(self) -> Mapping[str, str]:
        return {inner: name for name, inner in self.inner_names.items()}

    def _inner(self, chip: Chip) -> Chip:
        return self.inner_chip if chip is self.file_chip else renamed(chip, self.inner_names)

    def _outward(self, instrs: Iterable[Accessing]) -> tuple[Accessing, ...]:
        names = self._outer
        return tuple(
            replace(instr, reads=_regions(instr.reads, names), writes=_regions(instr.writes, names)) for instr in instrs
        )

    def _streams(self, streams: tuple[TimedStream, ...]) -> tuple[TimedStream, ...]:
        return tuple(replace(stream, ops=self._outward(stream.ops)) for stream in streams)


def _regions(regions: tuple[Region, ...], names: Mapping[str, str]) -> tuple[Region, ...]:
    return tuple(replace(region, memory=names.get(region.memory, region.memory)) for region in regions)


def _work(work: TileWork, names: Mapping[str, str]) -> TileWork:
    """The work of a tile with other names of the memories of its buffers."""
    return replace(work, buffers=tuple(replace(buffer, memory=names[buffer.memory]) for buffer in work.buffers))
