"""An explanation of kernels that are whole groups, for a reader and as JSON: summary, a row per kernel, decisions.

Decisions about sets of layers (one kernel or several) are printed one by one: both ways with what binds them.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from dsa_sched.analysis.kernel_explanation import KernelExplanation, KernelFacts
from dsa_sched.io.atomic_write import write_whole
from dsa_sched.report.decisions import decision_lines
from dsa_sched.report.listing import output_console, print_listing
from partitioner.planners.kernel_level import is_merge

FORMAT = "dsa-sched-explain-kernels/1"
HEADINGS = ("kernel of group", "layers", "kernel", "grid", "occupies", "launches", "time", "bound by")


def print_kernels(found: KernelExplanation, full: bool = False, console: Console | None = None) -> None:
    """Print the explanation; with `full`, each other decision by itself too."""
    console = console or output_console()
    lines = [
        f"{found.model} on {found.chip}, {found.level}, batch {found.batch_per_cluster} per cluster",
        f"{found.operators} operators in {len(found.groups)} kernels, {found.launches} launches; one after the other "
        f"{found.seconds * 1e6:,.1f} us "
        + ("expected, by rates that were measured" if found.measured else "at least, by their floors"),
        *(
            (f"and {found.on_integers} before and after these for operators on integers, a launch or more each",)
            if found.on_integers
            else ()
        ),
        "",
    ]
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)
    print_listing(HEADINGS, map(_row, found.groups), (5, 6), console)
    console.print()
    merges = [decision for decision in found.decisions if is_merge(decision)]
    others = (decision for decision in found.decisions if not is_merge(decision))
    if merges:
        for line in ("one kernel or several", *(f"  {decision}" for decision in merges), ""):
            console.print(line, markup=False, soft_wrap=True)
    for line in ("decisions", *decision_lines(others, full)):
        console.print(line, markup=False, soft_wrap=True)


def _row(group: KernelFacts) -> tuple[str, ...]:
    layers = ", ".join(group.layers if len(group.layers) <= 4 else (*group.layers[:3], f"{len(group.layers) - 3} more"))
    occupies = ", ".join(f"{size:,} {name}" for name, size in group.resources)
    grid = "x".join(map(str, group.grid)) + (f" in {group.slices} slices" if group.slices > 1 else "")
    seconds = f"{'' if group.measured else 'at least '}{group.seconds * 1e6:,.1f} us"
    return group.name, layers, group.kernel, grid, occupies, str(group.launches), seconds, group.bound_by


def kernels_json(found: KernelExplanation) -> str:
    """The explanation as JSON text."""
    whole = {"format": FORMAT, **asdict(found), "launches": found.launches, "seconds": found.seconds}
    return json.dumps(whole, indent=1, allow_nan=False) + "\n"


def write_kernels(found: KernelExplanation, path: Path) -> None:
    """Write the JSON form, whole or not at all. Raises UserError."""
    text = kernels_json(found).encode()
    write_whole(path, lambda stream: stream.write(text))
