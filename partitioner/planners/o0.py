"""One group a layer: what levels O0, O1 and O2 share, and O0 itself.

graph --layers--> groups --bind--> steps, every output in the main memory (O0: what TVM would make)
"""

from __future__ import annotations

from collections.abc import Sequence

from hw_models.chip import Chip
from hw_models.routes import main_memory
from partitioner.ir.decisions import Decision
from partitioner.ir.graph import Graph
from partitioner.ir.layers import Layer, group_layers
from partitioner.ir.plan import Binding, Group, Plan, Step
from partitioner.ir.regions import full_box
from partitioner.ir.structural_key import likeness
from partitioner.ir.target import PlanTarget
from partitioner.tiling.core_partition import bind

__all__ = ["batch_of", "bound_step", "in_main", "layer_plan", "view_step", "views_alone"]


def in_main(graph: Graph, chip: Chip, target: PlanTarget) -> Plan:
    """Level O0: one kernel a layer, every output in the main memory, every layer on the cores that make it fastest."""
    layers, decisions = group_layers(graph, target.can_trail)
    main = main_memory(chip)
    reasons = list(decisions)
    steps: list[Step] = []
    known: dict[tuple[object, ...], tuple[Binding, float]] = {}
    for layer in layers:
        if layer.anchor(graph).kind == "view":
            steps.append(view_step(graph, layer, main))
            continue
        step, reason = bound_step(graph, layer, main, target, chip, known)
        steps.append(step)
        reasons.append(reason)
    return layer_plan(graph, chip, "O0", layers, steps, reasons)


def layer_plan(
    graph: Graph,
    chip: Chip,
    level: str,
    layers: Sequence[Layer],
    steps: Sequence[Step],
    decisions: Sequence[Decision],
) -> Plan:
    """A plan with one group a layer."""
    groups = tuple(Group(layer.name, (layer,)) for layer in layers)
    return Plan(graph.name, level, graph.hash, chip.hash, batch_of(graph), groups, tuple(steps), tuple(decisions))


def views_alone(
    graph: Graph, chip: Chip, level: str, layers: Sequence[Layer], decisions: Sequence[Decision]
) -> Plan | None:
    """The plan of a graph that computes nothing; None for others."""
    if any(layer.anchor(graph).kind != "view" for layer in layers):
        return None
    steps = [view_step(graph, layer, main_memory(chip)) for layer in layers]
    return layer_plan(graph, chip, level, layers, steps, decisions)


def batch_of(graph: Graph) -> int:
    """Extent of the outermost axis of the first input."""
    return graph.by_name[graph.inputs[0]].shape[0] if graph.inputs and graph.by_name[graph.inputs[0]].shape else 1


def view_step(graph: Graph, layer: Layer, scope: str) -> Step:
    """Another name for the same bytes; no core has to do anything."""
    box = full_box(graph.by_name[layer.output].shape)
    return Step("view", layer.name, 0, box, scope, Binding((1,) * len(box), (0,)))


def bound_step(
    graph: Graph,
    layer: Layer,
    scope: str,
    target: PlanTarget,
    chip: Chip,
    known: dict[tuple[object, ...], tuple[Binding, float]],
) -> tuple[Step, Decision]:
    """A layer as its own kernel on the cores that are done soonest; `known` remembers how layers like it were bound."""
    box = full_box(graph.by_name[layer.output].shape)
    alike = likeness(graph, layer)
    if alike not in known:
        known[alike] = bind(graph, layer, box, target, chip)
    binding, cycles = known[alike]
    decision = Decision(layer.name, f"bound to {len(binding.cores)} cores as {list(binding.pieces)}",
                        f"the slowest core needs about {cycles:.0f} cycles, fewest of all cuts")  # fmt: skip
    return Step("run", layer.name, 0, box, scope, binding), decision
