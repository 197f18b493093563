"""The stages for a target whose kernels are whole groups of layers, after the frontend.

    model --plan_kernels--> PlannedKernels --place--> Placed

Each result is verified as it is made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from codegen.target import GroupTarget, TensorPlaces
from dsa_sched.frontend import Model
from dsa_sched.stages.compilation import CompileOptions, PlacedKernels
from hw_models.chip import Chip
from isched.hazards.verify_places import verify_places
from isched.lowering.main_memory_allocation import place_group_tensors
from partitioner.context.plan_context import GraphContext
from partitioner.ir.plan import Plan
from partitioner.planners.levels import kernel_planner_of
from partitioner.planners.registry import make_kernel_plan


@dataclass(frozen=True, slots=True)
class PlannedKernels:
    """A model with its plan, and the context in which the plan was made: the state before placing."""

    model: Model
    context: GraphContext[GroupTarget]
    plan: Plan


def plan_kernels(model: Model, chip: Chip, target: GroupTarget, options: CompileOptions) -> PlannedKernels:
    """Graph -> Plan of kernels that are whole groups, verified. Raises ModelError, PlanError or DoesNotFit."""
    ctx = GraphContext(model.graph, model.constants, chip, target)
    planner = kernel_planner_of(target.name, options.planner)
    return PlannedKernels(model, ctx, make_kernel_plan(ctx, planner, options.force_groups, options.slices))


def place(planned: PlannedKernels, options: CompileOptions, progress: Callable[[str], None]) -> PlacedKernels:
    """Plan -> TensorPlaces, verified: the places of tensors between the kernels. Raises DoesNotFit where the main
    memory cannot hold them.
    """
    progress("placing tensors")
    plan, ctx, kept = planned.plan, planned.context, options.keep_values or options.isolated
    found = place_group_tensors(ctx, ctx.target.data_base_bytes, plan, kept, options.isolated)
    progress("verifying the places")
    verify_places(plan, ctx.graph, found)
    return PlacedKernels(ctx.target, TensorPlaces(found), progress=progress)
