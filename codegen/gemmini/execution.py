"""Run machine code on the simulator, whose compiled loops are imported only then.

ClusterFiles --run--> memory afterwards, counts
program.elf --simulate--> exit code        program.elf --trace--> timed stream, for the cycle model
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import click

from codegen.riscv.elf_format import ElfError
from codegen.run_files import contents, make_dump_folder, shell_code, write_dump
from codegen.source_map import SOURCE_MAP, SourceMapError, source_ranges
from codegen.target import ClusterFiles, Execution, SimulatorRun
from hw_models.chip import Chip
from hw_models.errors import TargetError
from isched.program.timed_ops import TimedStream


def run(files: ClusterFiles, loads: Mapping[int, bytes], dumps: tuple[tuple[int, int], ...], seed: int) -> Execution:
    """Run emitted files on the simulator. The core and its accelerator do one thing after the other, so that the seed
    decides nothing. Raises TargetError where the run fails."""
    from codegen.gemmini.simulator.machine import MachineError
    from codegen.gemmini.simulator.machine import simulate as simulated

    del seed
    try:
        result = simulated(files.files[files.executable], loads)
        memory = {(address, size): result.read(address, size) for address, size in dumps}
        operator = _operator(files.files[SOURCE_MAP], result.pc)
    except (ElfError, MachineError, SourceMapError) as error:
        raise TargetError(files.executable, needs="an artifact for this chip", has=str(error)) from error
    if result.fault or result.exit_code:
        reason = result.fault or f"the program ended with exit code {result.exit_code}"
        served = f"operator {operator}: " if operator else ""
        raise TargetError("simulation", needs="a run without faults", has=f"{served}{reason}")
    moved = {"DRAM->local": result.loaded_bytes, "local->DRAM": result.stored_bytes}
    return Execution(memory, result.counts, moved)


def _operator(source_map: bytes, pc: int) -> str:
    """The operator that code at an address belongs to; empty where it belongs to none. Raises SourceMapError."""
    return next((each.source for each in source_ranges(source_map) if each.start <= pc < each.end), "")


def trace(executable: bytes, cores: int, chip: Chip, cluster: int = 0) -> tuple[TimedStream, ...]:
    """What machine code means for the cycle model. Raises TargetError."""
    from codegen.gemmini.timing.trace import trace as traced

    return traced(executable, cores, chip, cluster)


def simulate(program: Path, run: SimulatorRun) -> int:
    """Run any executable on the simulator. Raises TargetError before anything is written."""
    from codegen.gemmini.simulator.machine import DEFAULT_MOST, MachineError, require_memory
    from codegen.gemmini.simulator.machine import simulate as simulated

    if run.gdb_port is not None:
        raise TargetError("--gdb", needs="a program for neuralscale-v1", has="one for gemmini-v3")
    if run.cores != 1 or run.cluster:
        raise TargetError("--cores, --cluster", needs="one core of cluster 0", has=f"{run.cores} of {run.cluster}")
    cores = (*(load.core for load in run.loads), *(dump.core for dump in run.dumps))
    if any(core is not None for core in cores):
        raise TargetError("--load, --dump", needs="addresses of the main memory", has="memory of a core")
    executable = contents(program, "program")
    loads = {load.address: contents(load.file, "load") for load in run.loads}
    with ExitStack() as opened:
        try:
            for dump in run.dumps:
                require_memory(dump.address, dump.size_bytes)
            if run.dumps:
                make_dump_folder(run.dump_path)
            trace = opened.enter_context(run.trace.open("w", encoding="utf-8")) if run.trace else None
            result = simulated(
                executable,
                loads,
                poison=run.poison,
                most=DEFAULT_MOST if run.max_instructions is None else run.max_instructions,
                trace=(lambda line: print(line, file=trace)) if trace else None,
                commits=run.trace_format == "commit",
            )
        except (ElfError, MachineError) as error:
            raise TargetError(str(program), needs="a program and files for this chip", has=str(error)) from error
        except OSError as error:
            raise TargetError(f"cannot write the trace {run.trace}: {error.strerror}") from error
    if result.fault:
        click.echo(result.fault, err=True)
        return result.exit_code
    for dump in run.dumps:
        write_dump(run.dump_path, dump, result.read(dump.address, dump.size_bytes))
    return shell_code(result.exit_code)
