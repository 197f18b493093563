"""`dsa-sched place`: which device runs which part of a network, and when."""

from __future__ import annotations

import re
from collections import Counter
from math import isfinite
from pathlib import Path
from typing import Any

import click

from dsa_sched.commands.options import Binding, Shape, columns_option, require_different, shape_options, trace_option

Option = tuple[str, float]


class MethodOption(click.ParamType[Option]):
    """`--option r=3`: a setting of a method, a number with a name."""

    name = "NAME=NUMBER"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Option:
        found = re.fullmatch(r"([a-z_]+)=(-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)", str(value))
        if found is None:
            self.fail(f"{value!r} is not NAME=NUMBER, for example r=3", param, ctx)
        return found[1], float(found[2])


class Seconds(click.FloatRange):
    """A finite time: a range refuses no `nan`, because all comparisons with it are false."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if not isfinite(found):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return found


@click.command(short_help="Place a network on several devices.")
@click.argument("model", metavar="MODEL", required=False)
@click.option(
    "--scenario",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The devices and the links between them (samples/scenarios/ has some to start from).",
)
@click.option(
    "--method",
    "methods",
    multiple=True,
    metavar="NAME",
    help="The method that decides; --methods lists them.  [default: sphinx]",
)
@click.option("--compare", is_flag=True, help="Compare several methods: those given by --method, or all.")
@click.option("--methods", "list_methods", is_flag=True, help="List the methods and exit.")
@shape_options
@click.option(
    "--estimate",
    is_flag=True,
    help="Price tasks on chips by rooflines too, which takes seconds, instead of compiling them.",
)
@click.option(
    "--measure",
    is_flag=True,
    help="Compile every task for every device and time it there, instead of using the rooflines in FILE.",
)
@click.option(
    "--run",
    "execute",
    is_flag=True,
    help="Run the best schedule and compare it with the prediction; with --emit, the table goes to standard error.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of random searches.")
@click.option(
    "--evaluations",
    type=click.IntRange(1),
    help="Largest number of schedules that a search tries; it tries those that it starts from in any case.",
)
@click.option("--seconds", type=Seconds(0.0, min_open=True), help="Longest time of a search, without pricing.")
@click.option("--option", "options", type=MethodOption(), multiple=True, help="A setting of the method, such as r=3.")
@click.option(
    "--emit",
    type=click.Choice(["schedule", "stages", "tasks", "mlir", "mlir-generic"]),
    help="Print the best schedule, its stages, its task graph or a module of the dsa dialect instead of tables.",
)
@trace_option
@click.option("--json", "json_path", type=click.Path(path_type=Path), metavar="FILE", help="Write the table as JSON.")
@columns_option
def place(
    model: str | None,
    scenario: Path | None,
    methods: tuple[str, ...],
    compare: bool,
    list_methods: bool,
    batch: int | None,
    shapes: tuple[Shape, ...],
    bindings: tuple[Binding, ...],
    estimate: bool,
    measure: bool,
    execute: bool,
    seed: int,
    evaluations: int | None,
    seconds: float | None,
    options: tuple[Option, ...],
    emit: str | None,
    trace: Path | None,
    json_path: Path | None,
    columns: int,
) -> None:
    """Decide which device of a scenario runs which layer of MODEL, and when.

    \b
    dsa-sched place squeezenet --scenario samples/scenarios/cpu_stcp920.yaml
    dsa-sched place mine.onnx --scenario mine.yaml --compare --json table.json
    dsa-sched place mine.onnx --scenario samples/scenarios/two_cpus.yaml --method duet --measure --run
    dsa-sched place mine.onnx --scenario mine.yaml --method heft --emit mlir

    \b
    What is printed
      a row per method: its number of tasks, makespan, distance from the proven bound, and cost of the search
      where prices come from, and whether the best schedule is optimal for its tasks at these prices
      what each device does in the best schedule, and its Gantt chart
      with --run, the times of the run, device by device, and how far its outputs are from onnxruntime's

    A layer, a large part and the whole network are all tried as tasks. A task on a chip takes what the cycle model says
    of the program that `dsa-sched compile` makes of it, and one launch; these times are kept for the next call. Other
    devices take what the rooflines in FILE say. The model may have any operator of standard ONNX that some device
    accepts. docs/placement.md explains methods, scenario files and prices.
    """
    from dsa_sched.devices.measuring import PriceMode
    from dsa_sched.io.atomic_write import require_file
    from dsa_sched.placement.methods.registry import METHODS, Search, described
    from dsa_sched.placing.place import PlacementJob, place_model
    from dsa_sched.report.listing import print_listing
    from dsa_sched.report.placement import print_placed, write_placed, write_schedule_trace
    from dsa_sched.report.progress import ProgressSteps

    if list_methods:
        print_listing(("method", "what it does"), ((name, described(name)) for name in METHODS))
        return
    if model is None or scenario is None:
        raise click.UsageError("A MODEL and a --scenario are needed.")
    if len(methods) > 1 and not compare:
        raise click.UsageError("Several methods need --compare; without it, give one --method.")
    if repeated := [name for name, count in Counter(name for name, _ in options).items() if count > 1]:
        raise click.UsageError(f"Option {repeated[0]} is given twice.")
    targets = [path for path in (trace, json_path) if path is not None]
    require_different(targets)
    for path in targets:
        require_file(path)
    if estimate and measure:
        raise click.UsageError("choose --estimate or --measure")
    names = methods or (tuple(METHODS) if compare else ("sphinx",))
    search = Search(seed, evaluations, seconds, dict(options))
    prices: PriceMode = "measured" if measure else "estimated" if estimate else "compiled"
    job = PlacementJob(model, scenario, names, search, batch, shapes, prices, execute, bindings)
    with ProgressSteps() as steps:
        placed = place_model(job, steps.say)
    print_placed(placed, emit, columns)
    if trace is not None:
        write_schedule_trace(placed.best.schedule, placed.best.problem, trace)
    if json_path is not None:
        write_placed(placed, json_path)
