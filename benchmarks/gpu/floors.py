"""The least that the kernels of a plan take, by the chip file, for a table: floors, not predictions of a time.

Plan, target, chip --kernels of each group--> seconds of launches, of each memory and unit; which binds
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
from partitioner.planners.kernel_level import kernels_in_place

__all__ = ["floor_ms", "floors_of", "is_fused"]


def floors_of(plan: Plan, graph: Graph, target: GroupTarget, chip: Chip) -> dict[str, dict[str, Any]]:
    """By group, in execution order, with what the cache still holds: kernel, launches, their milliseconds, those of
    each memory and unit, the layers. Raises PlanError for a plan of another target's kernels."""
    kernels = kernels_in_place(plan, GraphContext(graph, {}, chip, target))
    groups = (plan.group_by_name[name] for name in kernels)
    return {g.name: _figures(kernels[g.name], [op for layer in g.layers for op in layer.ops]) for g in groups}


def _figures(kernel: Kernel, ops: list[str]) -> dict[str, Any]:
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
    }


def floor_ms(kernels: Mapping[str, Mapping[str, Any]]) -> float:
    """Of a network: all kernels one after the other, with their launches."""
    return sum(float(kernel["launch_ms"]) + float(kernel["floor_ms"]) for kernel in kernels.values())


def is_fused(plan: Plan, graph: Graph) -> bool:
    """Has a group layers that O0 computes apart?"""
    return any(sum(not layer.is_view(graph) for layer in group.layers) > 1 for group in plan.groups)
