"""Live bytes of every memory over time, drawn: one panel per memory, the run's parts in the background, its size as a
line.

RunTime + parts + occupancies --write_plot--> PNG or SVG; equal input gives equal bytes
"""

from __future__ import annotations

from functools import partial
from itertools import groupby
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dsa_sched.analysis.artifact_timing import RunTime, TimedProgram
from dsa_sched.analysis.parts import OTHER, Parts
from dsa_sched.report.figure_file import write_figure
from dsa_sched.report.memory import MOMENTS, fullest
from hw_models.errors import size_text
from isched.timing.occupancy import Numbers, Occupancy
from isched.timing.utilisation import dominant_parts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PALETTE = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#ff9da7", "#9c755f", "#8a8a8a")
"""Colours of the parts, in this order."""

LINE, OTHERS, LIMIT = "#1f3b57", "#7fa3c7", "#c0392b"
WIDTH_INCHES, LEFT_INCHES, RIGHT_INCHES = 11.0, 0.75, 0.25
TOP_INCHES, STRIP_INCHES, PANEL_INCHES, GAP_INCHES, AXIS_INCHES = 0.42, 0.28, 1.5, 0.32, 0.5
LEGEND_ROW_INCHES, NAMES_A_ROW, MOST_NAMES = 0.19, 8, 40
POINTS = 1200
"""Number of stretches of the curves, about one per dot; more would only make files large."""

SHOWN_SIZE_SHARE = 0.1
"""Smallest share of a memory that the peak must reach for its size to be drawn; otherwise it is only written down."""

NARROWEST_NAME = 0.011
"""Smallest share of the width per letter that a part's band must have for its name to be written."""


def plot_paths(path: Path, run: RunTime) -> tuple[Path, ...]:
    """A file for each program; of several, with their clusters in the names."""
    if len(run.programs) == 1:
        return (path,)
    return tuple(path.with_stem(f"{path.stem}.cluster{program.cluster}") for program in run.programs)


def plot_title(run: RunTime, program: TimedProgram) -> str:
    """Title: what was run where; an artifact is called by its model."""
    name = run.name
    if run.artifact is not None:
        manifest = run.artifact.manifest
        entry = next(entry for entry in manifest.programs if entry.execution.file == program.elf)
        name = f"{manifest.model}, {manifest.level}, {entry.batch_per_pass} items"
    return f"Live bytes: {name}, on cluster {program.cluster} of the {run.chip}"


def write_plot(program: TimedProgram, parts: Parts, occupancies: tuple[Occupancy, ...], title: str, path: Path) -> None:
    """Draw one program's memories into a file, whole or not at all. Raises UserError."""
    write_figure(partial(_figure, program, parts, occupancies, title), path)


def _figure(program: TimedProgram, parts: Parts, occupancies: tuple[Occupancy, ...], title: str) -> Figure:
    """The figure; places are in inches from the top and explicit, because a solved layout differs from run to run."""
    from matplotlib.figure import Figure

    panels, bands = fullest(occupancies), _bands(program, parts)
    shown = {part for _, _, part in bands}
    named = [part for part in parts.letters if part in shown][:MOST_NAMES]
    legend = LEGEND_ROW_INCHES * ceil(len(named) / NAMES_A_ROW)
    height = TOP_INCHES + STRIP_INCHES + len(panels) * (GAP_INCHES + PANEL_INCHES) + AXIS_INCHES + legend
    figure = Figure(figsize=(WIDTH_INCHES, height))
    figure.text(0.5, 1 - 0.22 / height, title, ha="center", va="center", fontsize=11)

    def place(top: float, high: float) -> Axes:
        left, wide = LEFT_INCHES / WIDTH_INCHES, 1 - (LEFT_INCHES + RIGHT_INCHES) / WIDTH_INCHES
        axes = figure.add_axes((left, 1 - (top + high) / height, wide, high / height))
        axes.set_xlim(0, _time(program, program.timeline.cycles - program.timeline.launch_cycles))
        return axes

    _strip(place(TOP_INCHES, STRIP_INCHES), parts, bands)
    top = TOP_INCHES + STRIP_INCHES + GAP_INCHES
    for number, (most, cores) in enumerate(panels):
        axes = place(top, PANEL_INCHES)
        for start, end, part in bands:
            axes.axvspan(start, end, color=_colour(parts, part), alpha=0.10, linewidth=0)
        _panel(axes, program, most, cores)
        if number < len(panels) - 1:
            axes.tick_params(labelbottom=False)
        else:
            axes.set_xlabel(f"time after the launch ({_clock(program)[1]})")
        top += PANEL_INCHES + GAP_INCHES
    _legend(figure, parts, named)
    return figure


