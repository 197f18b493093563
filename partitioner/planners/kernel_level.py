"""Plans of kernels that are whole groups, for targets that offer them (`partitioner.ir.kernels`).

    O0  graph --layers--> one kernel a layer
    O3  graph --layers--> groups, each of which takes in the layers behind it while the target has a kernel for them all
                          that takes no longer, by its floors, than those it replaces

Every value that leaves a group lies in the main memory. The hardware places the blocks of a kernel, so steps name no
cores, and their pieces are the grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hw_models.errors import PlanError
from partitioner.context.plan_context import KernelContext
from partitioner.fusion.kernel_sets import Dependences, bits, dependences_of, in_order
from partitioner.ir.decisions import Decision
from partitioner.ir.graph import Graph
from partitioner.ir.kernels import Kernel
from partitioner.ir.layers import Layer
from partitioner.ir.plan import Group, Plan
from partitioner.ir.regions import full_box
from partitioner.ir.steps import Binding, RunStep, Step
from partitioner.planners.o0 import batch_of, view_step

__all__ = ["kernels_by_layer", "kernels_fused"]

MOST_REFUSED = 3
"""A set is grown by so many groups beyond the last one for which there is a kernel: a chain of three may have a kernel
where the first two of it have none."""
MOST_SETS = 256
"""Sets tried from one group on, so that wide networks end."""

Layers = tuple[Layer, ...]


def kernels_by_layer(ctx: KernelContext) -> Plan:
    """Level O0: one kernel a layer. Raises PlanError for a layer without a kernel."""
    return _plan(ctx, "O0", [(layer,) for layer in ctx.layers], ctx.layer_decisions, _Offers(ctx))


def kernels_fused(ctx: KernelContext) -> Plan:
    """Level O3: groups merged greedily, from the first on, each as far as pays most. Raises PlanError for a layer
    without a kernel."""
    graph, offers = ctx.graph, _Offers(ctx)
    groups: list[Layers] = [(layer,) for layer in ctx.layers]
    merged: list[Decision] = []
    at = 0
    while at < len(groups):
        found = None if offers.is_view(groups[at]) else _best_set(groups, at, dependences_of(graph, groups), offers)
        if found is None:
            at += 1
            continue
        members, decision = found
        first = groups[at][0]
        together = tuple(layer for number in bits(members) for layer in groups[number])
        rest = [group for number, group in enumerate(groups) if not members >> number & 1]
        groups = in_order(graph, [*rest[:at], together, *rest[at:]])
        at = next(number for number, group in enumerate(groups) if first in group)
        merged.append(decision)
    return _plan(ctx, "O3", groups, (*ctx.layer_decisions, *merged), offers)


@dataclass(slots=True)
class _Offers:
    """The target's fastest kernel by set of layers; each set is asked for once."""

    ctx: KernelContext
    known: dict[Layers, Kernel | None] = field(default_factory=dict)

    def is_view(self, layers: Layers) -> bool:
        return any(layer.is_view(self.ctx.graph) for layer in layers)

    def best(self, layers: Layers) -> Kernel | None:
        """The first of those that take the least by their floors; None where there is none."""
        if layers not in self.known:
            offered = self.ctx.target.kernels(self.ctx.graph, layers, self.ctx.chip)
            self.known[layers] = min(offered, key=lambda kernel: kernel.seconds, default=None)
        return self.known[layers]

    def required(self, layers: Layers) -> Kernel:
        """Raises PlanError where there is none."""
        if kernel := self.best(layers):
            return kernel
        raise PlanError(
            f"layer {layers[0].name}",
            needs=f"a kernel of {self.ctx.target.name} for {', '.join(name for layer in layers for name in layer.ops)}",
            has="none that the target offers, although it accepts the operators one by one",
        )


def _best_set(groups: Sequence[Layers], start: int, among: Dependences, offers: _Offers) -> tuple[int, Decision] | None:
    """The set from `start` on that saves most, the larger of equal ones, and why; None where no set pays."""
    best: tuple[tuple[float, int], int, Decision] | None = None
    waiting = [(1 << start, 0)]
    seen = {1 << start}
    for members, refused in waiting:
        for reader in among.next_readers(members):
            grown = members | 1 << reader
            if grown in seen or len(seen) >= MOST_SETS or offers.is_view(groups[reader]):
                continue
            seen.add(grown)
            parts = [groups[number] for number in bits(grown)]
            kernel = offers.best(tuple(layer for part in parts for layer in part))
            if kernel is None:
                if refused + 1 < MOST_REFUSED:
                    waiting.append((grown, refused + 1))
                continue
            waiting.append((grown, 0))
            apart = sum(offers.required(part).seconds for part in parts)
            rank = (apart - kernel.seconds, len(parts))
            if rank[0] >= 0 and (best is None or rank > best[0]):
                best = rank, grown, _merged(parts, kernel, apart)
    return best and (best[1], best[2])


def _merged(parts: Sequence[Layers], kernel: Kernel, apart_seconds: float) -> Decision:
    names = ", ".join(part[0].name for part in parts[1:])
    return Decision(
        parts[0][0].name,
        f"one kernel with {names}",
        f"{kernel.text} takes {_microseconds(kernel.seconds)} at least, apart they take {_microseconds(apart_seconds)}",
    )


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.3f} us"


def _plan(
    ctx: KernelContext, level: str, groups: Sequence[Layers], decisions: Sequence[Decision], offers: _Offers
) -> Plan:
    graph, main, made, reasons = ctx.graph, ctx.main, [], list(decisions)
    steps: list[Step] = []
    for layers in groups:
        if offers.is_view(layers):
            made.append(Group(layers[0].name, layers))
            steps.append(view_step(graph, layers[0], main))
            continue
        kernel = offers.required(layers)
        group = Group(layers[0].name, layers, kernel=kernel.text)
        made.append(group)
        steps.append(_run(graph, group, kernel, main))
        reasons.append(_chosen(group, kernel))
    return Plan(
        graph.name, level, graph.hash, ctx.chip.hash, batch_of(graph), tuple(made), tuple(steps), tuple(reasons)
    )


def _run(graph: Graph, group: Group, kernel: Kernel, main: str) -> RunStep:
    shape = graph.by_name[group.output].shape
    exports = tuple((name, main) for name in group.outputs(graph) if name != group.output)
    return RunStep(group.name, 0, full_box(shape), main, Binding(kernel.grid(shape), ()), exports=exports)


def _chosen(group: Group, kernel: Kernel) -> Decision:
    """What the kernel occupies and what binds it."""
    launches = f"{kernel.launches} launch{'es' if kernel.launches > 1 else ''}"
    occupies = [f"{size} {name}" for name, size in kernel.resources]
    binding = kernel.binding
    bound = f"{binding.name} binds{f' ({binding.work})' if binding.work else ''}" if binding else "no floor is known"
    reason = ", ".join([launches, *occupies, f"at least {_microseconds(kernel.seconds)}", bound])
    return Decision(group.name, f"computed by {kernel.text}", reason)
