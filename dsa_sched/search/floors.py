"""Floors by which level auto leaves out plans: bytes of a shared memory over its bandwidth, and room to run ahead.

plan, layout --bytes it moves--> cycles that no program of it is faster than
"""

from __future__ import annotations

from math import inf

from dsa_sched.stages.compilation import CompileOptions
from hw_models.infeasible import Infeasible
from partitioner.context.plan_context import PlanContext
from partitioner.cost.roofline import plan_floors
from partitioner.cost.traffic import plan_traffic
from partitioner.ir.plan import Plan
from partitioner.memory.memory_plan import fit_layout, lay_out
from partitioner.memory.memory_plan_types import FOR_CONSTANTS_AHEAD, FOR_SCHEDULING, Layout, MoveLayout


def memory_floor_cycles(
    plan: Plan, ctx: PlanContext, options: CompileOptions, enough_cycles: float = inf, plain: Layout | None = None
) -> float:
    """Lower bound in cycles for every program of the plan: the bytes that it moves from and to the memory that binds,
    divided by that memory's bandwidth.

    A scheduled program can have one of two layouts; the smaller bound of the two counts. The second one is computed
    only where the first bound is not below `enough_cycles`. A caller that has the plain layout passes it.
    """
    if options.schedule and options.constants_ahead:
        return _floor(plan, ctx, lay_out(plan, ctx, FOR_CONSTANTS_AHEAD))
    first = _floor(plan, ctx, plain or lay_out(plan, ctx))
    if not options.schedule or first < enough_cycles:
        return first
    return min(first, _floor(plan, ctx, lay_out(plan, ctx, FOR_SCHEDULING)))


def has_region(plan: Plan, ctx: PlanContext) -> bool:
    """Whether constants of all layers can be staged in one region: layers that are staged elsewhere are so below it."""
    layout = fit_layout(plan, ctx, FOR_CONSTANTS_AHEAD)
    if isinstance(layout, Infeasible):
        return False
    entries = (entry for step in layout.steps if not isinstance(step, MoveLayout) for entry in step)
    stagings = {entry.staging for entry in entries}
    region = max(stagings, default=(0, 0))
    return all(sum(staging) <= region[0] for staging in stagings if staging != region)


def _floor(plan: Plan, ctx: PlanContext, layout: Layout) -> float:
    traffic = plan_traffic(plan, layout, ctx, tiles=False)
    memories = {memory.name for memory in ctx.chip.memories}
    return max((floor.cycles for floor in plan_floors(traffic, ctx.chip) if floor.name in memories), default=0.0)
