"""The stages for a target of in-order cores, after the frontend; the driver puts them in a row.

    model --plan_tiles--> Planned --laid_out--> Layout --lower, schedule--> Lowered

Each result is verified as it is made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Generic, TypeVar

from codegen.target import TileTarget
from dsa_sched.frontend import Model
from dsa_sched.stages.chunked_model import chunked_model
from dsa_sched.stages.compilation import CompileOptions, Lowered
from hw_models.chip import Chip
from isched.hazards.verify_program import verify_program
from isched.lowering.lower import lower_layout
from isched.program.program import Program
from isched.program.target import ChoosesForms, Timeable
from isched.scheduling.schedule import list_scheduled, scheduled_lowering
from isched.timing.cycle_model import EndedRun, run_below
from partitioner.context.plan_context import Context, PlanContext
from partitioner.ir.plan import Plan
from partitioner.ir.target import PlanTarget
from partitioner.memory.memory_plan import lay_out
from partitioner.memory.memory_plan_types import FOR_CONSTANTS_AHEAD, FOR_SCHEDULING, PLAIN, Layout, LayoutOptions
from partitioner.planners.levels import Planner, Streamed
from partitioner.planners.registry import make_plan
from partitioner.verification.verify_layout import verify_layout

Progress = Callable[[str], None]
TargetT = TypeVar("TargetT", bound=PlanTarget, covariant=True)
TiledT = TypeVar("TiledT", bound=PlanTarget)


@dataclass(frozen=True, slots=True)
class Planned(Generic[TargetT]):
    """A model with its plan, and the context in which the plan was made: the state before lowering. `layout_options`
    says how the program is laid out where a search has already made it.
    """

    model: Model
    context: Context[TargetT]
    plan: Plan
    layout_options: LayoutOptions | None = None


def plan_tiles(model: Model, chip: Chip, target: TiledT, planner: Planner) -> Planned[TiledT]:
    """Graph -> Plan for in-order cores, verified. Raises ModelError, PlanError or DoesNotFit."""
    if planner == Streamed(chunks=True):
        model = chunked_model(model, chip, target) or model
    ctx = Context(model.graph, model.constants, chip, target)
    return Planned(model, ctx, make_plan(ctx, planner))


def laid_out(plan: Plan, ctx: PlanContext, options: LayoutOptions = PLAIN) -> Layout:
    """Layout of a plan, verified. Raises DoesNotFit or PlanError."""
    layout = lay_out(plan, ctx, options)
    verify_layout(layout, plan, ctx)
    return layout


def lower(planned: Planned[TileTarget], options: CompileOptions, progress: Progress) -> Lowered:
    """Plan -> Layout -> Program, scheduled where the options say so, verified. Raises DoesNotFit or PlanError."""
    if options.schedule and planned.layout_options is not None:
        return verified(planned, _lowered_again(planned, planned.layout_options, options, progress), progress)
    if options.schedule:
        found = lower_below(planned, options, progress)
        assert found is not None  # nothing reaches an endless limit
        return verified(planned, found[0], progress)
    progress("lowering")
    layout = laid_out(planned.plan, planned.context)
    return verified(planned, Lowered(planned.context.target, layout, _program(planned, layout, options)), progress)


def _lowered_again(
    planned: Planned[TileTarget], layout_options: LayoutOptions, options: CompileOptions, progress: Progress
) -> Lowered:
    """The scheduled program of a plan whose layout a search has chosen. Only where addresses leave no room for running
    ahead are two orders timed again."""
    chip, target = planned.context.chip, planned.context.target
    assert isinstance(target, Timeable)  # asked before any work
    progress("lowering")
    layout = laid_out(planned.plan, planned.context, layout_options)
    program = _program(planned, layout, options)
    progress("scheduling")
    ordered = list_scheduled(program, chip, target)
    if layout_options == PLAIN:
        plain = run_below(program, chip, target)
        assert plain is not None  # nothing reaches an endless limit
        ordered = program if run_below(ordered, chip, target, plain.cycles) is None else ordered
    return Lowered(planned.context.target, layout, ordered)


def lower_below(
    planned: Planned[TileTarget], options: CompileOptions, progress: Progress, limit_cycles: float = inf
) -> tuple[Lowered, EndedRun] | None:
    """Like `lower`, with the cycles that the cycle model finds and their run, and not verified yet; None where the
    cycles are not below the limit. With constants that arrive early, only one layout and the scheduler's order are
    tried. The target must be one that can be timed. Raises DoesNotFit or PlanError.
    """
    chip, target = planned.context.chip, planned.context.target
    assert isinstance(target, Timeable)  # asked before any work
    layouts: dict[LayoutOptions, Layout] = {}

    def lowered(layout_options: LayoutOptions) -> Program:
        progress("lowering")
        layouts[layout_options] = laid_out(planned.plan, planned.context, layout_options)
        found = _program(planned, layouts[layout_options], options)
        if options.schedule:
            progress("scheduling")
        return found

    if options.schedule and not options.constants_ahead:
        best = scheduled_lowering(lambda ahead: lowered(FOR_SCHEDULING if ahead else PLAIN), chip, target, limit_cycles)
        if best is None:
            return None
        assert best.run is not None  # it was timed
        layout = layouts[FOR_SCHEDULING if best.ahead else PLAIN]
        return Lowered(planned.context.target, layout, best.program, best.cycles), best.run
    ahead = FOR_CONSTANTS_AHEAD if options.constants_ahead else FOR_SCHEDULING
    layout_options = ahead if options.schedule else PLAIN
    program = lowered(layout_options)
    if options.schedule:
        program = list_scheduled(program, chip, target)
    run = run_below(program, chip, target, limit_cycles)
    return None if run is None else (Lowered(planned.context.target, layouts[layout_options], program, run.cycles), run)


def _program(planned: Planned[TileTarget], layout: Layout, options: CompileOptions) -> Program:
    ctx, base = planned.context, planned.context.target.data_base_bytes
    program = lower_layout(layout, ctx, base, options.isolated, options.keep_values, options.shared)
    if not isinstance(ctx.target, ChoosesForms):
        return program
    layers = tuple(layer for group in planned.plan.groups for layer in group.layers)
    return ctx.target.in_fastest_forms(program, ctx.graph, ctx.constants, layers, ctx.chip)


def verified(planned: Planned[TileTarget], lowered: Lowered, progress: Progress) -> Lowered:
    """`lowered`, verified. Raises PlanError for a program that is wrong."""
    progress("verifying the program")
    verify_program(lowered.program, planned.context.chip)
    return lowered
