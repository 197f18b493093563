"""The Gemmini target: its members, each imported from where it is implemented."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from codegen.gemmini.emit.executable import disassemble, emit, made_for
from codegen.gemmini.emulation.layer_reference import emulate
from codegen.gemmini.emulation.prepared_reference import emulate_prepared
from codegen.gemmini.execution import run, simulate, trace
from codegen.gemmini.forms import in_fastest_forms
from codegen.gemmini.isa.geometry import ACCUMULATOR, BASE, DATA_BASE, DEFAULT, MAIN, MAIN_BYTES, SCRATCHPAD, SUMS_BYTES
from codegen.gemmini.kernels.layers import OPERATORS, fuses, granularity, instrs, keeps, refusal, work
from codegen.gemmini.kernels.prepared import preparation_instrs, refused_preparation
from codegen.gemmini.streams.instructions import BARRIER, fence
from codegen.gemmini.timing.issue import issue_costs
from codegen.judgement import EXACT, Judgement
from hw_models.chip import Chip
from isched.program.program import Instr
from isched.program.target import DENSE, MemoryCopy, RowRun
from partitioner.ir.graph import Constants, Graph, Op
from partitioner.ir.layers import Layer
from partitioner.ir.operators import Trait, onnx_names
from partitioner.ir.regions import Box
from partitioner.ir.target import TileWork
from partitioner.ir.wants import Wants, floats_as

LONGEST_WINDOW = 255
"""Taps, steps and padding of a convolution along an axis."""

WANTS = Wants(
    floats_as("float32"),
    "channels_last",
    windows="images",
    longest_window=LONGEST_WINDOW,
    int8=True,
    sums_of_integers=True,
    int8_unit=1,
    group_channels=DEFAULT.dim,
    int8_moves=onnx_names(Trait.VIEW) | {"Concat", "MaxPool", "Slice", "Transpose"},
    words=True,
    norms_of_lines=True,
    arithmetic_choices=True,
)
"""Forms of operators that tiles want: float32 on the core, int8 products with sums of integers on the array. Groups are
as wide as the array of the chip."""


@dataclass(frozen=True, slots=True)
class GemminiTarget:
    """The table `codegen.target.CAPABILITIES` describes each member."""

    name: str = "gemmini-v3"
    keeps_in: str = SCRATCHPAD
    dim: int = DEFAULT.dim
    """Width of the array of the chip."""

    barrier: str = BARRIER
    data_base_bytes: int = DATA_BASE
    wants: Wants = WANTS
    judgement: Judgement = EXACT

    emit = staticmethod(emit)
    made_for = staticmethod(made_for)
    disassemble = staticmethod(disassemble)
    emulate = staticmethod(emulate)
    prepare = staticmethod(preparation_instrs)
    refuses_prepared = staticmethod(refused_preparation)
    emulate_prepared = staticmethod(emulate_prepared)
    run = staticmethod(run)
    simulate = staticmethod(simulate)
    work = staticmethod(work)
    lower_moving = staticmethod(instrs)
    keeps = staticmethod(keeps)
    in_fastest_forms = staticmethod(in_fastest_forms)
    issue_costs = staticmethod(issue_costs)
    trace = staticmethod(trace)

    def named_for(self, chip: Chip) -> GemminiTarget:
        """The target for the width of the chip's array."""
        return replace(self, dim=chip.matrix.array_channels)

    def granularity(self, graph: Graph, layer: Layer) -> tuple[int, ...]:
        return granularity(graph, layer, self.dim)

    def unsuited(self, chip: Chip) -> tuple[str, ...]:
        """What the chip file lacks or has too much of."""
        names = {memory.name: memory for memory in chip.memories}
        wrong = [f"memories: none named {name}" for name in (MAIN, SCRATCHPAD, ACCUMULATOR) if name not in names]
        if MAIN in names and names[MAIN].size_bytes > MAIN_BYTES:
            wrong.append(f"memories: {MAIN} has {names[MAIN].size_bytes} bytes; programs address {MAIN_BYTES}")
        if ACCUMULATOR in names and names[ACCUMULATOR].size_bytes > SUMS_BYTES:
            size = names[ACCUMULATOR].size_bytes
            wrong.append(f"memories: {ACCUMULATOR} has {size} bytes; sums wait in {SUMS_BYTES} for the core")
        if chip.cores != 1:
            wrong.append(f"clusters, cores_per_cluster: {chip.cores} cores; programs are for one")
        return tuple(wrong)

    def operators(self) -> tuple[tuple[str, str], ...]:
        return tuple(OPERATORS.items())

    def address(self, memory: str, offset_bytes: int) -> int:
        """Address of a byte of the main memory; local memories are counted from 0."""
        return BASE + offset_bytes if memory == MAIN else offset_bytes

    def accepts(self, graph: Graph, op: Op, constants: Constants, chip: Chip) -> str | None:
        del chip
        return refusal(graph, op, constants)

    def can_fuse_epilogue(self, graph: Graph, layer: tuple[Op, ...], op: Op, operand: str) -> str | None:
        return fuses(graph, layer, op, operand)

    def whole_axes(self, graph: Graph, layer: Layer) -> tuple[int, ...]:
        del graph, layer
        return ()

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
        """Tiles are lowered by `lower_moving` alone. Raises NotImplementedError."""
        raise NotImplementedError("tiles of this target move their data themselves")

    def copy(self, copies: tuple[MemoryCopy, ...], source: str, chip: Chip) -> tuple[Instr, ...]:
        """Nothing is copied between layers: tiles read values where they lie and leave their results there. Raises
        NotImplementedError."""
        raise NotImplementedError("tiles of this target move their data themselves")

    def look_up(
        self, graph: Graph, op: Op, places: Mapping[str, int], runs: tuple[RowRun, ...], source: str, chip: Chip
    ) -> tuple[Instr, ...]:
        """Rows are looked up before all layers: there is no staging memory to bring them to. Raises
        NotImplementedError."""
        raise NotImplementedError("tiles of this target move their data themselves")

    def synchronise(self, source: str) -> Instr:
        return fence(source)


TARGET = GemminiTarget()
