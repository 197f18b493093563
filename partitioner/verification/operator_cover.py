"""The check that a plan, for any kind of target, has every operator and every instance once."""

from __future__ import annotations

from hw_models.errors import PlanError
from partitioner.ir.graph import Graph
from partitioner.ir.plan import Plan
from partitioner.ir.steps import MoveStep


def verify_operators_once(plan: Plan, graph: Graph) -> None:
    """Raises PlanError unless each operator is in one layer of one group and each instance of a group runs once."""
    covered = [name for group in plan.groups for layer in group.layers for name in layer.ops]
    if sorted(covered) != sorted(op.name for op in graph.ops):
        odd = set(covered) ^ {op.name for op in graph.ops} or {n for n in covered if covered.count(n) > 1}
        raise PlanError(
            who=f"plan {plan.name}", needs="every operator once", has=f"not once: {', '.join(sorted(odd)[:8])}"
        )
    made = sorted((step.group, step.instance) for step in plan.steps if not isinstance(step, MoveStep))
    if sum(group.split.instances for group in plan.groups) != len(made) or made != sorted(
        (group.name, instance) for group in plan.groups for instance in range(group.split.instances)
    ):  # a plan may come from a stranger: its number of instances is compared first
        raise PlanError(who=f"plan {plan.name}", needs="every instance of every group once")
