"""Programs in one call, for tests and benchmarks that need no layout and no search.

Plan --lower_plan--> Program --schedule_program--> Program in the scheduler's order, if that is faster
"""

from __future__ import annotations

from hw_models.chip import Chip
from isched.lowering.lower import lower_layout
from isched.lowering.tile_code import LowerContext
from isched.program.program import Program
from isched.program.target import Timeable
from isched.scheduling.schedule import list_scheduled
from isched.timing.cycle_model import run_below
from partitioner.ir.plan import Plan
from partitioner.memory.memory_plan import lay_out
from partitioner.memory.memory_plan_types import LayoutOptions


def lower_plan(
    plan: Plan,
    ctx: LowerContext,
    base_bytes: int,
    isolated: bool = False,
    overlap: bool = False,
    keep_values: bool = False,
    apart: bool = True,
) -> Program:
    """Lay out a plan and lower it: for callers that need no layout. With `overlap`, addresses leave room for running
    ahead; unless `apart` is false, data of layers that follow each other then have separate places where there is room.
    Raises PlanError and DoesNotFit as `lay_out` and `lower_layout` do."""
    layout = lay_out(plan, ctx, LayoutOptions(rounds_ahead=overlap, buffers_apart=overlap and apart))
    return lower_layout(layout, ctx, base_bytes, isolated, keep_values)


def schedule_program(program: Program, chip: Chip, target: Timeable) -> Program:
    """A program in the order that list scheduling finds, or unchanged where the cycle model says that this is faster.

    `verify_program` must accept `program`; it then accepts the result too."""
    scheduled = list_scheduled(program, chip, target)
    run = run_below(scheduled, chip, target)
    assert run is not None  # no run reaches an infinite limit
    return scheduled if run_below(program, chip, target, run.cycles) is None else program
