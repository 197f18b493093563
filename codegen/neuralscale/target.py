"""The NeuralScale v1 target: kernels, emission and the simulator behind the driver's protocol."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from codegen.judgement import EXACT, Array, Judgement
from codegen.neuralscale.asm.assembly_text import render
from codegen.neuralscale.asm.elf import read_elf
from codegen.neuralscale.asm.elf_format import ElfError
from codegen.neuralscale.asm.elf_note import note_bytes, read_note
from codegen.neuralscale.asm.elf_writer import elf_bytes
from codegen.neuralscale.emit.emit import Image, SourceRange, emit_image
from codegen.neuralscale.emit.limits import unsuited
from codegen.neuralscale.emit.memory_map import DATA_BASE, address_of
from codegen.neuralscale.emulation.arithmetic import bits_of
from codegen.neuralscale.emulation.layer_reference import Bits, Points, emulate
from codegen.neuralscale.emulation.words_reference import emulate_prepared
from codegen.neuralscale.kernels.dispatch import NeuralScaleKernels
from codegen.neuralscale.kernels.issue_costs import issue_costs
from codegen.neuralscale.rolling.rolled import shared
from codegen.neuralscale.simulator.options import SourceRange as Named
from codegen.target import ClusterFiles, Execution, MadeFor, SimulatorRun
from hw_models.chip import Chip
from hw_models.errors import TargetError
from isched.program.program import Program
from isched.program.timed_ops import CoreIssue, TimedStream
from partitioner.ir.graph import Constants, Graph, Op
from partitioner.ir.layers import Layer

__all__ = ["TARGET", "NeuralScaleTarget"]

EXECUTABLE = "program.elf"
ASSEMBLY = "program.s"
SOURCE_MAP = "source_map.json"


class SourceMapError(ValueError):
    """A source map that cannot be read."""


@dataclass(frozen=True, slots=True)
class NeuralScaleTarget(NeuralScaleKernels):
    """Planning and lowering are inherited; this adds machine code and execution."""

    data_base_bytes: int = DATA_BASE
    judgement: Judgement = EXACT

    def unsuited(self, chip: Chip) -> tuple[str, ...]:
        return unsuited(chip)

    def address(self, memory: str, offset_bytes: int) -> int:
        return address_of(memory, offset_bytes)

    def emit(self, program: Program, graph: Graph, constants: Constants, chip: Chip | None = None) -> ClusterFiles:
        """Without a chip, as for an experiment on a program, the executable does not say what it was made for."""
        return _files(program, emit_image(program, graph, constants), chip)

    def emit_rolled(
        self, program: Program, graph: Graph, constants: Constants, chip: Chip | None = None
    ) -> ClusterFiles:
        return _files(program, emit_image(program, graph, constants, shared), chip)

    def made_for(self, executable: bytes) -> MadeFor | None:
        """Raises TargetError for bytes that are no ELF file of this instruction set."""
        try:
            return read_note(read_elf(executable).note)
        except ElfError as error:
            raise TargetError("program", needs="a static executable for this chip", has=str(error)) from error

    def disassemble(self, executable: bytes) -> Iterator[str]:
        """Raises TargetError for bytes that are no ELF file of this instruction set."""
        from codegen.neuralscale.asm.disassembler import disassemble_elf  # not needed to compile

        try:
            return map(str, disassemble_elf(read_elf(executable)))
        except ElfError as error:
            raise TargetError("program", needs="a static executable for this chip", has=str(error)) from error

    def simulate(self, program: Path, run: SimulatorRun) -> int:
        """Raises TargetError where the run fails."""
        from codegen.neuralscale.simulator.iss import IssError, run_iss  # the simulator's compiled loops

        try:
            return run_iss(
                program,
                run.cores,
                run.loads,
                run.dumps,
                run.dump_path,
                run.max_instructions,
                run.trace,
                run.poison,
                run.seed,
                cluster=run.cluster,
            )
        except IssError as error:
            raise TargetError(str(error)) from None

    def issue_costs(self, program: Program) -> tuple[CoreIssue, ...]:
        return issue_costs(program)

    def trace(self, executable: bytes, cores: int, chip: Chip, cluster: int = 0) -> tuple[TimedStream, ...]:
        from codegen.neuralscale.trace.trace import trace_elf  # the simulator's compiled loops

        return trace_elf(executable, cores, chip, cluster)

    def trace_again(self, executable: bytes, cores: int, chip: Chip, cluster: int = 0) -> tuple[TimedStream, ...]:
        from codegen.neuralscale.trace.trace import trace_elf  # the simulator's compiled loops

        return trace_elf(executable, cores, chip, cluster, warm=True)

    def emulate(
        self,
        graph: Graph,
        constants: Constants,
        layer: Layer,
        points: Points,
        read: Callable[[str], Array],
        chip: Chip,
    ) -> Array:
        def bits(name: str) -> Bits:
            return bits_of(read(name))

        return emulate(graph, constants, layer, points, bits, chip).view(graph.by_name[layer.output].dtype)

    def emulate_prepared(self, graph: Graph, op: Op, read: Callable[[str], Array]) -> Array:
        return emulate_prepared(graph, op, read)

    def run(
        self, files: ClusterFiles, loads: Mapping[int, bytes], dumps: tuple[tuple[int, int], ...], seed: int
    ) -> Execution:
        # Compiled loops are imported only to run.
        """Raises TargetError where the run fails."""
        from codegen.neuralscale.simulator.machine import simulate
        from codegen.neuralscale.simulator.memory.faults import SimulationError
        from codegen.neuralscale.simulator.options import Load, SimulationOptions

        try:
            options = SimulationOptions(
                cores=files.cores,
                cluster=files.cluster,
                loads=tuple(Load(address, data) for address, data in loads.items()),
                poison=True,
                seed=seed,
                source_map=_source_ranges(files.files[SOURCE_MAP]),
            )
            result = simulate(files.files[files.executable], options)
            memory = {(address, size): result.read(address, size) for address, size in dumps}
        except (ElfError, SimulationError, SourceMapError) as error:
            raise TargetError(files.executable, needs="an artifact for this chip", has=str(error)) from error
        if result.fault is not None or result.exit_code != 0:
            reason = result.fault.message if result.fault else f"the program ended with exit code {result.exit_code}"
            raise TargetError("simulation", needs="a run without faults", has=reason)
        moved = {f"{source}->{destination}": n for (source, destination), n in result.counts.moved_bytes.items()}
        return Execution(memory, dict(result.counts.by_engine), moved)


def _files(program: Program, image: Image, chip: Chip | None) -> ClusterFiles:
    cores = len(program.streams)
    made_for = chip and MadeFor(chip.isa, chip.name, chip.hash, cores, program.cluster)
    note = note_bytes(made_for) if made_for else b""
    executable = elf_bytes(image.entry, image.segments, image.symbols, note)
    files = {
        EXECUTABLE: executable,
        ASSEMBLY: render(image.items).encode(),
        SOURCE_MAP: _source_map_text(image.source_map).encode(),
    }
    return ClusterFiles(cores, EXECUTABLE, files, program.cluster)


def _source_map_text(ranges: tuple[SourceRange, ...]) -> str:
    """One range a line: start, end, core (-1 for all), operator (empty for start-up and end)."""
    lines = [json.dumps([r.start, r.end, r.core, r.source]) for r in ranges]
    return '{"fields": ["start", "end", "core", "operator"],\n "ranges": [\n  ' + ",\n  ".join(lines) + "\n]}\n"


def _source_ranges(text: bytes) -> tuple[Named, ...]:
    """The ranges of a source map that serve an operator. Raises SourceMapError."""
    try:
        ranges = json.loads(text)["ranges"]
        return tuple(Named(int(start), int(end), str(source)) for start, end, _, source in ranges if source)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SourceMapError(f"{SOURCE_MAP} is damaged: {error!r}") from error


TARGET = NeuralScaleTarget()
