"""Plans by level: one function of one table.

O0        one kernel a layer, every output in the main memory: what TVM would make
O1        outputs in the staging memory while they are needed, as far as they fit
O2        outputs in the cores' own memories where readers find them there, else as O1
O3        groups of layers cut into instances, ordered so that data stay close: the whole method
astitch   memory-bound operators stitched into one kernel, compute-bound layers alone; everything between in main

Targets whose kernels are whole groups have planners of their own, for O0 and O3 (`partitioner.planners.kernel_level`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from hw_models.chip import Chip
from hw_models.errors import ModelError
from partitioner.context.plan_context import GraphContext, KernelContext, PlanContext
from partitioner.ir.graph import Constants, Graph, Op
from partitioner.ir.kernels import KernelTarget
from partitioner.ir.plan import Plan
from partitioner.ir.target import AcceptingTarget
from partitioner.memory.main_memory_check import require_main_room
from partitioner.memory.spill_policies import POLICIES
from partitioner.memory.spilling import NO_SPILLS
from partitioner.planners.astitch import stitched
from partitioner.planners.auto_spill import plan_with_worthwhile_spills
from partitioner.planners.kernel_level import kernels_by_layer, kernels_fused
from partitioner.planners.o0 import in_main
from partitioner.planners.o1 import in_staging
from partitioner.planners.o2 import in_cores
from partitioner.planners.o3 import plan_instances
from partitioner.verification.kernel_plan import verify_kernel_plan
from partitioner.verification.verify_plan import verify_plan

__all__ = ["LEVELS", "SPILLS", "make_kernel_plan", "make_plan", "require_level", "unsupported_ops"]

Planner = Callable[[PlanContext], Plan]
KernelPlanner = Callable[[KernelContext], Plan]

PLANNERS: Mapping[str, Planner] = MappingProxyType(
    {"O0": in_main, "O1": in_staging, "O2": in_cores, "O3": plan_instances, "astitch": stitched}
)

KERNEL_PLANNERS: Mapping[str, KernelPlanner] = MappingProxyType({"O0": kernels_by_layer, "O3": kernels_fused})
"""For targets whose kernels are whole groups."""

LEVELS = tuple(PLANNERS)
AUTO_SPILL = "auto"
SPILLS = (NO_SPILLS, *POLICIES, AUTO_SPILL)


def make_plan(ctx: PlanContext, level: str = "O0", spill: str = NO_SPILLS) -> Plan:
    """Partition the graph for one cluster of the chip. At O3, `spill` says which values of a group leave the cores
    where they do not all fit. Raises ModelError listing all operators it cannot compute, or saying which levels there
    are, and DoesNotFit, before any planning, where the main memory cannot even hold inputs, outputs and constants."""
    refuse_unsupported(ctx)
    require_main_room(ctx)
    require_level(ctx.target, level, spill)
    planner = PLANNERS[level]
    if spill != NO_SPILLS:
        planner = plan_with_worthwhile_spills if spill == AUTO_SPILL else partial(plan_instances, spill=spill)
    plan = planner(ctx)
    verify_plan(plan, ctx)
    return plan


def make_kernel_plan(ctx: KernelContext, level: str = "O0", spill: str = NO_SPILLS) -> Plan:
    """The same for a target whose kernels are whole groups, for which there are fewer levels and no spills. Raises
    PlanError too, naming a layer for which there is no kernel."""
    refuse_unsupported(ctx)
    require_main_room(ctx)
    require_level(ctx.target, level, spill)
    plan = KERNEL_PLANNERS[level](ctx)
    verify_kernel_plan(plan, ctx)
    return plan


def require_level(target: AcceptingTarget, level: str, spill: str = NO_SPILLS) -> None:
    """Raises ModelError for a level or a way of spilling that there is not, or not for such a target."""
    if level not in PLANNERS:
        raise ModelError("--level", needs=f"one of {', '.join(LEVELS)}", has=level)
    whole = isinstance(target, KernelTarget)
    if whole and level not in KERNEL_PLANNERS:
        needs = f"{' or '.join(KERNEL_PLANNERS)} for {target.name}, whose kernels are whole groups of layers"
        raise ModelError("--level", needs=needs, has=level)
    if whole and spill != NO_SPILLS:
        needs = f"{NO_SPILLS} for {target.name}, whose kernels are whole groups of layers"
        raise ModelError("--spill", needs=needs, has=spill)
    if spill != NO_SPILLS:
        _require_spill(level, spill)


def _require_spill(level: str, spill: str) -> None:
    if spill not in SPILLS:
        raise ModelError("--spill", needs=f"one of {', '.join(SPILLS)}", has=spill)
    if PLANNERS[level] is not plan_instances:
        raise ModelError("--spill", needs="a level that makes groups of several layers: O3", has=level)


def refuse_unsupported(ctx: GraphContext[AcceptingTarget]) -> None:
    """All operators that cannot be computed, in one error. Raises ModelError, which lists them."""
    graph, target = ctx.graph, ctx.target
    if refused := unsupported_ops(graph, ctx.constants, ctx.chip, target):
        lines = [f"  {op.name} ({op.source or op.kind} of {_shapes(graph, op)}): {reason}" for op, reason in refused]
        raise ModelError(who=graph.name, needs=f"only operators that {target.name} can compute",
                         has=f"{len(refused)} that it cannot:\n" + "\n".join(lines))  # fmt: skip


def unsupported_ops(
    graph: Graph, constants: Constants, chip: Chip, target: AcceptingTarget
) -> tuple[tuple[Op, str], ...]:
    """The operators that cannot be computed, each with the reason."""
    return tuple(
        (op, reason)
        for op in graph.ops
        if (reason := _scalar_problem(graph, op) or target.accepts(graph, op, constants, chip))
    )


def _scalar_problem(graph: Graph, op: Op) -> str | None:
    if op.kind != "view" and any(not graph.by_name[name].shape for name in op.outputs):
        return "a result without axes; tiles have at least one: give it a shape of [1]"
    return None


def _shapes(graph: Graph, op: Op) -> str:
    return ", ".join(f"{list(graph.by_name[name].source_shape or graph.by_name[name].shape)}" for name in op.inputs)
