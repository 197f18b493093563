"""Passes on the `dsa` dialect, from a task graph to a schedule, and one on functions of any dialect.

    dsa.graph --annotate-costs--> with devices and costs --prune--> dsa.group --place--> dsa.schedule
    func.func of linalg, tosa, ... --place-function--> the same, each operation with its device and times

Each is an xDSL pass with a name and arguments, so other compilers can put them into their own pipelines.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from dsa_sched.placement.methods.coarsening import coarse, expanded
from dsa_sched.placement.methods.pruning import dominated, together
from dsa_sched.placement.methods.registry import Search, find_method, finished
from dsa_sched.placement.mlir.convert import (
    add_devices,
    add_schedule,
    annotate,
    group_tasks,
    groups_of,
    problem_of,
    task_graph_of,
)
from dsa_sched.placement.mlir.dialect import DeviceOp, LinkOp
from dsa_sched.placement.mlir.tensor_functions import annotate_function, function_of, task_graph_of_function
from dsa_sched.placement.model.pricing import priced
from dsa_sched.placement.model.scenario import read_scenario
from hw_models.errors import PlacementError


@dataclass(frozen=True)
class AnnotateCosts(ModulePass):
    """Add the devices and links of a scenario file, and write on every task its time there by their rooflines.

    Costs that are there already are replaced. Raises PlacementError.
    """

    name = "annotate-costs"
    scenario: str

    def apply(self, ctx: Context, op: ModuleOp) -> None:  # noqa: ARG002 - xDSL's signature
        problem = priced(task_graph_of(op), read_scenario(Path(self.scenario)))
        for old in [other for other in op.ops if isinstance(other, (DeviceOp, LinkOp))]:
            old.detach()  # type: ignore[no-untyped-call]  # of xDSL
        add_devices(op, problem.costs)
        annotate(op, problem.costs)


@dataclass(frozen=True)
class Prune(ModulePass):
    """Put tasks that are no better apart into groups: chains, and neighbours that have the same one device, by the
    rules of SPHINX (`pruning.together`).

    Groups that are there already are made anew. Raises PlacementError.
    """

    name = "prune"

    def apply(self, ctx: Context, op: ModuleOp) -> None:  # noqa: ARG002 - xDSL's signature
        problem = problem_of(op)
        known = find_method("heft")(problem, Search()).makespan_ns
        found, devices = together(problem, dominated(problem, known) or problem.accepted)
        reasons = [
            f"no better apart on {' or '.join(problem.machines[machine].name for machine in machines)}"
            for machines in devices
        ]
        group_tasks(op, found.members, reasons)


@dataclass(frozen=True)
class PlacePass(ModulePass):
    """Find a schedule by a method of `METHODS`; tasks of a group stay together. Raises PlacementError."""

    name = "place"
    method: str = "heft"
    seed: int = 0
    evaluations: int | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:  # noqa: ARG002 - xDSL's signature
        problem = problem_of(op)
        groups = coarse(problem, groups_of(op))
        outcome = find_method(self.method)(groups.problem, Search(self.seed, self.evaluations))
        if outcome.problem != groups.problem:
            raise PlacementError(f"method {self.method}", needs="the tasks as they are", has="others: it merges some")
        whole = finished(self.method, problem, expanded(groups, outcome.placement))
        add_schedule(op, whole.schedule, self.method)


@dataclass(frozen=True)
class PlaceFunction(ModulePass):
    """Place the operations of a function on tensors, of whatever dialects, on the devices of a scenario file by their
    rooflines, and write on each where and when it runs. `function` may be left out where there is one.

    Raises PlacementError.
    """

    name = "place-function"
    scenario: str
    method: str = "heft"
    function: str = ""
    seed: int = 0
    evaluations: int | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:  # noqa: ARG002 - xDSL's signature
        function = function_of(op, self.function)
        problem = priced(task_graph_of_function(function), read_scenario(Path(self.scenario)))
        outcome = find_method(self.method)(problem, Search(self.seed, self.evaluations))
        if outcome.problem != problem:
            raise PlacementError(f"method {self.method}", needs="the tasks as they are", has="others: it merges some")
        annotate_function(function, outcome.schedule, self.method)
