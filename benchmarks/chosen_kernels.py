"""Plans of kernels that somebody else chose: a target that offers only what is asked for.

CutlassTarget --only(layers, kernel)--> Restricted --planner--> a plan of these kernels
              --for these operators, this kernel--> forced  --planner--> a plan that has it, whatever it costs
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from codegen.cutlass.target import CutlassTarget
from codegen.target import GroupTarget
from dsa_sched.frontend import Model
from dsa_sched.pipeline.compilation import CompileOptions
from dsa_sched.pipeline.driver import PlannedKernels, plan_kernels
from hw_models.chip import Chip
from hw_models.errors import PlanError, TargetError
from partitioner.ir.graph import Graph
from partitioner.ir.kernels import Kernel
from partitioner.ir.layers import Layer

__all__ = ["Restricted", "forced_plan", "gpu_target"]

Choose = Callable[[tuple[Layer, ...], Kernel], Kernel | None]


@dataclass(frozen=True, slots=True)
class Restricted(CutlassTarget):
    """`choose` gives a kernel as planners shall see it, or None for one that they shall not."""

    choose: Choose = lambda _layers, kernel: kernel

    def kernels(self, graph: Graph, layers: tuple[Layer, ...], chip: Chip) -> tuple[Kernel, ...]:
        offered = CutlassTarget.kernels(self, graph, layers, chip)
        return tuple(kept for kernel in offered if (kept := self.choose(layers, kernel)) is not None)


def gpu_target(target: object, chip: Chip) -> GroupTarget:
    """Raises TargetError for a target of another kind."""
    if not isinstance(target, GroupTarget):
        raise TargetError(f"chip {chip.name}", needs="a GPU", has=f"a chip of kind {chip.kind}")
    return target


def forced_plan(
    model: Model, chip: Chip, target: GroupTarget, batch: int, layers: tuple[Layer, ...], kernel: str
) -> PlannedKernels:
    """One kernel a layer but for `layers`, which `kernel` computes. Raises PlanError where the target does not offer
    it."""

    def choose(asked: tuple[Layer, ...], offered: Kernel) -> Kernel | None:
        if frozenset(asked) == wanted:
            # planners take what costs nothing; the plan names the kernel, not its floors
            return replace(offered, floors=(), launch_seconds=0.0) if offered.text == kernel else None
        return offered if len(asked) == 1 else None

    wanted = frozenset(layers)
    level = "O3" if len(layers) > 1 else "O0"
    planned = plan_kernels(model, chip, Restricted(target.name, choose=choose), CompileOptions(level, batch))
    found = [group.kernel for group in planned.plan.groups if frozenset(group.layers) == wanted]
    if found != [kernel]:
        raise PlanError(
            f"layers {', '.join(layer.name for layer in layers)}", needs=kernel, has=", ".join(found) or "none"
        )
    return planned
