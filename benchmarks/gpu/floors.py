"""What the kernels of a plan take by the chip file: floors, and what is expected where kinds of kernels were measured.

    Plan, target, chip --kernels of each group--> seconds of launches, of each memory and unit; which binds

A kernel has two floors: that where it runs, after those before it, part of whose values the cache that all cores share
may still hold, by which planners choose; and that with cold caches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from codegen.target import GroupTarget
from hw_models.chip import Chip
from partitioner.context.plan_context import GraphContext
from partitioner.ir.graph import Graph
from partitioner.ir.kernels import Kernel
from partitioner.ir.plan import Plan
from partitioner.ir.slice_segments import slices_of
from partitioner.planners.kernel_level import kernels_in_place

__all__ = ["floor_ms", "floors_of", "is_fused"]


def floors_of(plan: Plan, graph: Graph, target: GroupTarget, chip: Chip) -> dict[str, dict[str, Any]]:
    """By group, in execution order: kernel, launches, their milliseconds, those of each memory and unit where it runs,
    the larger with cold caches, what is expected with its error as a share, the layers; of groups in slices of the
    batch, of all slices. Raises PlanError for a plan of another target's kernels."""
    context = GraphContext(graph, {}, chip, target)
    cold = kernels_in_place(plan, context, cold=True)
    return {
        name: _figures(kernel, cold[name], [op for layer in plan.group_by_name[name].layers for op in layer.ops])
        for name, kernel in kernels_in_place(plan, context).items()
    }


def _figures(kernel: Kernel, cold: Kernel, ops: list[str]) -> dict[str, Any]:
    floors = {floor.name: 1e3 * floor.seconds for floor in kernel.floors}
    return {
        "kernel": kernel.text,
        "ops": ops,
        "launches": kernel.launches,
        "launch_ms": 1e3 * kernel.launches * kernel.launch_seconds,
        "floors_ms": floors,
        "work": {floor.name: floor.work for floor in kernel.floors},
        "binds": kernel.busiest.name if kernel.busiest else "launches",
        "floor_ms": max(floors.values(), default=0.0),
        "cold_floor_ms": 1e3 * cold.busiest.seconds if cold.busiest else 0.0,
        "expected_ms": 1e3 * kernel.seconds,
        "error": kernel.error,
    }


def floor_ms(kernels: Mapping[str, Mapping[str, Any]]) -> float:
    """Of a network: all kernels one after the other, with their launches."""
    return sum(float(kernel["launch_ms"]) + float(kernel["floor_ms"]) for kernel in kernels.values())


def is_fused(plan: Plan, graph: Graph) -> bool:
    """Has a group layers that O0 computes apart, or does it run in slices of the batch?"""
    return any(
        slices_of(group) > 1 or sum(not layer.is_view(graph) for layer in group.layers) > 1 for group in plan.groups
    )
