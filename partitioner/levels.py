"""Plans by level. O0 is what TVM would make: one kernel a layer, every output in the main memory."""

from __future__ import annotations

from hw_models.chip import Chip
from hw_models.errors import ModelError
from hw_models.routes import main_memory
from partitioner.binding import bind
from partitioner.decisions import Decision
from partitioner.graph import Constants, Graph, Op
from partitioner.layers import group_layers
from partitioner.plan import Binding, Group, Plan, Step, verify_plan
from partitioner.regions import full_box
from partitioner.target import PlanTarget

__all__ = ["LEVELS", "make_plan"]

LEVELS = ("O0",)


def make_plan(graph: Graph, constants: Constants, chip: Chip, target: PlanTarget, level: str = "O0") -> Plan:
    """Partition `graph` for one cluster of `chip`. Raises ModelError listing all operators it cannot compute."""
    refuse_unsupported(graph, constants, chip, target)
    layers, decisions = group_layers(graph, target.can_trail)
    groups = tuple(Group(layer.name, (layer,)) for layer in layers)
    reasons = list(decisions)
    main = main_memory(chip)
    steps: list[Step] = []
    for group in groups:
        layer = group.layers[0]
        box = full_box(graph.by_name[layer.output].shape)
        if layer.anchor(graph).kind == "view":
            steps.append(Step("view", group.name, 0, box, main, Binding((1,) * len(box), (0,))))
            continue
        binding, cycles = bind(graph, layer, box, target, chip)
        steps.append(Step("run", group.name, 0, box, main, binding))
        reasons.append(Decision(layer.name, f"bound to {len(binding.cores)} cores as {list(binding.pieces)}",
                                f"the slowest core needs about {cycles:.0f} cycles, fewest of all cuts"))  # fmt: skip
    batch = graph.by_name[graph.inputs[0]].shape[0] if graph.inputs and graph.by_name[graph.inputs[0]].shape else 1
    plan = Plan(graph.name, level, graph.hash, chip.hash, batch, groups, tuple(steps), tuple(reasons))
    verify_plan(plan, graph, chip)
    return plan


def refuse_unsupported(graph: Graph, constants: Constants, chip: Chip, target: PlanTarget) -> None:
    """All operators that the target cannot compute, in one error."""
    refused = [(op, reason) for op in graph.ops if (reason := target.accepts(graph, op, constants, chip))]
    if refused:
        lines = [f"  {op.name} ({op.source or op.kind} of {_shapes(graph, op)}): {reason}" for op, reason in refused]
        raise ModelError(who=graph.name, needs=f"only operators that {target.name} can compute",
                         has=f"{len(refused)} that it cannot:\n" + "\n".join(lines))  # fmt: skip


def _shapes(graph: Graph, op: Op) -> str:
    return ", ".join(f"{list(graph.by_name[name].source_shape or graph.by_name[name].shape)}" for name in op.inputs)
