"""`dsa-sched timeline`: what every engine does when, as a trace for a viewer and as text."""

from __future__ import annotations

from pathlib import Path

import click

from dsa_sched.commands.options import CHIP

__all__ = ["timeline"]


@click.command(short_help="Show what every engine does when.")
@click.argument("path", metavar="PROGRAM.elf|DIR", type=click.Path(path_type=Path))
@CHIP
@click.option("--cores", type=click.IntRange(1), help="Cores that start; those of a cluster when not said. ELF only.")
@click.option("--cluster", type=click.IntRange(0), default=0, show_default=True, help="Cluster that runs it. ELF only.")
@click.option(
    "-o",
    "--output",
    "target",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write trace events (JSON) for ui.perfetto.dev or chrome://tracing.",
)
@click.option("--columns", type=click.IntRange(10, 1000), default=80, show_default=True, help="Width of the chart.")
@click.option("--parts", type=click.IntRange(1, 1000), default=10, show_default=True, help="Rows of the table.")
@click.option("--operators", is_flag=True, help="A table by operator too: when it is worked on, and by what.")
def timeline(
    path: Path,
    chip: str,
    cores: int | None,
    cluster: int,
    target: Path | None,
    columns: int,
    parts: int,
    operators: bool,
) -> None:
    """Run the machine code of a program, or of an artifact folder, under the clock of a chip and show its timeline.

    \b
    dsa-sched timeline mine.out --chip stcp920 -o trace.json
    dsa-sched timeline program.elf --chip stcp920 --cores 4 --columns 120

    \b
    What is printed for each cluster
      a chart: a row an engine of each core, time from left to right, darker where it works more
      a table: share of time at work in equal stretches of the run, by kind of engine
      with --operators, one more: cycles at work for each operator

    The trace has a process a core with a track for what its scalar core waits for and one for each engine, and one
    for the DMA; slices are named by operator, arrows lead from what was waited for.
    """
    from dsa_sched.clock import time_path
    from dsa_sched.report.gantt import KINDS, gantt_lines, operator_rows, share_rows
    from dsa_sched.report.json_form import require_folder
    from dsa_sched.report.listing import output_console, print_listing
    from dsa_sched.report.progress import Steps
    from dsa_sched.report.trace_events import write_trace

    if target is not None:
        require_folder(target)
    with Steps() as steps:
        steps.say("timing")
        run = time_path(path, chip, cores, cluster)
    console = output_console()
    for program in run.programs:
        times = program.timeline
        took = f"{times.cycles:,.0f} cycles, {times.launch_cycles:,.0f} of them the launch, which is not shown"
        console.print(f"{program.elf}, cluster {program.cluster}: {took}", markup=False, soft_wrap=True)
        for line in gantt_lines(times, columns):
            console.print(line, markup=False, soft_wrap=True)
        headings = ("from cycle", "to", *KINDS, "dma")
        print_listing(headings, share_rows(times, parts), right=range(len(headings)))
        if operators:
            columns_of = ("operator", "from cycle", "to", "instr.", *KINDS, "dma")
            print_listing(columns_of, operator_rows(times), right=range(1, len(columns_of)))
    if target is not None:
        count = write_trace(run, target)
        console.print(f"{count:,} events in {target}", markup=False, soft_wrap=True)
