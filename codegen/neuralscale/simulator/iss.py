"""`dsa-sched iss`: run an ELF file with memory loaded from files and dumped to files, like any other simulator.

    program.elf, SimulatorRun --run_iss--> exit code; DIR/0xADDRESS_0xBYTES.bin for each dump

The exit code is the guest's; 125 = instruction limit, deadlock or end by a debugger, 126 = poison, race, trap without
handler or another fault of the program. Dumps are written only when the guest ended by itself, each file completely or
not at all.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from codegen.neuralscale.simulator.debugging import debugged
from codegen.neuralscale.simulator.machine import simulate
from codegen.neuralscale.simulator.memory.faults import SimulationError
from codegen.neuralscale.simulator.memory.memory import check_range
from codegen.neuralscale.simulator.options import (
    DEFAULT_MAX_INSTRUCTIONS,
    CodeRange,
    InitialBytes,
    SimulationOptions,
)
from codegen.riscv.elf_format import ElfError
from codegen.run_files import contents, dump_name, make_dump_folder, shell_code, write_dump
from codegen.target import MemoryDump, SimulatorRun
from hw_models.errors import TargetError


def run_iss(program: Path, run: SimulatorRun, source_map: tuple[CodeRange, ...] = ()) -> int:
    """Run the program; its output and the reason of a failure go to stderr.

    Returns the exit code for the shell. Raises TargetError before anything is written.
    """
    for dump in run.dumps:
        _check_dump(dump, run.cores)
    try:
        options = SimulationOptions(
            cores=run.cores,
            cluster=run.cluster,
            loads=tuple(InitialBytes(load.address, contents(load.file, "load"), load.core) for load in run.loads),
            max_instructions=DEFAULT_MAX_INSTRUCTIONS if run.max_instructions is None else run.max_instructions,
            poison=run.poison,
            seed=run.seed,
            trace=run.trace,
            trace_format=run.trace_format,
            source_map=source_map,
        )
        if run.dumps:
            make_dump_folder(run.dump_path)
        drive = None if run.gdb_port is None else partial(debugged, run.gdb_port, _announce)
        result = simulate(contents(program, "program"), options, drive)
    except ElfError as error:
        raise TargetError(f"{program}: {error}") from None
    except SimulationError as error:
        raise TargetError(str(error)) from None
    for line in result.console:
        print(line, file=sys.stderr)
    if result.fault is not None:
        print(f"{result.fault.kind}: {result.fault.message}", file=sys.stderr)
        return result.exit_code
    for dump in run.dumps:
        write_dump(run.dump_path, dump, result.read(dump.address, dump.size_bytes, dump.core))
    return shell_code(result.exit_code)


def _announce(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _check_dump(dump: MemoryDump, cores: int) -> None:
    if dump.core is not None and not 0 <= dump.core < cores:
        raise TargetError(f"dump {dump_name(dump)}: there is no core {dump.core}, the run has {cores}")
    try:
        check_range(dump.address, dump.size_bytes, f"dump {dump_name(dump)}")
    except SimulationError as error:
        raise TargetError(str(error)) from None
