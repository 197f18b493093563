"""The check that each core finds what it reads: the boxes that lowering will use, compared with the access maps.

    boxes by core of every instance  --access maps-->  reads  <=  what is loaded  <=  computed, fetched or ready before

Region inference (`tiling/core_regions.py`) asks the target what a kernel loads and goes backward. Here the operators'
own access maps say what is read, and the steps are walked forward, so that an error of the one is not repeated in the
other: a core that computes some rows of a softmax over rows, a piece that nobody computes, an instance that reads rows
of which another one has not made all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hw_models.errors import PlanError
from partitioner.context.plan_context import PlanContext
from partitioner.ir.access import Access, Full, Scaled
from partitioner.ir.graph import Op
from partitioner.ir.layers import Layer, layer_boxes
from partitioner.ir.plan import Group, Plan
from partitioner.ir.regions import Box, box_size, box_text, common, empty_box, full_box, holds
from partitioner.ir.steps import MoveStep, RunStep, ViewStep
from partitioner.tiling.core_regions import CoreBoxes, core_boxes, instance_box


def covered(box: Box, parts: Iterable[Box]) -> bool:
    """Whether every element of `box` is in one of the parts, which may overlap."""
    left = [box] if box_size(box) else []
    for part in parts:
        if not left:
            break
        left = [rest for piece in left for rest in _without(piece, part)]
    return not left


def _without(box: Box, part: Box) -> list[Box]:
    """Disjoint boxes that together are `box` without `part`: slabs before and after it, axis by axis."""
    if holds(part, box):
        return []
    shared = common(box, part)
    if box_size(shared) == 0:
        return [box]
    slabs: list[Box] = []
    for axis, ((low, high), (a, b)) in enumerate(zip(box, shared, strict=True)):
        outside = [span for span in ((low, a), (b, high)) if span[0] < span[1]]
        slabs += [(*shared[:axis], span, *box[axis + 1 :]) for span in outside]
    return slabs


def verify_coverage(plan: Plan, ctx: PlanContext) -> None:
    """Raises PlanError for a core that reads what it neither computes nor finds, and for outputs with gaps."""
    graph, check = ctx.graph, _Coverage(ctx)
    for name in graph.inputs:
        check.ready[name] = [full_box(graph.by_name[name].shape)]
    for step in plan.steps:
        if not isinstance(step, MoveStep):
            check.run(step, plan.group_by_name[step.group])
    for name in graph.outputs:
        if not graph.by_name[name].constant and not check.is_ready(name, full_box(graph.by_name[name].shape)):
            raise PlanError(f"plan {plan.name}", needs=f"all of the output {name}", has="instances that leave a gap")


@dataclass(frozen=True, slots=True)
class _Coverage:
    """The walk over the steps: `ready` are the boxes of each value that earlier steps made, `known` the reads of layers
    so far."""

    ctx: PlanContext
    ready: dict[str, list[Box]] = field(default_factory=dict)
    known: dict[tuple[str, Box], Mapping[str, Box]] = field(default_factory=dict)

    def is_ready(self, name: str, box: Box) -> bool:
        return covered(box, self.ready.get(name, ()))

    def run(self, step: RunStep | ViewStep, group: Group) -> None:
        """One instance, or one view, which is read as a whole."""
        outputs = group.outputs(self.ctx.graph)
        boxes = {name: step.box if name == group.output else instance_box(self.ctx.graph, group, name, step.instance)
                 for name in outputs}  # fmt: skip
        if isinstance(step, ViewStep):
            for name, read in self._reads(group.layers[0], step.box).items():
                self._require(step, group.layers[0], name, read, self.ready.get(name, ()))
        else:
            cores = core_boxes(self.ctx, group, step)
            for layer in group.layers:
                for core in range(len(cores)):
                    self._layer(step, group, layer, core, cores)
            for name, box in boxes.items():
                if not covered(box, (part.owned[name] for part in cores if name in part.owned)):
                    raise PlanError(
                        _who(step), needs=f"{box_text(box)} of {name} from its cores", has="pieces that leave a gap"
                    )
        for name, box in boxes.items():
            self.ready.setdefault(name, []).append(box)

    def _layer(self, step: RunStep, group: Group, layer: Layer, core: int, cores: tuple[CoreBoxes, ...]) -> None:
        """Check one core's part of one layer: its reads are present, and it has what it gives away."""
        name = layer.output
        computed = cores[core].computed.get(name)
        gives = cores[core].owned.get(name)
        exchanged = {exchange.tensor for exchange in group.exchanges_of(step.instance)}
        if gives and name not in exchanged and not (computed and holds(computed, gives)):
            raise PlanError(
                f"{_who(step)}, core {core}",
                needs=f"{box_text(gives)} of {name}, which it gives away",
                has=f"{box_text(computed)} computed" if computed else "none of it computed",
            )
        if computed is None:
            return
        made = {inner.output for inner in group.layers}
        for tensor, read in self._reads(layer, computed).items():
            if tensor not in made:
                there: Iterable[Box] = self.ready.get(tensor, ())
            elif tensor in exchanged:
                there = [part.computed[tensor] for part in cores if tensor in part.computed]
            else:
                there = [cores[core].computed[tensor]] if tensor in cores[core].computed else []
            self._require(step, layer, tensor, read, there, core)

    def _require(
        self,
        step: RunStep | ViewStep,
        layer: Layer,
        tensor: str,
        read: Box,
        there: Iterable[Box],
        core: int | None = None,
    ) -> None:
        if not covered(read, there):
            raise PlanError(
                _who(step) if core is None else f"{_who(step)}, core {core}",
                needs=f"{box_text(read)} of {tensor}, which {layer.name} reads",
                has=", ".join(map(box_text, there)) or "none of it",
            )

    def _reads(self, layer: Layer, box: Box) -> Mapping[str, Box]:
        """The box of every value on which `box` of the layer's output depends. Raises PlanError where the target loads
        less than access maps say: it cannot compute this box."""
        key = (layer.name, box)
        if key in self.known:
            return self.known[key]
        boxes = layer_boxes(self.ctx.graph, layer, box)
        loads = self.ctx.reads(layer, box)
        reads: dict[str, Box] = {}
        for name in layer.inputs(self.ctx.graph):
            if self.ctx.graph.by_name[name].constant or box_size(boxes[name]) == 0:
                continue
            loaded = loads.get(name, empty_box(len(boxes[name])))
            reads[name] = self._narrowed(layer, name, boxes[name], loaded)
            if not holds(loaded, reads[name]):
                raise PlanError(
                    f"layer {layer.name}",
                    needs=f"{box_text(reads[name])} of {name} for {box_text(box)} of its output",
                    has=f"a kernel that loads {box_text(loaded)}",
                )
        self.known[key] = reads
        return reads

    def _narrowed(self, layer: Layer, name: str, read: Box, loaded: Box) -> Box:
        """A read by access maps; along axes where these give only a bound, the part of it that the kernel loads."""
        ops = (self.ctx.graph.op_by_name[op] for op in layer.ops)
        loose = {axis for op in ops for axis in _bounded_axes(op, name)}
        return tuple(
            (max(a, c), min(b, d)) if axis in loose else (a, b)
            for axis, ((a, b), (c, d)) in enumerate(zip(read, loaded, strict=True))
        )


def _bounded_axes(op: Op, name: str) -> set[int]:
    """Axes of an input along which access maps give only a bound of the reads: their positions are a table of numbers
    (of a resize, of a take) that the kernel has and the map does not."""
    reads = (access for stage in op.stages for access in stage.reads if access.tensor == name)
    return {
        axis
        for access in reads
        if isinstance(access, Access)
        for axis, index in enumerate(access.indices)
        if isinstance(index, Scaled) or (isinstance(index, Full) and op.kind == "take")
    }


def _who(step: RunStep | ViewStep) -> str:
    return f"instance {step.instance} of group {step.group}"
