"""Run machine code on the simulator, whose compiled loops are imported only then.

ClusterFiles --run--> memory afterwards, counts        program.elf --simulate--> exit code
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import click

from codegen.gemmini.emit.executable import SOURCE_MAP
from codegen.riscv.elf_format import ElfError
from codegen.target import ClusterFiles, Execution, SimulatorRun
from hw_models.errors import TargetError


def run(files: ClusterFiles, loads: Mapping[int, bytes], dumps: tuple[tuple[int, int], ...], seed: int) -> Execution:
    """Run emitted files on the simulator. The core and its accelerator do one thing after the other, so that the seed
    decides nothing. Raises TargetError where the run fails."""
    from codegen.gemmini.simulator.machine import MachineError
    from codegen.gemmini.simulator.machine import simulate as simulated

    del seed
    try:
        result = simulated(files.files[files.executable], loads)
        memory = {(address, size): result.read(address, size) for address, size in dumps}
    except (ElfError, MachineError) as error:
        raise TargetError(files.executable, needs="an artifact for this chip", has=str(error)) from error
    if result.fault or result.exit_code:
        reason = result.fault or f"the program ended with exit code {result.exit_code}"
        operator = _operator(files.files[SOURCE_MAP], result.pc)
        served = f"operator {operator}: " if operator else ""
        raise TargetError("simulation", needs="a run without faults", has=f"{served}{reason}")
    moved = {"DRAM->local": result.loaded_bytes, "local->DRAM": result.stored_bytes}
    return Execution(memory, result.counts, moved)


def _operator(source_map: bytes, pc: int) -> str:
    """The operator that code at an address belongs to; empty where it belongs to none."""
    ranges = json.loads(source_map)["ranges"]
    return next((str(source) for start, end, _, source in ranges if start <= pc < end), "")


def simulate(program: Path, run: SimulatorRun) -> int:
    """Run any executable on the simulator. Raises TargetError before anything is written."""
    from codegen.gemmini.simulator.machine import DEFAULT_MOST, MachineError
    from codegen.gemmini.simulator.machine import simulate as simulated

    if run.cores != 1 or run.cluster:
        raise TargetError("--cores, --cluster", needs="one core of cluster 0", has=f"{run.cores} of {run.cluster}")
    with ExitStack() as opened:
        trace = opened.enter_context(run.trace.open("w", encoding="utf-8")) if run.trace else None
        try:
            result = simulated(
                program.read_bytes(),
                {load.address: load.file.read_bytes() for load in run.loads},
                poison=run.poison,
                most=run.max_instructions or DEFAULT_MOST,
                trace=(lambda line: print(line, file=trace)) if trace else None,
            )
            dumps = [(dump, result.read(dump.address, dump.size_bytes)) for dump in run.dumps]
        except (ElfError, MachineError, OSError) as error:
            raise TargetError(str(program), needs="a program and files for this chip", has=str(error)) from error
    if result.fault:
        click.echo(result.fault, err=True)
        return result.exit_code
    for dump, data in dumps:
        (run.dump_path / f"{dump.address:#x}_{dump.size_bytes:#x}.bin").write_bytes(data)
    return result.exit_code