def _bands(program: TimedProgram, parts: Parts) -> list[tuple[float, float, str]]:
    """Neighbouring moments (start and end in the shown unit of time) in which most work is done for the same part."""
    timeline = program.timeline
    width = _time(program, timeline.cycles - timeline.launch_cycles) / MOMENTS
    bands, start = [], 0
    for part, run in groupby(dominant_parts(timeline, parts.of, MOMENTS, OTHER)):
        end = start + len(list(run))
        if part:
            bands.append((start * width, end * width, part))
        start = end
    return bands


def _colour(parts: Parts, part: str) -> str:
    return PALETTE[list(parts.letters).index(part) % len(PALETTE)]


def _strip(axes: Axes, parts: Parts, bands: list[tuple[float, float, str]]) -> None:
    """The parts by colour and letter."""
    whole = bands[-1][1] if bands else 1.0
    for start, end, part in bands:
        axes.axvspan(start, end, color=_colour(parts, part), linewidth=0)
        code = parts.letters[part]
        if end - start >= NARROWEST_NAME * len(code) * whole:
            axes.text((start + end) / 2, 0.5, code, ha="center", va="center", color="white", fontweight="bold")
    axes.set_ylim(0, 1)
    axes.set_yticks([])
    axes.set_ylabel(parts.by, rotation=0, ha="right", va="center")
    axes.tick_params(bottom=False, labelbottom=False)


def _panel(axes: Axes, program: TimedProgram, most: Occupancy, cores: list[Occupancy]) -> None:
    """One memory: the curve of the fullest core and, if there are several, the area between least and most of all."""
    cycles = program.timeline.cycles - program.timeline.launch_cycles
    sized = most.peak_bytes >= SHOWN_SIZE_SHARE * most.size_bytes
    unit, name = _unit(max(most.peak_bytes, most.size_bytes if sized else 0))
    borders = np.linspace(0.0, _time(program, cycles), POINTS + 1)
    nothing = np.zeros(POINTS, np.int64)

    def fill(low: Numbers, high: Numbers, colour: str, alpha: float) -> None:
        # Only where something changes, and at the end.
        kept = np.flatnonzero(np.diff(low, prepend=-1) | np.diff(high, prepend=-1))
        times, ends = np.append(borders[kept], borders[-1]), np.append(kept, len(low) - 1)
        lower, upper = low[ends] / unit, high[ends] / unit
        axes.fill_between(times, lower, upper, step="post", color=colour, alpha=alpha, linewidth=0)
        if low is not nothing:
            axes.step(times, upper, where="post", color=colour, alpha=alpha, linewidth=0.9)

    if len(cores) > 1:
        all_cores = [one.least_and_most(cycles, POINTS)[1] for one in cores]
        fill(np.minimum.reduce(all_cores), np.maximum.reduce(all_cores), OTHERS, 0.6)
    low, high = most.least_and_most(cycles, POINTS)
    fill(nothing, high, LINE, 0.18)
    fill(low, high, LINE, 1.0)
    peak = _time(program, most.peak_cycle)
    axes.plot([peak], [most.peak_bytes / unit], marker="v", color=LINE, markersize=5, clip_on=False)
    if sized:
        axes.axhline(most.size_bytes / unit, color=LIMIT, linewidth=1.0, linestyle="--")
    axes.set_ylim(0, 1.08 * max(most.peak_bytes, most.size_bytes if sized else 1) / unit)
    axes.set_ylabel(f"{most.memory} ({name})")
    axes.yaxis.set_label_coords(-0.045, 0.5)
    whose = f", core {most.core} (fullest; band: all {len(cores)})" if most.core >= 0 else ""
    clock = _clock(program)[1]
    held = f"{size_text(most.peak_bytes)} of {size_text(most.size_bytes)}"
    when = f"{peak:,.3f} ms" if clock == "ms" else f"{peak:,.1f} {clock}"
    axes.set_title(f"{most.memory}{whose}: at most {held}, at {when}", loc="left", fontsize=9, pad=3)
    axes.grid(axis="y", linewidth=0.4, alpha=0.5)


def _clock(program: TimedProgram) -> tuple[float, str]:
    """Units of time that suit the run: how many there are in a second, and their name."""
    cycles = program.timeline.cycles - program.timeline.launch_cycles
    return (1e3, "ms") if cycles / program.timeline.clock_hz >= 1e-3 else (1e6, "us")


def _time(program: TimedProgram, cycles: float) -> float:
    return cycles * _clock(program)[0] / program.timeline.clock_hz


def _unit(size_bytes: int) -> tuple[int, str]:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size_bytes >= unit:
            return unit, name
    return 1, "bytes"


def _legend(figure: Figure, parts: Parts, named: list[str]) -> None:
    """Letters and names of parts that have a band."""
    from matplotlib.patches import Patch

    handles = [Patch(color=_colour(parts, part), label=f"{parts.letters[part]}  {part}") for part in named]
    if handles:
        columns = min(NAMES_A_ROW, len(handles))
        figure.legend(handles=handles, loc="lower center", ncols=columns, fontsize=8, frameon=False)
