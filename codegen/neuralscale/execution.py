"""Run machine code on the simulator, whose compiled loops are imported only then.

ClusterFiles --run--> memory afterwards, counts
program.elf --simulate--> exit code        program.elf --trace--> timed streams of the cores, for the cycle model
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from codegen.neuralscale.simulator.options import CodeRange, InitialBytes, SimulationOptions
from codegen.riscv.elf_format import ElfError
from codegen.source_map import SOURCE_MAP, SourceMapError, source_ranges
from codegen.target import ClusterFiles, Execution, SimulatorRun
from hw_models.chip import Chip
from hw_models.errors import TargetError
from isched.program.timed_ops import TimedStream


def run(files: ClusterFiles, loads: Mapping[int, bytes], dumps: tuple[tuple[int, int], ...], seed: int) -> Execution:
    """Run emitted files on the simulator. Raises TargetError where the run fails."""
    from codegen.neuralscale.simulator.machine import simulate
    from codegen.neuralscale.simulator.memory.faults import SimulationError

    try:
        ranges = source_ranges(files.files[SOURCE_MAP])
        options = SimulationOptions(
            cores=files.cores,
            cluster=files.cluster,
            loads=tuple(InitialBytes(address, data) for address, data in loads.items()),
            poison=True,
            seed=seed,
            source_map=tuple(CodeRange(r.start, r.end, r.source) for r in ranges if r.source),
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


def simulate(program: Path, run: SimulatorRun) -> int:
    """Run any executable on the simulator. Raises TargetError where the run fails."""
    from codegen.neuralscale.simulator.iss import run_iss

    return run_iss(program, run)


def trace(executable: bytes, cores: int, chip: Chip, cluster: int = 0) -> tuple[TimedStream, ...]:
    """Trace a run with empty instruction caches."""
    from codegen.neuralscale.trace.trace import trace_elf

    return trace_elf(executable, cores, chip, cluster)


def trace_again(executable: bytes, cores: int, chip: Chip, cluster: int = 0) -> tuple[TimedStream, ...]:
    """Trace a run that finds the caches as the previous run has left them."""
    from codegen.neuralscale.trace.trace import trace_elf

    return trace_elf(executable, cores, chip, cluster, warm=True)
