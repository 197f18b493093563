"""Places a model on the devices of a scenario: the function behind `dsa-sched place`.

Job(model, scenario, methods) --priced or measured--> Problem --each method--> outcomes, a bound that nothing beats
                                                          best outcome --run--> its real times
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dsa_sched.devices.opening import accepting
from dsa_sched.frontend.load import load_source
from dsa_sched.placement.methods.registry import Method, Outcome, Search, find_method, verify_options
from dsa_sched.placement.model.conv_merging import merging_of
from dsa_sched.placement.model.from_onnx import TaskModel, task_model_of
from dsa_sched.placement.model.pricing import priced
from dsa_sched.placement.model.problem import Problem
from dsa_sched.placement.model.scenario import Device, Scenario, read_scenario
from dsa_sched.placement.model.task_graph import Task
from dsa_sched.placement.schedule.bounds import lower_bound_ns
from hw_models.errors import PlacementError

if TYPE_CHECKING:
    from dsa_sched.place.check_run import Executed

Say = Callable[[str], None]

Timed = tuple[Outcome, float]
"""An outcome, and the seconds that its search took."""


@dataclass(frozen=True)
class PlacementJob:
    """Inputs of a placement: what to place, where and how. `shapes` and `batch` fix inputs that the model leaves open,
    `bindings` make inputs constants.

    With `measure`, prices are times taken on the devices, not rooflines; with `run`, the best schedule is run there.
    """

    model: str
    scenario: Path
    methods: tuple[str, ...]
    search: Search
    batch: int | None = None
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()
    measure: bool = False
    run: bool = False
    bindings: tuple[tuple[str, tuple[int | float, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class TaskRefusal:
    """A task that a device does not accept, and the reason; methods that compile groups also name what they tried."""

    device: str
    task: str
    reason: str


@dataclass(frozen=True)
class PlacementResult:
    """Results of the methods, in the requested order, reasons why others (`refused`) found nothing, and refusals of
    devices.

    `bound_ns` is the highest that is proven: no schedule of the tasks of `problem` is shorter. Methods that make other
    tasks of them (merged operators, sub-graphs that are compiled as one) may be.
    """

    problem: Problem
    found: tuple[Timed, ...]
    refused: tuple[tuple[str, str], ...]
    bound_ns: float
    executed: Executed | None = None
    refusals: tuple[TaskRefusal, ...] = ()

    @property
    def best(self) -> Outcome:
        """The shortest schedule, the first of several."""
        return min((outcome for outcome, _ in self.found), key=lambda outcome: outcome.makespan_ns)


def priced_file(model: str, scenario: Path) -> Problem:
    """The layers of a model file (or a network of the zoo) on the devices of a scenario file, by their rooflines.

    Raises ModelError and PlacementError.
    """
    return _priced(task_model_of(load_source(model)), read_scenario(scenario))[0]


def place_model(job: PlacementJob, say: Say = lambda _: None) -> PlacementResult:
    """Read, price, place and run. Raises ModelError and PlacementError."""
    methods = {name: find_method(name) for name in job.methods}  # unknown ones are refused before any work
    verify_options(job.methods, job.search.options)
    scenario = read_scenario(job.scenario)
    say("reading the model")
    tasks = task_model_of(load_source(job.model, dict(job.shapes), job.batch, dict(job.bindings)))
    if not (job.measure or job.run):  # devices need not be there
        problem, refusals = _priced(tasks, scenario)
        return replace(place(problem, methods, job.search, say), refusals=refusals)
    from dsa_sched.devices.measuring import Laboratory
    from dsa_sched.devices.opening import open_devices
    from dsa_sched.io.cost_cache import CostCache  # these load the compilers of all devices
    from dsa_sched.place.check_run import execute

    laboratory = Laboratory(tasks, scenario, open_devices(scenario), CostCache.of_user("costs"), say)
    if job.measure and "duet" in methods:  # the one that has sub-graphs compiled as they will run
        methods["duet"] = lambda _problem, search: laboratory.duet(search)
    problem, refusals = (laboratory.problem(), ()) if job.measure else _priced(tasks, scenario)
    placed = place(problem, methods, job.search, say)
    timed = (TaskRefusal(device, task, reason) for (task, device), reason in laboratory.refusals.items())
    placed = replace(placed, refusals=(*refusals, *timed))
    if not job.run:
        return placed
    say(f"running what {placed.best.method} placed")
    return replace(placed, executed=execute(laboratory, placed.best))


def _priced(tasks: TaskModel, scenario: Scenario) -> tuple[Problem, tuple[TaskRefusal, ...]]:
    """The problem by rooflines, with layers that can merge, and the refusals that devices give without being there."""
    refusals: list[TaskRefusal] = []
    accepts = accepting(tasks)

    def noted(task: Task, device: Device) -> str | None:
        reason = accepts(task, device)
        if reason is not None:
            refusals.append(TaskRefusal(device.name, task.name, reason))
        return reason

    problem = priced(tasks.graph, scenario, noted)
    return replace(problem, merging=merging_of(tasks, scenario, problem)), tuple(refusals)


def place(
    problem: Problem, methods: Mapping[str, Method], search: Search, say: Say = lambda _: None
) -> PlacementResult:
    """Have each method place a problem. What one of several refuses is kept; raises PlacementError when all do."""
    found: list[Timed] = []
    refused: list[tuple[str, str]] = []
    bound_ns = float(lower_bound_ns(problem))
    for name, method in methods.items():
        say(name)
        begin = time.perf_counter()
        try:
            outcome = method(problem, search)
        except PlacementError as error:
            if len(methods) == 1:
                raise
            refused.append((name, str(error)))
            continue
        found.append((outcome, time.perf_counter() - begin))
        if outcome.problem == problem:
            bound_ns = max(bound_ns, outcome.bound_ns)
    if not found:
        raise PlacementError(", ".join(methods), needs="a method that can place these tasks", has=refused[0][1])
    return PlacementResult(problem, tuple(found), tuple(refused), bound_ns)
