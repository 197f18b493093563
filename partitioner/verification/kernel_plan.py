"""The check of a plan of kernels that are whole groups, whoever made it.

plan, context --> nothing, or PlanError that names the step
"""

from __future__ import annotations

from hw_models.errors import PlanError
from partitioner.context.plan_context import KernelContext
from partitioner.ir.graph import Graph
from partitioner.ir.plan import Group, Plan
from partitioner.ir.regions import full_box
from partitioner.ir.steps import RunStep, Step, ViewStep, scopes_of
from partitioner.verification.operator_cover import verify_operators_once


def verify_kernel_plan(plan: Plan, ctx: KernelContext) -> None:
    """Raises PlanError unless each operator is in one layer of one group, each group runs once and whole after all its
    inputs were made, its values lie in memories of the chip that cores share, and the target offers its kernel for its
    layers."""
    graph, chip = ctx.graph, ctx.chip
    verify_operators_once(plan, graph)
    shared = {memory.name for memory in chip.memories if memory.scope != "core"}
    ready = set(graph.inputs) | {tensor.name for tensor in graph.tensors if tensor.constant}
    for step in plan.steps:
        group = plan.group_by_name[step.group]
        for scope in scopes_of(step):
            if scope not in shared:
                raise PlanError(_who(step), needs=f"a memory of {chip.name} that kernels share", has=scope)
        if isinstance(step, RunStep):
            _verify_kernel(step, group, ctx)
        elif not isinstance(step, ViewStep) or group.kernel:
            raise PlanError(_who(step), needs="a kernel that runs, or a view", has=step.kind)
        _verify_order(step, group, graph, ready)
        ready.update(group.outputs(graph))


def _verify_kernel(step: RunStep, group: Group, ctx: KernelContext) -> None:
    """Require that the target offers this kernel, that it computes the whole group, and that all outputs have a
    place."""
    graph, target = ctx.graph, ctx.target
    shape = graph.by_name[group.output].shape
    offered = {kernel.text: kernel for kernel in target.kernels(graph, group.layers, ctx.chip)}
    if group.kernel not in offered:
        raise PlanError(
            _who(step), needs=f"a kernel that {target.name} offers for its layers", has=group.kernel or "none"
        )
    if group.split.cuts or group.exchanges or step.binding.cores or step.box != full_box(shape):
        raise PlanError(
            _who(step), needs="one kernel for the whole group", has="a cut, an exchange or cores of its own"
        )
    if step.binding.pieces != offered[group.kernel].grid(shape):
        grid = offered[group.kernel].grid(shape)
        raise PlanError(
            _who(step), needs=f"the grid {list(grid)} of {group.kernel}", has=f"{list(step.binding.pieces)}"
        )
    leaving = {name for name in group.outputs(graph) if name != group.output}
    if {name for name, _ in step.exports} != leaving:
        needs = f"a place for {', '.join(sorted(leaving)) or 'its last output alone'}"
        raise PlanError(_who(step), needs=needs, has=", ".join(name for name, _ in step.exports) or "none")


def _verify_order(step: Step, group: Group, graph: Graph, ready: set[str]) -> None:
    """Require that an earlier group or an earlier layer of its own made what each layer reads."""
    inside: set[str] = set()
    for layer in group.layers:
        missing = [name for name in layer.inputs(graph) if name not in ready and name not in inside]
        if missing:
            raise PlanError(
                _who(step), needs=f"{missing[0]}, which {layer.name} reads", has="no earlier step that makes it"
            )
        inside.add(layer.output)


def _who(step: Step) -> str:
    return f"step {step.group}"
