"""Execution of planners: for each level of `levels.py` the function that makes its plan, and the check of the result.

context, planner --unsupported operators, room of the main memory--> Plan --verify--> Plan
"""

from __future__ import annotations

from hw_models.chip import Chip
from hw_models.errors import ModelError
from partitioner.context.plan_context import GraphContext, KernelContext, PlanContext
from partitioner.ir.graph import Constants, Graph, Op
from partitioner.ir.kernels import KernelTarget
from partitioner.ir.plan import Plan
from partitioner.ir.target import AcceptingTarget, JudgesPrepared
from partitioner.memory.main_memory_check import require_main_room
from partitioner.planners.astitch import stitched
from partitioner.planners.image_groups import in_image_groups
from partitioner.planners.kernel_level import kernel_plan
from partitioner.planners.levels import (
    AUTO_SPILL,
    NO_SPILLS,
    O0,
    O1,
    O2,
    O3,
    Astitch,
    Auto,
    Images,
    KernelPlanner,
    Planner,
    Segments,
    Streamed,
    kernel_planner_of,
)
from partitioner.planners.o0 import in_main
from partitioner.planners.o1 import in_staging
from partitioner.planners.o2 import in_cores
from partitioner.planners.o3 import plan_instances, plan_with_worthwhile_spills
from partitioner.planners.segments import in_segments
from partitioner.planners.streamed import in_streams
from partitioner.verification.kernel_plan import verify_kernel_plan
from partitioner.verification.verify_plan import verify_plan

PLAINEST = O0()


def make_plan(ctx: PlanContext, planner: Planner = PLAINEST) -> Plan:
    """Partition the graph for one cluster of the chip. Raises ModelError listing all operators it cannot compute, and
    DoesNotFit, before any planning, where the main memory cannot even hold inputs, outputs and constants."""
    refuse_unsupported(ctx)
    require_main_room(ctx)
    plan = _planned(ctx, planner)
    verify_plan(plan, ctx)
    return plan


def make_kernel_plan(
    ctx: KernelContext, planner: KernelPlanner, forced: tuple[str, ...] = (), slices: int | None = None
) -> Plan:
    """Partition the graph for a target whose kernels are whole groups; `forced` names groups (`forced_sets`) and
    `slices` the number of slices of the batch that are made whatever they cost. Raises what `make_plan` raises, and
    PlanError naming a layer for which there is no kernel, and ModelError for a forced group or slices that cannot be
    made."""
    refuse_unsupported(ctx)
    require_main_room(ctx)
    plan = kernel_plan(ctx, planner, forced, slices)
    verify_kernel_plan(plan, ctx)
    return plan


def _planned(ctx: PlanContext, planner: Planner) -> Plan:
    match planner:
        case O0():
            return in_main(ctx)
        case O1():
            return in_staging(ctx)
        case O2():
            return in_cores(ctx)
        case O3(spill) if spill == AUTO_SPILL:
            return plan_with_worthwhile_spills(ctx)
        case O3(spill):
            return plan_instances(ctx, None if spill == NO_SPILLS else spill)
        case Streamed():
            return in_streams(ctx)
        case Astitch():
            return stitched(ctx)
        case Images(groups):
            return in_image_groups(ctx, groups)
        case Segments(parts):
            wanted = dict.fromkeys(part.planner for part in parts)
            return in_segments(ctx, parts, {one: _planned(ctx, one) for one in wanted})


def require_planner(target: AcceptingTarget, asked: Planner | Auto) -> None:
    """Raises ModelError for a planner, or a way of spilling, that such a target does not have."""
    if isinstance(target, KernelTarget):
        kernel_planner_of(target.name, asked)


def refuse_unsupported(ctx: GraphContext[AcceptingTarget]) -> None:
    """Refuse a graph with operators that cannot be computed. Raises ModelError, which lists all of them."""
    graph, target = ctx.graph, ctx.target
    if refused := unsupported_ops(graph, ctx.constants, ctx.chip, target):
        lines = [f"  {op.name} ({op.source or op.kind} of {_shapes(graph, op)}): {reason}" for op, reason in refused]
        raise ModelError(who=graph.name, needs=f"only operators that {target.name} can compute",
                         has=f"{len(refused)} that it cannot:\n" + "\n".join(lines))  # fmt: skip


def unsupported_ops(
    graph: Graph, constants: Constants, chip: Chip, target: AcceptingTarget
) -> tuple[tuple[Op, str], ...]:
    """The operators that cannot be computed, each with the reason."""
    refuses = target.refuses_prepared if isinstance(target, JudgesPrepared) else None
    prepared = ((op, refuses(graph, op, chip) if refuses else None) for op in (*graph.prepared, *graph.concluded))
    planned = ((op, _scalar_problem(graph, op) or target.accepts(graph, op, constants, chip)) for op in graph.ops)
    return tuple((op, reason) for op, reason in (*prepared, *planned) if reason)


def _scalar_problem(graph: Graph, op: Op) -> str | None:
    if not op.is_view and any(not graph.by_name[name].shape for name in op.outputs):
        return "a result without axes; tiles have at least one: give it a shape of [1]"
    return None


def _shapes(graph: Graph, op: Op) -> str:
    return ", ".join(f"{list(graph.by_name[name].source_shape or graph.by_name[name].shape)}" for name in op.inputs)
