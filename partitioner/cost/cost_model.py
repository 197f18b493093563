"""Cycles of one run of a plan before anything is lowered, by which plans and batches are compared.

    Plan --lay out--> Layout --expand--> events --two clocks, step by step--> PlanCost

`serial_cycles` are those of an unscheduled program, which does one thing after the other on each core;
`overlapped_cycles` those of a scheduled one, whose engines work as soon as their data are there
(`partitioner/cost/run_clock.py`). Both include the launch and the barriers. Other clusters that share a memory are in
neither. `benchmarks/price.py` compares both with `isched.timing.cycle_model`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from partitioner.context.plan_context import PlanContext
from partitioner.cost.move_costs import MoveCosts
from partitioner.cost.run_clock import OverlapClock, SerialClock
from partitioner.expansion.expansion import Barrier, Begin, Event, expand
from partitioner.ir.plan import Plan
from partitioner.memory.memory_plan import lay_out
from partitioner.memory.memory_plan_types import Layout


@dataclass(frozen=True, slots=True)
class StepCost:
    """One step of the plan: the cycles by which it lengthens the run in the plan's order and in a scheduler's, where
    others may hide it, and its barriers."""

    kind: str
    group: str
    instance: int
    serial_cycles: float = 0.0
    overlapped_cycles: float = 0.0
    barriers: int = 0


@dataclass(frozen=True)
class PlanCost:
    """One run of a plan on one cluster. A compiled plan is one program, launched once per run; `kernels` is the number
    of launches of a runtime that launches each kernel by itself."""

    steps: tuple[StepCost, ...]
    launch_cycles: float

    @cached_property
    def kernels(self) -> int:
        return sum(step.kind == "run" for step in self.steps)

    @cached_property
    def barriers(self) -> int:
        return sum(step.barriers for step in self.steps)

    @cached_property
    def serial_cycles(self) -> float:
        """Cycles of an unscheduled program, launch included."""
        return self.launch_cycles + sum(step.serial_cycles for step in self.steps)

    @cached_property
    def overlapped_cycles(self) -> float:
        """Cycles of a scheduled program, launch included."""
        return self.launch_cycles + sum(step.overlapped_cycles for step in self.steps)

    @property
    def cycles(self) -> float:
        """Cycles for decisions about plans of which nobody knows whether their programs will be scheduled."""
        return self.serial_cycles


def plan_cycles(plan: Plan, ctx: PlanContext) -> PlanCost:
    """Lay out a plan and compute its cost; takes about as long as laying it out twice. Raises DoesNotFit or
    PlanError."""
    return cost_of(plan, lay_out(plan, ctx), ctx)


def cost_of(plan: Plan, layout: Layout, ctx: PlanContext) -> PlanCost:
    """The cost of a plan with this layout."""
    return cost_of_events(plan, layout, ctx, expand(layout, ctx))


def cost_of_events(plan: Plan, layout: Layout, ctx: PlanContext, events: Iterable[Event]) -> PlanCost:
    """Like `cost_of`, for a layout that is expanded already."""
    costs = MoveCosts(ctx, layout)
    serial, overlapped = SerialClock(costs), OverlapClock(costs)
    ends = [(0.0, 0.0)] * len(plan.steps)
    barriers = [0] * len(plan.steps)
    position = 0
    for event in events:
        if isinstance(event, Begin):
            position = event.position
            continue
        barriers[position] += isinstance(event, Barrier) and not event.drains
        serial.add(event)
        overlapped.add(event)
        ends[position] = serial.end, overlapped.end
    return PlanCost(tuple(_steps(plan, ends, barriers)), ctx.chip.assumed.launch_cycles)


def _steps(plan: Plan, ends: list[tuple[float, float]], barriers: list[int]) -> list[StepCost]:
    """The cost of each step, from the times of both clocks at its end; a step without events takes no time."""
    serial = overlapped = 0.0
    steps = []
    for step, end, met in zip(plan.steps, ends, barriers, strict=True):
        ended = max(serial, end[0]), max(overlapped, end[1])
        steps.append(StepCost(step.kind, step.group, step.instance, ended[0] - serial, ended[1] - overlapped, met))
        serial, overlapped = ended
    return steps
