"""`dsa-sched timeline`: the work of every engine over time and the contents of the memories, as text and as plots."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dsa_sched.commands.options import (
    CHIP_OR_OWN,
    cache_option,
    columns_option,
    division_options,
    elf_options,
    gathered_options,
    planning_options,
    require_different,
    require_elf,
    roll_option,
    schedule_option,
    trace_option,
)
from dsa_sched.stages.gc_pause import uncollected

if TYPE_CHECKING:
    from dsa_sched.stages.compile_options import CompileOptions


@click.command(short_help="Show what every engine does when, and what the memories hold.")
@click.argument("path", metavar="DIR|MODEL|PROGRAM.elf", type=click.Path(path_type=Path))
@CHIP_OR_OWN
@elf_options
@click.option(
    "--by",
    type=click.Choice(["stage", "group", "operator", "time"]),
    multiple=True,
    help="Rows of the table. May be repeated, for several tables; colours, letters and bands stand for the rows of the "
    "first. Default: group, or stage if each layer is a group.",
)
@trace_option
@click.option(
    "--measured",
    type=click.Path(path_type=Path),
    metavar="TRACE.json|TRACE.csv",
    help="Put the events of a board into the trace of -o, beside the model's.",
)
@click.option(
    "--memory",
    "plots",
    type=click.Path(path_type=Path),
    metavar="FILE.png|FILE.svg",
    multiple=True,
    help="Draw the live bytes of each memory over time. May be repeated, for both formats.",
)
@click.option("--json", "json_path", type=click.Path(path_type=Path), metavar="FILE", help="Write the figures as JSON.")
@columns_option
@click.option("--each-core", is_flag=True, help="Rows of the chart per core, instead of the mean of the cores.")
@click.option(
    "--stretches",
    type=click.IntRange(1, 1000),
    help="Number of stretches of time: rows of `--by time` (default: 10), points of curves in JSON (default: 200).",
)
@click.option(
    "--operators", is_flag=True, help="Print one more table: the cycles of work for each operator, whenever they fall."
)
@planning_options
@division_options
@schedule_option
@roll_option
@cache_option
@gathered_options
@uncollected()
def timeline(
    path: Path,
    chip: str | None,
    cores: int | None,
    cluster: int | None,
    by: tuple[str, ...],
    trace: Path | None,
    measured: Path | None,
    plots: tuple[Path, ...],
    json_path: Path | None,
    columns: int,
    each_core: bool,
    stretches: int | None,
    operators: bool,
    options: CompileOptions,
    use_cache: bool,
) -> None:
    """Time the machine code of an artifact folder, of a model or of a program by the cycle model of its chip, and show
    its timeline. A model is compiled as `compile` does with the same options, or taken from the build cache.

    \b
    dsa-sched timeline mine.out
    dsa-sched timeline mine.out -o trace.json --memory occupancy.png
    dsa-sched timeline mine.out -o trace.json --measured board.csv
    dsa-sched timeline resnet50 --chip stcp920 --by stage --by time
    dsa-sched timeline program.elf --chip stcp920 --cores 4 --columns 120

    \b
    What is printed for each cluster
      a chart: a row per kind of engine, time from left to right, darker where it works more; above it, the letter of
        the part that most of the work is for
      a table: a row per part of the run, with the share of its time in which each kind of engine works, then the share
        in which they work at once, of the time in which any engine of a core works
      the memories: the largest number of live bytes, and its time

    \b
    Parts
      stage     operators whose outputs have the same number of pixels: from one down-sampling to the next
      group     the plan's groups of layers, one kernel per instance
      operator  by name
      time      equal stretches
    Each moment of a core belongs to the part that its matrix engine works for; if that is idle, to the part of its
    vector engine, then of its transfer engine. If all are idle, it belongs to the part that the other cores work for,
    then to that of the DMA, then to the next part.

    A byte is live from the time it is written to the last time it is read before it is written again. Times are cycles
    after the launch.

    The trace has a process per core with a track for the waiting of its scalar core and one per engine, a process for
    the DMA, and live bytes as counters. Slices are named by operator and lie inside slices of their part; arrows lead
    from the work that was waited for to the work that waited.

    With --measured, each process that a board has measured follows the model's, with tracks of the same names. The file
    is a trace, too, or a table with the columns process, track, name, start_us and duration_us: processes and tracks as
    the trace names them (`cluster 0 core 3`, `matrix`; `cluster 0 DMA`, `dma0.0`), times in microseconds after the
    launch.
    """
    from dsa_sched.analysis.artifact_timing import for_each_timeline
    from dsa_sched.analysis.parts import KINDS_OF_PARTS, parts_of, usual_parts
    from dsa_sched.commands.sources import timed_source
    from dsa_sched.io.atomic_write import require_file
    from dsa_sched.report.figure_file import require_format
    from dsa_sched.report.gantt import gantt_lines, operator_rows
    from dsa_sched.report.listing import output_console, print_listing
    from dsa_sched.report.memory import print_memories
    from dsa_sched.report.occupancy_plot import plot_paths, plot_title, write_plot
    from dsa_sched.report.progress import ProgressSteps
    from dsa_sched.report.timeline import write_timeline
    from dsa_sched.report.trace_events import write_trace
    from dsa_sched.report.usage import print_parts, print_stretches
    from isched.timing.occupancy import occupancies
    from isched.timing.utilisation import ENGINE_KINDS

    require_elf(path, cores, cluster)
    if measured is not None and trace is None:
        raise click.UsageError("--measured puts events into a trace; name its file with -o.")
    targets = (*plots, *(target for target in (trace, json_path) if target is not None))
    require_different(targets)
    for target in targets:
        require_file(target)
    for plot in plots:
        require_format(plot)
    with ProgressSteps() as steps:
        described, run = timed_source(path, chip, options, use_cache, steps.say, cores, cluster)
        steps.say("following what the memories hold")
        held = for_each_timeline(run.programs, lambda p: occupancies(p.timeline, p.streams, described))
    kinds = tuple(kind for kind in dict.fromkeys(by) if kind in KINDS_OF_PARTS) or (usual_parts(run),)
    parts = for_each_timeline(run.programs, lambda p: tuple(parts_of(run, p.timeline, kind) for kind in kinds))
    console = output_console()
    for warning in run.warnings:
        console.print(f"warning: {warning}", markup=False, soft_wrap=True)
    for program, shown, memories in zip(run.programs, parts, held, strict=True):
        times = program.timeline
        took = f"{times.cycles:,.0f} cycles, {times.launch_cycles:,.0f} of them the launch, which is not shown"
        console.print(f"{program.elf}, cluster {program.cluster}: {took}", markup=False, soft_wrap=True)
        for line in gantt_lines(times, columns, each_core, shown[0]):
            console.print(line, markup=False, soft_wrap=True)
        for kind in by or (() if run.artifact is None else kinds) or ("time",):
            console.print()
            if kind == "time":
                print_stretches(times, stretches or 10)
            else:
                print_parts(times, shown[kinds.index(kind)])
        if operators:
            console.print()
            columns_of = ("operator", "from cycle", "to", "instr.", *ENGINE_KINDS, "dma")
            print_listing(columns_of, operator_rows(times), right=range(1, len(columns_of)))
        console.print()
        print_memories(times, memories, shown[0])
    if trace is not None:
        count = write_trace(run, trace, tuple(shown[0] for shown in parts), held, measured)
        console.print(f"{count:,} events in {trace}", markup=False, soft_wrap=True)
    if json_path is not None:
        write_timeline(run, tuple(zip(parts, held, strict=True)), stretches or 200, json_path)
    for plot in plots:
        for program, shown, memories, file in zip(run.programs, parts, held, plot_paths(plot, run), strict=True):
            write_plot(program, shown[0], memories, plot_title(run, program), file)
            console.print(f"plot in {file}", markup=False, soft_wrap=True)
