"""The check of a plan of kernels that are whole groups, whoever made it.

plan, context --> nothing, or PlanError that names the step
"""

from __future__ import annotations

from hw_models.errors import PlanError
from partitioner.context.batch_slices import BatchSlice, batch_of, slice_for
from partitioner.context.plan_context import KernelContext
from partitioner.ir.graph import Graph
from partitioner.ir.plan import Group, Plan
from partitioner.ir.slice_segments import batch_points, slice_box, slice_segments, slices_of
from partitioner.ir.steps import RunStep, Step, ViewStep, scopes_of
from partitioner.memory.main_memory_check import roots
from partitioner.verification.operator_cover import verify_operators_once


def verify_kernel_plan(plan: Plan, ctx: KernelContext) -> None:
    """Raises PlanError unless each operator is in one layer of one group, each group runs once, whole or slice by slice
    of the batch, after all that it reads was made, its values lie in memories of the chip that cores share, and the
    target offers its kernel for its layers, or for a slice of them."""
    graph, chip = ctx.graph, ctx.chip
    verify_operators_once(plan, graph)
    slice_segments(plan)  # slices in any other order are refused here
    shared = {memory.name for memory in chip.memories if memory.scope != "core"}
    parts = {
        count: slice_for(plan, graph, count) for count in sorted({slices_of(group) for group in plan.groups} - {1})
    }
    made = _Made(graph)
    for step in plan.steps:
        group = plan.group_by_name[step.group]
        for scope in scopes_of(step):
            if scope not in shared:
                raise PlanError(_who(step), needs=f"a memory of {chip.name} that kernels share", has=scope)
        part = parts.get(slices_of(group))
        if isinstance(step, RunStep):
            _verify_kernel(step, group, ctx, part)
        elif not isinstance(step, ViewStep) or group.kernel:
            raise PlanError(_who(step), needs="a kernel that runs, or a view", has=step.kind)
        made.run(step, group, part)


def _verify_kernel(step: RunStep, group: Group, ctx: KernelContext, part: BatchSlice | None) -> None:
    """Require that the target offers this kernel, that it computes the whole group or a slice of it, and that all
    outputs have a place."""
    target, shape = ctx.target, ctx.graph.by_name[group.output].shape
    graph = part.graph if part else ctx.graph
    if part and not all(part.has(layer) for layer in group.layers):
        raise PlanError(_who(step), needs="layers that compute each image by itself", has=f"{part.count} slices")
    points = batch_points(batch_of(ctx.graph), part.count) if part else ()
    if group.split.cuts != (((0, points),) if part else ()) or group.exchanges or step.binding.cores:
        raise PlanError(
            _who(step),
            needs="one kernel for the whole group or equal slices",
            has="a cut, an exchange or cores of its own",
        )
    offered = {kernel.text: kernel for kernel in target.kernels(graph, group.layers, ctx.chip)}
    if group.kernel not in offered:
        raise PlanError(
            _who(step), needs=f"a kernel that {target.name} offers for its layers", has=group.kernel or "none"
        )
    if step.box != slice_box(group, shape, step.instance):
        raise PlanError(_who(step), needs=f"slice {step.instance} of {slices_of(group)}", has=f"the box {step.box}")
    grid = offered[group.kernel].grid(graph.by_name[group.output].shape)
    if step.binding.pieces != grid:
        raise PlanError(
            _who(step), needs=f"the grid {list(grid)} of {group.kernel}", has=f"{list(step.binding.pieces)}"
        )
    leaving = {name for name in group.outputs(ctx.graph) if name != group.output}
    if {name for name, _ in step.exports} != leaving:
        needs = f"a place for {', '.join(sorted(leaving)) or 'its last output alone'}"
        raise PlanError(_who(step), needs=needs, has=", ".join(name for name, _ in step.exports) or "none")


class _Made:
    """What earlier steps have made: whole values, and slices of others, by what owns the bytes."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._roots = roots(graph)
        self._whole = set(graph.inputs) | {tensor.name for tensor in graph.tensors if tensor.constant}
        self._slices: dict[str, set[tuple[int, int]]] = {}
        self._views: set[str] = set()

    def run(self, step: Step, group: Group, part: BatchSlice | None) -> None:
        """Require that an earlier group or an earlier layer of its own made what each layer reads, and note what it
        makes."""
        inside: set[str] = set()
        for layer in group.layers:
            for name in layer.inputs(self._graph):
                if name not in inside and not self._has(name, step, part):
                    raise PlanError(
                        _who(step), needs=f"{name}, which {layer.name} reads", has="no earlier step that makes it"
                    )
            inside.add(layer.output)
        if isinstance(step, ViewStep):
            self._views.update(group.outputs(self._graph))
            return
        for name in group.outputs(self._graph):
            root = self._roots[name]
            if part is None:
                self._whole.add(root)
                continue
            done = self._slices.setdefault(root, set())
            done.add((part.count, step.instance))
            if all((part.count, number) in done for number in range(part.count)):
                self._whole.add(root)

    def _has(self, name: str, step: Step, part: BatchSlice | None) -> bool:
        root = self._roots[name]
        if name != root and name not in self._views:
            return False
        if root in self._whole or isinstance(step, ViewStep):
            return root in self._whole or root in self._slices
        return part is not None and name in part.values and (part.count, step.instance) in self._slices.get(root, ())


def _who(step: Step) -> str:
    return f"step {step.group}"
