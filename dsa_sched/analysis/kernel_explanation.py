"""A plan of kernels that are whole groups, with its reasons, as data: a row per kernel, and the decisions.

plan, context --its kernels by their texts--> KernelExplanation --report.kernel_explain--> text or JSON
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dsa_sched.artifact.format import Artifact
from dsa_sched.pipeline.rebuild import planned_again
from dsa_sched.stages.kernel_stages import PlannedKernels
from hw_models.errors import PlanError
from partitioner.context.plan_context import KernelContext
from partitioner.ir.decisions import Decision
from partitioner.ir.kernels import KernelFloor
from partitioner.ir.plan import Group, Plan
from partitioner.ir.slice_segments import slices_of
from partitioner.ir.steps import RunStep
from partitioner.planners.kernel_level import kernels_in_place


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """One group and its kernel: `operators` are the kinds of its operators in order, `grid` the blocks along each axis
    of its output (or as they are launched, where a block's part is no box), of one of the `slices` of the batch in
    which it runs, `resources` what a block occupies; launches, seconds and floors are those of all slices.
    `seconds` are those that kernels of its kind were measured to take where they were `measured`, else a lower bound:
    its floors and launches.
    """

    name: str
    layers: tuple[str, ...]
    operators: tuple[str, ...]
    kernel: str
    grid: tuple[int, ...]
    slices: int
    resources: tuple[tuple[str, int], ...]
    launches: int
    seconds: float
    measured: bool
    floors: tuple[KernelFloor, ...]
    bound_by: str


@dataclass(frozen=True, slots=True)
class KernelExplanation:
    """A plan for a reader, for the whole batch of one cluster; `seconds` sums up those of its kernels. `on_integers`
    are operators before and after them, which have no price."""

    model: str
    chip: str
    level: str
    batch_per_cluster: int
    operators: int
    on_integers: int
    groups: tuple[KernelFacts, ...]
    decisions: tuple[Decision, ...]

    @property
    def launches(self) -> int:
        return sum(group.launches for group in self.groups)

    @property
    def seconds(self) -> float:
        return sum(group.seconds for group in self.groups)

    @property
    def measured(self) -> bool:
        """Whether the seconds of all kernels come from measurements."""
        return all(group.measured for group in self.groups)

    def of(self, name: str) -> KernelExplanation:
        """The part about one group: its own name, or that of a layer in it. Raises PlanError naming the groups."""
        found = tuple(group for group in self.groups if name == group.name or name in group.layers)
        if not found:
            known = ", ".join(group.name for group in self.groups)
            raise PlanError("--group", needs=f"a group or layer of the plan ({known})", has=name)
        about = {found[0].name, *found[0].layers}
        decisions = tuple(decision for decision in self.decisions if decision.subject in about)
        return replace(self, groups=found, decisions=decisions)


def kernel_seconds(artifact: Artifact) -> tuple[float, bool]:
    """Time of one pass of the first program of an artifact whose kernels are whole groups, one after the other, and
    whether it comes from measured rates: else it is that of the floors. Raises TargetError for an artifact that does
    not tell its plan."""
    planned = planned_again(artifact)
    assert isinstance(planned, PlannedKernels)  # as the caller says
    found = explain_kernels(planned.plan, planned.context)
    return found.seconds, found.measured


def explain_kernels(plan: Plan, ctx: KernelContext) -> KernelExplanation:
    """Explain a plan that `make_kernel_plan` made."""
    graph = ctx.graph
    runs = {step.group: step for step in plan.steps if isinstance(step, RunStep)}

    kernels = kernels_in_place(plan, ctx)

    def facts(group: Group) -> KernelFacts:
        kernel = kernels[group.name]
        return KernelFacts(
            name=group.name,
            layers=tuple(layer.name for layer in group.layers),
            operators=tuple(graph.op_by_name[op].kind for layer in group.layers for op in layer.ops),
            kernel=kernel.text,
            grid=kernel.blocks or runs[group.name].binding.pieces,
            resources=kernel.resources,
            slices=slices_of(group),
            launches=kernel.launches,
            seconds=kernel.seconds,
            measured=kernel.measured is not None,
            floors=kernel.floors,
            bound_by=kernel.binding.name if kernel.binding else "",
        )

    return KernelExplanation(
        model=graph.name,
        chip=ctx.chip.name,
        level=plan.level,
        batch_per_cluster=plan.batch_per_cluster,
        operators=len(graph.ops),
        on_integers=len(graph.prepared) + len(graph.concluded),
        groups=tuple(facts(group) for group in plan.groups if group.kernel),
        decisions=plan.decisions,
    )
