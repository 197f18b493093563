"""`dsa-sched iss`: runs any program for the chip's instruction set, as another simulator of the chip would."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click
from click.core import ParameterSource

from dsa_sched.commands.files import read_bytes
from dsa_sched.commands.memory_ranges import DUMPS, LOADS, MemoryFile, MemoryRange

if TYPE_CHECKING:
    from codegen.target import Simulates


@click.command(short_help="Run a program on the instruction-set simulator.")
@click.argument("program", metavar="PROGRAM.elf", type=click.Path(path_type=Path))
@click.option(
    "--cores",
    type=click.IntRange(1, 8),
    help="Cores that start. Default: those that the program was compiled for, or 1.",
)
@click.option(
    "--cluster",
    type=click.IntRange(0, 3),
    help="Cluster that runs the program. Default: the one that it was compiled for, or 0.",
)
@click.option(
    "--load",
    "loads",
    type=LOADS,
    multiple=True,
    help="Put the bytes of a file into memory before the start. May be repeated, or hold a list separated by commas. "
    "CORE: names the core whose private memory is meant.",
)
@click.option(
    "--dump",
    "dumps",
    type=DUMPS,
    multiple=True,
    help="Write memory after the end to 0xADDRESS_0xBYTES.bin (with CORE: to CORE.0xADDRESS_0xBYTES.bin). May be "
    "repeated, or hold a list separated by commas.",
)
@click.option(
    "--dump-path", type=click.Path(path_type=Path), default=Path(), metavar="DIR", help="Folder of the dumps."
)
@click.option("--max-instructions", type=click.IntRange(1), help="End the run after N instructions.")
@click.option(
    "--trace", type=click.Path(path_type=Path), metavar="FILE", help="Write one line per instruction to FILE."
)
@click.option(
    "--trace-format",
    type=click.Choice(("text", "commit")),
    default="text",
    show_default=True,
    help="What a line of --trace has: the instruction, or all registers and memory that it has written.",
)
@click.option(
    "--gdb",
    "gdb_port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Wait for a debugger on this port of this machine (0: any free one), which drives the run.",
)
@click.option("--poison", is_flag=True, help="Memory starts as unwritten, and a read of unwritten bytes ends the run.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the order in which cores run.")
@click.pass_context
def iss(
    context: click.Context,
    program: Path,
    cores: int | None,
    cluster: int | None,
    loads: tuple[tuple[MemoryFile, ...], ...],
    dumps: tuple[tuple[MemoryRange, ...], ...],
    dump_path: Path,
    max_instructions: int | None,
    trace: Path | None,
    trace_format: Literal["text", "commit"],
    gdb_port: int | None,
    poison: bool,
    seed: int,
) -> None:
    """Run PROGRAM.elf on the instruction-set simulator and exit with the program's own code.

    \b
    dsa-sched iss program.elf --cores 4 --load 0x200000=in.bin --dump 0x400000:0x100
    dsa-sched iss mine.out/cluster0/program.elf --poison
    dsa-sched iss program.elf --trace commits.txt --trace-format commit
    dsa-sched iss program.elf --cores 4 --gdb 3333

    A fault of the run itself exits with 125 (limit, deadlock or end by a debugger) or 126 (poison, trap without
    handler) and writes no dumps. The program's own output and the reason of a fault go to standard error. Without
    --poison, memories start as zeros.

    Lines of the format commit are those of the commit log of Spike, RISC-V's public simulator, so that a tool which
    reads or compares such logs reads these: `core   0: 3 0x00100004 (0x0002a583) x11 0x00000029 mem 0x00200000`. What
    an accelerator's instruction does to memory is not in them.

    With --gdb, the run waits for GDB (`gdb-multiarch program.elf -ex 'target remote :3333'`) or any other debugger that
    speaks its remote protocol: breakpoints, steps, registers with the CSRs of the NPU, memory. A core is a thread, and
    `x` reads the memories of the current one. What has failed can be looked into before the run ends.
    """
    from codegen.target import SimulatorRun
    from dsa_sched.artifact.kinds import weights_beside
    from dsa_sched.io.atomic_write import require_file, require_folder

    if trace is not None:
        require_file(trace)
    elif context.get_parameter_source("trace_format") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--trace-format says what a line of --trace has; name its file.")
    if dumps:
        require_folder(dump_path, option="--dump-path")
    target, cores, cluster = _place(program, cores, cluster)
    loaded = tuple(item for given in loads for item in given)
    weights = weights_beside(program)
    if weights is not None and all(item.address != weights[0] for item in loaded):
        said = f"its weights are those of several sizes, and not loaded: give --load {weights[0]:#x}={weights[1]}"
        click.echo(f"dsa-sched: warning: {program}: {said}", err=True)
    run = SimulatorRun(
        cores,
        cluster,
        loaded,
        tuple(item for given in dumps for item in given),
        dump_path,
        max_instructions,
        trace,
        poison,
        seed,
        trace_format,
        gdb_port,
    )
    context.exit(target.simulate(program, run))


def _place(program: Path, cores: int | None, cluster: int | None) -> tuple[Simulates, int, int]:
    """Target, cores and cluster of the run: those asked for, else those that the program was compiled for, else core 0.

    Warns of a program that was compiled for other cores or another cluster. Raises TargetError for one of another
    instruction set.
    """
    from codegen.target import Simulates
    from dsa_sched.analysis.executable_target import executable_target

    data = read_bytes(program, "a program")
    target, made_for = executable_target(program, data, Simulates)  # type: ignore[type-abstract]  # asked, not made
    if made_for is None:
        return target, cores or 1, cluster or 0
    cores, cluster = cores or made_for.cores, made_for.cluster if cluster is None else cluster
    for warning in made_for.elsewhere(cores, cluster):
        click.echo(f"dsa-sched: warning: {program}: {warning}", err=True)
    return target, cores, cluster
