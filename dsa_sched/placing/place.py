"""Places a model on the devices of a scenario: the function behind `dsa-sched place`.

Job(model, scenario, methods) --priced--> Problem, and coarser ones --each method--> outcomes, with what nothing beats
                                                          best outcome --run--> its real times
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

from dsa_sched.devices.measuring import PriceMode, Profiler
from dsa_sched.frontend.load import load_source
from dsa_sched.io.cost_cache import CostCache
from dsa_sched.placement.methods.large_parts import coarser_problems, ends_and_work, place_all_sizes
from dsa_sched.placement.methods.registry import Method, Outcome, Search, find_method, verify_options
from dsa_sched.placement.model.conv_merging import merging_of
from dsa_sched.placement.model.from_onnx import TaskModel, task_model_of
from dsa_sched.placement.model.problem import Problem
from dsa_sched.placement.model.scenario import ChipDevice, Scenario, read_scenario
from dsa_sched.placement.model.task_graph import grouped
from hw_models.errors import PlacementError

if TYPE_CHECKING:
    from dsa_sched.placing.check_run import Executed

Say = Callable[[str], None]

MOST_COMPILED = 100
"""Largest number of different layers that are compiled one by one; of more, several in a row are one task."""

Timed = tuple[Outcome, float]
"""An outcome, and the seconds that its search took."""


@dataclass(frozen=True)
class PlacementJob:
    """Inputs of a placement: what to place, where and how. `shapes` and `batch` fix inputs that the model leaves open,
    `bindings` make inputs constants. With `run`, the best schedule is run on the devices.
    """

    model: str
    scenario: Path
    methods: tuple[str, ...]
    search: Search
    batch: int | None = None
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()
    prices: PriceMode = "compiled"
    run: bool = False
    bindings: tuple[tuple[str, tuple[int | float, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class TaskRefusal:
    """A task that a device does not accept, and the reason; also of large parts that were tried as one task."""

    device: str
    task: str
    reason: str


@dataclass(frozen=True)
class PlacementResult:
    """Results of the methods, in the requested order, reasons why others (`refused`) found nothing, and refusals of
    devices. `problem` has the smallest tasks that are considered, for which no schedule takes less than `bound_ns`; an
    outcome may have larger ones, and the bound of these. A task has up to `task_layers` layers of the network.
    """

    problem: Problem
    found: tuple[Timed, ...]
    refused: tuple[tuple[str, str], ...]
    bound_ns: float
    task_layers: int = 1
    by_roofline: tuple[str, ...] = ()
    """Devices that are priced by rooflines where others are priced by what is compiled for them."""

    executed: Executed | None = None
    refusals: tuple[TaskRefusal, ...] = ()

    @property
    def best(self) -> Outcome:
        """The shortest schedule, the first of several."""
        return min((outcome for outcome, _ in self.found), key=lambda outcome: outcome.makespan_ns)


def place_model(job: PlacementJob, say: Say = lambda _: None) -> PlacementResult:
    """Read, price, place and run. Raises ModelError and PlacementError."""
    methods = {name: find_method(name) for name in job.methods}  # unknown ones are refused before any work
    verify_options(job.methods, job.search.options)
    scenario = read_scenario(job.scenario)
    say("reading the model")
    tasks = task_model_of(load_source(job.model, dict(job.shapes), job.batch, dict(job.bindings)))
    task_layers = _layers_per_task(tasks, scenario) if job.prices == "compiled" else 1
    opened = Profiler.of(_in_rows(tasks, task_layers), scenario, job.prices, run=job.run)
    profiler = replace(opened, cache=CostCache.of_user("costs"), progress=say)
    placed = place(_problem(profiler), methods, job.search, say)
    if job.prices == "measured":
        placed = replace(placed, found=tuple((profiler.confirmed(outcome), s) for outcome, s in placed.found))
    refusals = (TaskRefusal(device, task, reason) for (task, device), reason in profiler.refusals.items())
    placed = replace(placed, refusals=tuple(refusals), task_layers=task_layers, by_roofline=profiler.optimistic_devices)
    if not job.run:
        return placed
    from dsa_sched.placing.check_run import execute

    say(f"running what {placed.best.method} placed")
    return replace(placed, executed=execute(profiler, placed.best))


def _layers_per_task(tasks: TaskModel, scenario: Scenario) -> int:
    """Number of layers in a row that are compiled as one task, so that a large network is priced in bounded time."""
    if not any(isinstance(device, ChipDevice) for device in scenario.devices):
        return 1
    layers = [task for task in tasks.graph.tasks if not task.is_end]
    different = len({tasks.part(task).structure for task in layers})
    return 1 if different <= MOST_COMPILED else ceil(len(layers) / MOST_COMPILED)


def _in_rows(tasks: TaskModel, size: int) -> TaskModel:
    """The model with this many layers in a row as one task."""
    if size == 1:
        return tasks
    ends, work = ends_and_work(tasks.graph)
    rows = [work[first : first + size] for first in range(0, len(work), size)]
    return replace(tasks, graph=grouped(tasks.graph, [*ends, *rows]))


def _problem(profiler: Profiler) -> Problem:
    """The problem of the network's layers, with those that could be merged on devices that rooflines price."""
    problem = profiler.problem()
    if not any(profiler.rooflines):
        return problem
    return replace(problem, merging=merging_of(profiler.tasks, profiler.rooflines, problem))


def place(
    problem: Problem, methods: Mapping[str, Method], search: Search, say: Say = lambda _: None
) -> PlacementResult:
    """Have each method place a problem, and its large parts as single tasks. What one of several methods refuses is
    kept; raises PlacementError when all do.
    """
    found: list[Timed] = []
    refused: list[tuple[str, str]] = []
    bound_ns = 0.0
    coarser = coarser_problems(problem)
    for name, method in methods.items():
        say(name)
        begin = time.perf_counter()
        try:
            outcome, smallest_bound_ns = place_all_sizes(method, problem, coarser, search)
        except PlacementError as error:
            if len(methods) == 1:
                raise
            refused.append((name, str(error)))
            continue
        found.append((outcome, time.perf_counter() - begin))
        bound_ns = max(bound_ns, smallest_bound_ns)
    if not found:
        raise PlacementError(", ".join(methods), needs="a method that can place these tasks", has=refused[0][1])
    return PlacementResult(problem, _with_shared_bounds(found), tuple(refused), bound_ns)


def _with_shared_bounds(found: Sequence[Timed]) -> tuple[Timed, ...]:
    """The outcomes, each with the highest bound that any method proved for its tasks."""
    return tuple(
        (replace(outcome, bound_ns=max(o.bound_ns for o, _ in found if o.problem == outcome.problem)), seconds)
        for outcome, seconds in found
    )
