"""The check of a plan, whoever made it: each operator and instance once, and whatever is read was made before.

plan, context --> nothing, or PlanError that names the step
"""

from __future__ import annotations

from math import prod

from hw_models.errors import PlanError
from partitioner.context.plan_context import PlanContext
from partitioner.ir.plan import MOVES, Group, Plan
from partitioner.verification.coverage import verify_coverage
from partitioner.verification.operator_cover import verify_operators_once

__all__ = ["verify_plan"]


def verify_plan(plan: Plan, ctx: PlanContext) -> None:
    """Raises PlanError unless each operator is in one layer of one group, each instance runs once and covers its part
    of the output, all that an instance reads was computed before, bindings name cores that exist, scopes are memories
    of the chip, and what each core reads is covered (`partitioner.verification.coverage`). Whether everything fits is
    `partitioner.memory.memory_plan`'s to say."""
    graph, chip = ctx.graph, ctx.chip
    verify_operators_once(plan, graph)
    memories = {memory.name: memory for memory in chip.memories}
    for group in plan.groups:
        _verify_spills(group, ctx)
    ready = set(graph.inputs) | {t.name for t in graph.tensors if t.constant}
    for step in plan.steps:
        group = plan.group_by_name[step.group]
        for scope in (step.scope, *(scope for _, scope in step.exports)):
            if scope not in memories:
                raise PlanError(who=f"step {step.group}", needs=f"a memory of {chip.name}", has=scope)
        if any(core < 0 or core >= chip.cores_per_cluster for core in step.binding.cores):
            raise PlanError(
                who=f"step {step.group}", needs=f"cores below {chip.cores_per_cluster}", has=str(step.binding.cores)
            )
        for exchange in group.exchanges if step.kind == "run" else ():
            if prod(exchange.pieces) > len(step.binding.cores):
                raise PlanError(
                    who=f"step {step.group}",
                    needs=f"a core for each of {prod(exchange.pieces)} pieces of {exchange.tensor}",
                    has=f"{len(step.binding.cores)} cores",
                )
        if step.kind in MOVES:
            if memories[step.scope].scope != "core" or step.tensor not in ready:
                raise PlanError(
                    who=f"step {step.kind} {step.tensor}",
                    needs="a computed value and a memory of a core",
                    has=step.scope,
                )
            continue
        ready.update(name for layer in group.layers for op in layer.ops for name in graph.op_by_name[op].outputs)
    verify_coverage(plan, ctx)


def _verify_spills(group: Group, ctx: PlanContext) -> None:
    """What is spilled is made and read inside the group, and goes to a memory that its cores share."""
    shared = {memory.name for memory in ctx.chip.memories if memory.scope != "core"}
    inner = {layer.output for layer in group.layers} - set(group.outputs(ctx.graph))
    for exchange in group.exchanges:
        if exchange.scope and (exchange.scope not in shared or exchange.tensor not in inner):
            raise PlanError(
                f"group {group.name}",
                needs=f"a value of its own and one of {', '.join(sorted(shared))} to spill it to",
                has=f"{exchange.tensor} to {exchange.scope}",
            )
