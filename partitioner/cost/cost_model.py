"""Cycles of one run of a plan, before anything is lowered: what batches and plans are compared by.

    Plan --lay out--> Layout --traffic--> busy cycles of every engine, step by step --added up--> PlanCost

Two sums bracket a run. `serial_cycles`: every engine waits for every other, so their cycles add up.
`overlapped_cycles`: inside a step all engines work at once and the busiest one counts. Both hold the launch and the
barriers; queues, issue and waiting for single instructions are in neither, nor are other clusters that share a memory.

Decisions use the serial sum. Programs as they are lowered put barriers between loading, computing and storing, and
engines of a core mostly wait for each other's tiles. `benchmarks/partition.py` sets both beside
`isched.timing.cycle_model`: the serial sum is nearer to it, and puts batches in its order.
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
    """One step of the plan: cycles that each engine works (of the busiest core, round by round), and its barriers."""

    kind: str
    group: str
    instance: int
    busy: Mapping[str, float]
    barriers: int

    @property
    def serial_cycles(self) -> float:
        """When each engine waits for the others, barriers not counted."""
        return sum(self.busy.values())

    @property
    def overlapped_cycles(self) -> float:
        """When all engines work at once, barriers not counted."""
        return max(self.busy.values(), default=0.0)


@dataclass(frozen=True)
class PlanCost:
    """One run of a plan on one cluster. A compiled plan is one program, launched once a run; `kernels` says how many
    launches a runtime would need that launches each kernel by itself."""

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
        """Launch, barriers, and everything one after the other."""
        return self._fixed + sum(step.serial_cycles for step in self.steps)

    @cached_property
    def overlapped_cycles(self) -> float:
        """Launch, barriers, and of every step the busiest engine."""
        return self._fixed + sum(step.overlapped_cycles for step in self.steps)

    @property
    def cycles(self) -> float:
        """What decisions use: the serial sum, which is nearer to the programs that are made."""
        return self.serial_cycles

    @property
    def by_kernel_cycles(self) -> float:
        """The serial sum under a runtime that launches each kernel by itself."""
        return self.serial_cycles + max(0, self.kernels - 1) * self.launch_cycles

    @property
    def _fixed(self) -> float:
        return self.launch_cycles + self.barriers * self.sync_cycles


def plan_cycles(plan: Plan, ctx: PlanContext) -> PlanCost:
    """Lay a plan out and cost it; takes about as long as laying it out twice. Raises DoesNotFit or PlanError."""
    return cost_of(plan, plan_traffic(plan, lay_out(plan, ctx), ctx), ctx)


def cost_of(plan: Plan, traffic: Traffic, ctx: PlanContext) -> PlanCost:
    """The cost of a plan whose traffic was counted with that of its tiles."""
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
