"""The check of a plan, whoever made it: each operator and instance once, and all inputs made before they are read.

plan, context --> nothing, or PlanError that names the step
"""

from __future__ import annotations

from math import prod

from hw_models.errors import PlanError
from partitioner.context.plan_context import PlanContext
from partitioner.ir.plan import Group, Plan, Spill
from partitioner.ir.steps import MoveStep, RunStep, ViewStep, scopes_of
from partitioner.verification.coverage import verify_coverage
from partitioner.verification.operator_cover import verify_operators_once


def verify_plan(plan: Plan, ctx: PlanContext) -> None:
    """Raises PlanError unless each operator is in one layer of one group, each instance runs once and covers its part
    of the output, all that an instance reads was computed before, bindings name cores that exist, scopes are memories
    of the chip, a reader runs after each move, and what each core reads is covered (`coverage.py` next to this module).
    `partitioner.memory.memory_plan` decides whether everything fits."""
    graph, chip = ctx.graph, ctx.chip
    verify_operators_once(plan, graph)
    memories = {memory.name: memory for memory in chip.memories}
    for group in plan.groups:
        _verify_spills(group, ctx)
        _verify_exchanges(group)
    _verify_readers(plan)
    ready = set(graph.inputs) | {t.name for t in graph.tensors if t.constant}
    for step in plan.steps:
        group = plan.group_by_name[step.group]
        for scope in scopes_of(step):
            if scope not in memories:
                raise PlanError(who=f"step {step.group}", needs=f"a memory of {chip.name}", has=scope)
        cores = () if isinstance(step, ViewStep) else step.binding.cores
        if any(core < 0 or core >= chip.cores_per_cluster for core in cores):
            raise PlanError(who=f"step {step.group}", needs=f"cores below {chip.cores_per_cluster}", has=str(cores))
        for exchange in group.exchanges_of(step.instance) if isinstance(step, RunStep) else ():
            if prod(exchange.pieces) > len(cores):
                raise PlanError(
                    who=f"step {step.group}",
                    needs=f"a core for each of {prod(exchange.pieces)} pieces of {exchange.tensor}",
                    has=f"{len(cores)} cores",
                )
        if isinstance(step, MoveStep):
            if memories[step.scope].scope != "core" or step.tensor not in ready:
                raise PlanError(
                    who=f"step {step.kind} {step.tensor}",
                    needs="a computed value and a memory of a core",
                    has=step.scope,
                )
            continue
        ready.update(name for layer in group.layers for op in layer.ops for name in graph.op_by_name[op].outputs)
    verify_coverage(plan, ctx)


def _verify_readers(plan: Plan) -> None:
    """Require that each move is for an instance that runs later."""
    later: set[tuple[str, int]] = set()
    for step in reversed(plan.steps):
        if isinstance(step, RunStep):
            later.add((step.group, step.instance))
        elif isinstance(step, MoveStep) and (step.group, step.instance) not in later:
            raise PlanError(
                who=f"step {step.kind} {step.tensor}",
                needs="an instance that runs after it",
                has=f"instance {step.instance} of group {step.group}",
            )


def _verify_exchanges(group: Group) -> None:
    """Require that an instance has a value in only one way, and that exchanges name existing instances."""
    for exchange in group.exchanges:
        named = () if isinstance(exchange, Spill) else exchange.instances
        if odd := [number for number in named if not 0 <= number < group.split.instances]:
            raise PlanError(
                f"group {group.name}",
                needs=f"instances below {group.split.instances} that exchange {exchange.tensor}",
                has=str(odd[0]),
            )
    for number in {number for exchange in group.exchanges for number in getattr(exchange, "instances", ())}:
        found = [exchange.tensor for exchange in group.exchanges_of(number)]
        if len(set(found)) < len(found):
            raise PlanError(
                f"group {group.name}", needs="each value cut in one way", has=f"two ways in instance {number}"
            )


def _verify_spills(group: Group, ctx: PlanContext) -> None:
    """Require that a spilled value is made and read inside the group, and goes to a memory that its cores share."""
    shared = {memory.name for memory in ctx.chip.memories if memory.scope != "core"}
    inner = {layer.output for layer in group.layers} - set(group.outputs(ctx.graph))
    for spill in group.spills:
        if spill.scope not in shared or spill.tensor not in inner:
            raise PlanError(
                f"group {group.name}",
                needs=f"a value of its own and one of {', '.join(sorted(shared))} to spill it to",
                has=f"{spill.tensor} to {spill.scope}",
            )
