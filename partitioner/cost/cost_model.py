"""Cycles of one run of a plan, before anything is lowered: what batches and plans are compared by.

    Plan --lay out--> Layout --traffic--> busy cycles of every engine, step by step --added up--> PlanCost

Two sums bracket a run. `serial_cycles`: every engine waits for every other, so their cycles add up.
`overlapped_cycles`: inside a step all engines work at once and the busiest one counts. Both hold the launch and the
barriers; queues, issue and waiting for single instructions are in neither, nor are other clusters that share a memory.

Decisions use the serial sum. Programs as they are lowered put barriers between loading, computing and storing, and
engines of a core mostly wait for each other's tiles. `benchmarks/partition.py` sets both beside the clock of
`isched.timing.cycle_model`: the serial sum is nearer to it, and puts batches in its order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from partitioner.context.plan_context import PlanContext
from partitioner.cost.traffic import Traffic, plan_traffic
from partitioner.ir.graph import Graph
from partitioner.ir.layers import Layer
from partitioner.ir.plan import Plan
from partitioner.memory.memory_plan import LayerLayout, Layout, MoveLayout, lay_out

__all__ = ["PlanCost", "StepCost", "barrier_count", "cost_of", "plan_cycles"]


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
    layout = lay_out(plan, ctx)
    return cost_of(plan, layout, plan_traffic(plan, layout, ctx), ctx)


def cost_of(plan: Plan, layout: Layout, traffic: Traffic, ctx: PlanContext) -> PlanCost:
    """The cost of a plan whose traffic was counted with that of its tiles."""
    graph, assumed = ctx.graph, ctx.chip.assumed
    busy: list[dict[str, float]] = [{} for _ in plan.steps]
    for part in traffic.parts:
        here = busy[part.step]
        for engine, cycles in part.busy:
            here[engine] = here.get(engine, 0.0) + cycles
    steps = tuple(
        StepCost(step.kind, step.group, step.instance, spent, barrier_count(laid, layout, graph))
        for step, laid, spent in zip(plan.steps, layout.steps, busy, strict=True)
    )
    return PlanCost(steps, assumed.launch_cycles, assumed.sync_cycles)


def barrier_count(laid: tuple[LayerLayout, ...] | MoveLayout, layout: Layout, graph: Graph) -> int:
    """Barriers of one step, as lowering puts them: around rounds that share something, exchanges, stores and moves."""
    if isinstance(laid, MoveLayout):
        return 3 if laid.buffer is not None else 2
    return sum(_barriers(entry, layout, graph) for entry in laid)


def _barriers(entry: LayerLayout, layout: Layout, graph: Graph) -> int:
    shares = bool(entry.sources or entry.destination or _pinned(entry.layer, layout, graph))
    rounds = sum(2 for _, stage in entry.rounds if shares or stage.inputs or stage.outputs)
    exchange = 2 if entry.exchange is not None else 0
    return rounds + exchange + sum(3 if store.buffer is not None else 2 for store in entry.stores)


def _pinned(layer: Layer, layout: Layout, graph: Graph) -> bool:
    return any(name in layout.pinned for name in layer.inputs(graph))
