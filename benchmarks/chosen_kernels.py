"""Plans of kernels that somebody else chose: a target that offers only what is asked for.

CutlassTarget --only(layers, kernel)--> Restricted --planner--> a plan of these kernels
              --for these operators, this kernel--> forced  --planner--> a plan that has it, whatever it costs
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from codegen.cutlass.target import CutlassTarget
from codegen.target import GroupTarget
from dsa_sched.frontend import Model
from dsa_sched.stages.kernel_stages import PlannedKernels
from hw_models.chip import Chip
from hw_models.errors import TargetError
from partitioner.context.plan_context import GraphContext
from partitioner.ir.graph import Graph
from partitioner.ir.kernels import Kernel
from partitioner.ir.layers import Layer
from partitioner.planners.levels import KERNEL_PLANNERS, LayerKernels
from partitioner.planners.registry import make_kernel_plan

__all__ = ["Remembering", "forced_plan", "gpu_target", "restricted", "restricted_plan"]

Choose = Callable[[tuple[Layer, ...], Kernel], Kernel | None]


@dataclass(frozen=True, slots=True)
class Remembering(CutlassTarget):
    """Looks once for the kernels of the same layers: for many plans of a few graphs, which it keeps."""

    known: dict[tuple[int, int], tuple[Graph, Chip, dict[tuple[Layer, ...], tuple[Kernel, ...]]]] = field(
        default_factory=dict, compare=False, repr=False
    )
    """By the identities of graph and chip."""

    def kernels(self, graph: Graph, layers: tuple[Layer, ...], chip: Chip) -> tuple[Kernel, ...]:
        _, _, offered = self.known.setdefault((id(graph), id(chip)), (graph, chip, {}))
        if layers not in offered:
            offered[layers] = CutlassTarget.kernels(self, graph, layers, chip)
        return offered[layers]


@dataclass(frozen=True, slots=True, kw_only=True)
class Restricted(CutlassTarget):
    """`choose` gives a kernel of the target `given` as planners shall see it, or None for one that they shall not."""

    given: GroupTarget
    choose: Choose

    def kernels(self, graph: Graph, layers: tuple[Layer, ...], chip: Chip) -> tuple[Kernel, ...]:
        offered = self.given.kernels(graph, layers, chip)
        return tuple(kept for kernel in offered if (kept := self.choose(layers, kernel)) is not None)


def restricted(target: GroupTarget, choose: Choose) -> Restricted:
    return Restricted(target.name, given=target, choose=choose)


def gpu_target(target: object, chip: Chip) -> GroupTarget:
    """Raises TargetError for a target of another kind."""
    if not isinstance(target, GroupTarget):
        raise TargetError(f"chip {chip.name}", needs="a GPU", has=f"a chip of kind {chip.kind}")
    return target


def forced_plan(
    model: Model, chip: Chip, target: GroupTarget, layers: tuple[Layer, ...], kernel: str
) -> PlannedKernels:
    """One kernel a layer but for `layers`, which `kernel` computes. Raises PlanError where the target does not offer
    it."""

    def choose(asked: tuple[Layer, ...], offered: Kernel) -> Kernel | None:
        return None if frozenset(asked) == wanted and offered.text != kernel else offered

    wanted = frozenset(layers)
    context = GraphContext(model.graph, model.constants, chip, restricted(target, choose))
    forced = (",".join(layer.name for layer in layers),) if len(layers) > 1 else ()
    return PlannedKernels(model, context, make_kernel_plan(context, LayerKernels(), forced=forced))


def restricted_plan(model: Model, chip: Chip, target: GroupTarget, level: str, choose: Choose) -> PlannedKernels:
    """A plan of what `choose` keeps. Raises PlanError where that leaves a layer without a kernel."""
    context = GraphContext(model.graph, model.constants, chip, restricted(target, choose))
    return PlannedKernels(model, context, make_kernel_plan(context, KERNEL_PLANNERS[level]()))
