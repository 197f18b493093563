"""Level auto for targets whose kernels are whole groups: the faster of what the two levels make.

context --O0, O3--> plans --floors of their kernels, launches--> the faster one, and why
"""

from __future__ import annotations

from dataclasses import replace

from partitioner.context.plan_context import KernelContext
from partitioner.ir.decisions import Decision
from partitioner.ir.kernels import Kernel
from partitioner.ir.plan import Group, Plan
from partitioner.planners.kernel_level import kernels_by_layer, kernels_fused

__all__ = ["fastest_kernels", "kernel_of"]


def fastest_kernels(ctx: KernelContext) -> Plan:
    """Of plans that take equally long the one of fewer kernels. Raises PlanError for a layer without a kernel."""
    fused, apart = (
        (plan, sum(kernel_of(group, ctx).seconds for group in plan.groups if group.kernel))
        for plan in (kernels_fused(ctx), kernels_by_layer(ctx))
    )
    (best, seconds), (other, longer) = (fused, apart) if fused[1] <= apart[1] else (apart, fused)
    chosen = Decision("level", f"{best.level}, by auto", f"{seconds * 1e6:.3f} us at least, by floors and launches")
    left = Decision("level", f"not {other.level}", f"{longer * 1e6:.3f} us at least")
    return replace(best, decisions=(chosen, left, *best.decisions))


def kernel_of(group: Group, ctx: KernelContext) -> Kernel:
    """The kernel that computes a group of a plan of whole groups."""
    offered = ctx.target.kernels(ctx.graph, group.layers, ctx.chip)
    return next(kernel for kernel in offered if kernel.text == group.kernel)
