"""Cycles of one run of a plan before anything is lowered, by which batches and plans are compared.

    Plan --lay out--> Layout --traffic--> busy cycles of every engine, step by step --added up--> PlanCost

Two sums bracket a run. `serial_cycles`: every engine waits for every other, so their cycles add up.
`overlapped_cycles`: inside a step all engines work at once and the busiest one counts. Both include the launch and the
barriers; queues, issue and waiting for single instructions are in neither, nor are other clusters that share a memory.

Decisions use the serial sum. Unscheduled programs put barriers between loading, computing and storing, and engines of a
core mostly wait for each other's tiles. `benchmarks/partition.py` compares both with `isched.timing.cycle_model`: the
serial sum is nearer to it, and puts batches in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from partitioner.context.plan_context import PlanContext
from partitioner.cost.traffic import Traffic, plan_traffic
from partitioner.ir.plan import Plan
from partitioner.memory.memory_plan import lay_out


@dataclass(frozen=True, slots=True)
class StepCost:
    """One step of the plan: the work of each engine in cycles (of the busiest core, round by round), and the
    barriers."""

    kind: str
    group: str
    instance: int
    busy: Mapping[str, float]
    barriers: int

    @property
    def serial_cycles(self) -> float:
        """Cycles when each engine waits for the others, without barriers."""
        return sum(self.busy.values())

    @property
    def overlapped_cycles(self) -> float:
        """Cycles when all engines work at once, without barriers."""
        return max(self.busy.values(), default=0.0)


@dataclass(frozen=True)
class PlanCost:
    """One run of a plan on one cluster. A compiled plan is one program, launched once per run; `kernels` is the number
    of launches of a runtime that launches each kernel by itself."""

    steps: tuple[StepCost, ...]
    launch_cycles: float
    sync_cycles: float

    @cached_property
    def kernels(self) -> int:
        return sum(step.kind == "run" for step in self.steps)

    @cached_property
    def barriers(self) -> int:
        return sum(step.barriers for step in self.steps)

    @cached_property
    def serial_cycles(self) -> float:
        """Cycles of launch, barriers, and everything else one after the other."""
        return self._fixed + sum(step.serial_cycles for step in self.steps)

    @cached_property
    def overlapped_cycles(self) -> float:
        """Cycles of launch, barriers, and the busiest engine of every step."""
        return self._fixed + sum(step.overlapped_cycles for step in self.steps)

    @property
    def cycles(self) -> float:
        """Cycles for decisions: the serial sum, which is nearer to the cycles of real programs."""
        return self.serial_cycles

    @property
    def _fixed(self) -> float:
        return self.launch_cycles + self.barriers * self.sync_cycles


def plan_cycles(plan: Plan, ctx: PlanContext) -> PlanCost:
    """Lay out a plan and compute its cost; takes about as long as laying it out twice. Raises DoesNotFit or
    PlanError."""
    return cost_of(plan, plan_traffic(plan, lay_out(plan, ctx), ctx), ctx)


def cost_of(plan: Plan, traffic: Traffic, ctx: PlanContext) -> PlanCost:
    """The cost of a plan whose traffic was counted including that of its tiles."""
    assumed = ctx.chip.assumed
    busy: list[dict[str, float]] = [{} for _ in plan.steps]
    barriers = [0 for _ in plan.steps]
    for part in traffic.parts:
        barriers[part.step] += part.barriers
        here = busy[part.step]
        for engine, cycles in part.busy:
            here[engine] = here.get(engine, 0.0) + cycles
    steps = tuple(
        StepCost(step.kind, step.group, step.instance, spent, met)
        for step, spent, met in zip(plan.steps, busy, barriers, strict=True)
    )
    return PlanCost(steps, assumed.launch_cycles, assumed.sync_cycles)
