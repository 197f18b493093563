"""Small networks of element-wise layers, and targets that offer kernels for sets of them, for tests of kernel plans.

lines `value operands...` --GraphBuilder--> graph      {"a0 b1": seconds} or a function of names --> target
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from hw_models.chip import Chip
from hw_models.loading import load_chip
from partitioner.context.plan_context import GraphContext, KernelContext
from partitioner.ir.graph import Constants, Graph, Op
from partitioner.ir.kernels import Kernel, KernelFloor
from partitioner.ir.layers import Layer
from partitioner.ir.wants import Wants, floats_as
from tests.small_graphs import GraphBuilder

__all__ = ["GPU", "Moves", "Names", "all_covers", "gpu_context", "network"]

Names = tuple[str, ...]

GPU = load_chip("h200")
"""Of which 60 % of the L2 are 31,457,280 bytes."""
LAUNCH_SECONDS = 2e-6


def network(*lines: str, outputs: str = "", shape: Sequence[int] = (1, 4, 4, 8)) -> tuple[Graph, Constants]:
    """Element-wise operators named by their values and numbers; `v` makes a view of its operand."""
    builder = GraphBuilder("net")
    values = {"x": builder.input("x", *shape)}
    for line in lines:
        name, *operands = line.split()
        found = [values[operand] for operand in operands]
        if name == "v":
            n, h, w, c = shape
            values[name] = builder.view(found[0], n, h * w, 1, c)
        else:
            values[name] = builder.elementwise(name, *found)
    read = {name for op in builder.ops for name in op.inputs}
    ends = [op.outputs[0] for op in builder.ops if op.outputs[0] not in read]
    return builder.build(*ends, *(values[name] for name in outputs.split()))


@dataclass(frozen=True)
class Moves:
    """A target for a GPU whose kernels move bytes: `sizes` of each value by its layer's name ("x" for the input),
    `work(names)` seconds of another floor, None where layers cannot be one kernel."""

    sizes: Callable[[str], int]
    work: Callable[[Names], float | None]
    name: str = "moves"

    @property
    def wants(self) -> Wants:
        return Wants(floats_as("float16"), "channels_last")

    def accepts(self, graph: Graph, op: Op, constants: Constants, chip: Chip) -> str | None:
        del graph, op, constants, chip
        return None

    def can_fuse_epilogue(self, graph: Graph, layer: tuple[Op, ...], op: Op, operand: str) -> str | None:
        del graph, layer, op, operand
        return "layers are single operators here"

    def kernels(self, graph: Graph, layers: tuple[Layer, ...], chip: Chip) -> tuple[Kernel, ...]:
        seconds = self.work(tuple(layer.name for layer in layers))
        if seconds is None:
            return ()
        made, inside = {layer.output for layer in layers}, {name for layer in layers for name in layer.ops}
        read = {name for layer in layers for name in layer.inputs(graph)} - made
        left = {n for n in made if n in graph.outputs or any(op.name not in inside for op in graph.consumers[n])}
        values = tuple((name, self.sizes(name.removesuffix(".out"))) for name in sorted(read | left))
        main = chip.memory("HBM")
        rate = (main.bandwidth_bytes_per_cycle or 0) * chip.clock_hz
        floors = (KernelFloor("HBM", sum(size for _, size in values) / rate), KernelFloor("tensor", seconds))
        return (Kernel("moves", launch_seconds=LAUNCH_SECONDS, floors=floors, values=values),)


def gpu_context(made: tuple[Graph, Constants], target: Moves, chip: Chip = GPU) -> KernelContext:
    return GraphContext(*made, chip, target)


def all_covers(ctx: KernelContext) -> Iterator[tuple[tuple[Layer, ...], ...]]:
    """Every way to divide the layers among groups that have a kernel and can run one after the other, by trying all."""
    layers = ctx.layers

    def offered(group: tuple[Layer, ...]) -> bool:
        if any(layer.is_view(ctx.graph) for layer in group):
            return len(group) == 1
        return bool(ctx.target.kernels(ctx.graph, group, ctx.chip))

    def divided(rest: tuple[Layer, ...]) -> Iterator[tuple[tuple[Layer, ...], ...]]:
        if not rest:
            yield ()
            return
        first, *others = rest
        for chosen in range(1 << len(others)):
            group = (first, *(layer for k, layer in enumerate(others) if chosen >> k & 1))
            if not offered(group):
                continue
            left = tuple(layer for layer in others if layer not in group)
            yield from ((group, *more) for more in divided(left))

    for cover in divided(layers):
        if _orderable(ctx.graph, cover):
            yield cover


def _orderable(graph: Graph, groups: Sequence[tuple[Layer, ...]]) -> bool:
    """Is there an order in which each group runs after all that it reads?"""
    made = {*graph.inputs, *(tensor.name for tensor in graph.tensors if tensor.constant)}
    waiting = list(groups)
    while waiting:
        ready = [
            group
            for group in waiting
            if {n for layer in group for n in layer.inputs(graph)} <= made | {layer.output for layer in group}
        ]
        if not ready:
            return False
        made |= {layer.output for group in ready for layer in group}
        waiting = [group for group in waiting if group not in ready]
    return True
