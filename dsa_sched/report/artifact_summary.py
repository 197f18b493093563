"""The last lines of `compile`: the programs, their time, the bytes that they move, the floor and what binds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dsa_sched.analysis.kernel_explanation import kernel_seconds
from dsa_sched.artifact.format import Artifact, ProgramEntry
from dsa_sched.artifact.origin import FiguresEntry
from dsa_sched.report.timed_run import cause_text, time_text
from hw_models.errors import size_text


def summary_lines(artifact: Artifact, folder: Path) -> Iterator[str]:
    """A line per program, then the figures of the whole run where the cycle model has any."""
    made = artifact.manifest
    steps = len(artifact.plan.steps)
    for program, files in zip(made.programs, artifact.clusters, strict=True):
        size = size_text(len(files.files[files.executable]))
        yield (
            f"{made.model} for {made.chip.name}, {made.level}, {_batch(program)}: {steps} steps, "
            f"{_amount(artifact, program)}{size} in {folder / program.execution.file}"
        )
    if made.figures is not None:
        yield from _figures(artifact, made.figures)
    elif any(group.kernel for group in artifact.plan.groups):
        time, measured = kernel_seconds(artifact)
        how = "by rates that were measured" if measured else "at least, by the floors of its kernels"
        yield f"estimate for {_batch(made.programs[0])}: {time_text(time)} {how}; not timed"


def _batch(program: ProgramEntry) -> str:
    once = f"batch {program.batch_per_pass}"
    return once if program.passes == 1 else f"{program.batch} items in {program.passes} passes of {once}"


def _amount(artifact: Artifact, program: ProgramEntry) -> str:
    figures = artifact.manifest.figures
    if figures is not None:
        instructions = figures.instructions // len(artifact.manifest.programs)
        return f"{instructions} instructions on {program.cores} cores, "
    kernels = sum(bool(group.kernel) for group in artifact.plan.groups)
    return f"{kernels} kernels, " if kernels else ""


def _figures(artifact: Artifact, figures: FiguresEntry) -> Iterator[str]:
    seconds = figures.cycles / artifact.chip.clock_hz
    rate = f", {artifact.manifest.batch / seconds:,.1f} items/s" if seconds else ""
    yield f"time: {time_text(seconds)}{rate}: {figures.cycles:,.0f} cycles by the cycle model"
    read, written = size_text(figures.main_read_bytes), size_text(figures.main_written_bytes)
    yield f"main memory: {read} read, {written} written"
    binds = (
        f"{cause_text(figures.binds)} {figures.binds_share:.1%} of the critical path" if figures.binds else "nothing"
    )
    share = f"{figures.floor_cycles / figures.cycles:.1%} of the time, launch included" if figures.cycles else "-"
    yield f"floor: {figures.floor_cycles:,.0f} cycles for {figures.floor}, {share}; binds: {binds}"
