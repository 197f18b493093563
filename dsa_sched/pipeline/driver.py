"""The driver: one function a step, from a model file to an artifact.

    target whose kernels are tiles of in-order cores (TileTarget)
        load_model -> Graph -> make_plan -> Plan -> lay_out -> Layout -> lower_layout -> Program -> emit -> Artifact
    target whose kernels are whole groups of layers (GroupTarget)
        load_model -> Graph -> make_kernel_plan -> Plan -> place_group_tensors -> TensorPlaces -> emit_plan -> Artifact

Every stage behind the frontend is given the context of the compilation and is verified as it ends. Equal input gives
equal bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Generic, TypeVar

from codegen.target import GroupTarget, Target, TensorPlaces, TileTarget
from dsa_sched.frontend import Model, load_model
from dsa_sched.pipeline.compilation import Compilation, CompileOptions, Lowered, Placed
from dsa_sched.pipeline.gc_pause import uncollected
from dsa_sched.pipeline.targets import judge_of, planning_target, require_able, target_of
from hw_models.chip import Chip
from hw_models.loading import load_chip
from isched.hazards.verify_places import verify_places
from isched.hazards.verify_program import verify_program
from isched.lowering.lower import lower_layout
from isched.lowering.main_memory_allocation import place_group_tensors
from isched.program.program import Program
from isched.program.target import Timeable
from isched.scheduling.schedule import scheduled_lowering
from isched.timing.cycle_model import cycles_below
from partitioner.context.plan_context import Context, GraphContext, PlanContext
from partitioner.ir.plan import Plan
from partitioner.ir.target import PlanTarget
from partitioner.memory.memory_plan import FOR_SCHEDULING, PLAIN, Layout, lay_out
from partitioner.planners.registry import known_level, make_kernel_plan, make_plan, require_level
from partitioner.verification.verify_layout import verify_layout

__all__ = ["Planned", "PlannedKernels", "compile_graph", "compile_model", "compile_plan", "laid_out", "plan_model"]

Progress = Callable[[str], None]
DEFAULTS = CompileOptions()
TargetT = TypeVar("TargetT", bound=PlanTarget, covariant=True)
TiledT = TypeVar("TiledT", bound=PlanTarget)


@dataclass(frozen=True, slots=True)
class Planned(Generic[TargetT]):
    """A model with its plan, and the context in which that was made: what comes before lowering."""

    model: Model
    context: Context[TargetT]
    plan: Plan


@dataclass(frozen=True, slots=True)
class PlannedKernels:
    """The same where kernels are whole groups: what comes before placing."""

    model: Model
    context: GraphContext[GroupTarget]
    plan: Plan


def plan_model(
    source: str | Path,
    chip: str | Path | Chip,
    options: CompileOptions = DEFAULTS,
    progress: Progress = lambda _step: None,
) -> Planned[PlanTarget] | PlannedKernels:
    """The first two steps alone. An array of cores without a code generator is planned by its costs and may lack
    nothing else.

    Raises ModelError, ChipError, PlanError or DoesNotFit, and TargetError for a chip of another kind without a code
    generator and for a code generator that lacks members.
    """
    described = chip if isinstance(chip, Chip) else load_chip(str(chip))
    target = planning_target(described)
    require_level(target, options.level, options.spill)
    progress("reading the model")
    model = load_model(source, dict(options.shapes), options.batch, judge_of(described, target))
    progress("partitioning")
    if isinstance(target, GroupTarget):
        return plan_kernels(model, described, target, options)
    return plan_tiles(model, described, target, options)


@uncollected()
def compile_model(
    source: str | Path,
    chip: str | Path | Chip,
    options: CompileOptions = DEFAULTS,
    progress: Progress = lambda _step: None,
) -> Compilation:
    """Compile an ONNX file or a network of the zoo for a chip (a name or a chip file).

    Raises ModelError, ChipError, TargetError or DoesNotFit, each naming the user's own thing and what to change.
    """
    known_level(options.level)
    described = chip if isinstance(chip, Chip) else load_chip(str(chip))
    target = target_of(described)
    require_able(options, target)
    progress("reading the model")
    model = load_model(source, dict(options.shapes), options.batch, judge_of(described, target))
    return compile_graph(model, described, target, options, progress)


@uncollected()
def compile_graph(
    model: Model,
    chip: Chip,
    target: Target,
    options: CompileOptions,
    progress: Progress = lambda _step: None,
) -> Compilation:
    """The steps after the frontend, for callers that load a model once and compile it more than once. Raises as
    `compile_model` does."""
    require_able(options, target)
    progress("partitioning")
    if isinstance(target, GroupTarget):
        return compile_plan(plan_kernels(model, chip, target, options), options, progress)
    return compile_plan(plan_tiles(model, chip, target, options), options, progress)


@uncollected()
def compile_plan(
    planned: Planned[TileTarget] | PlannedKernels, options: CompileOptions, progress: Progress = lambda _step: None
) -> Compilation:
    """The steps after partitioning, for callers that choose among plans. Raises TargetError, PlanError or
    DoesNotFit."""
    require_able(options, planned.context.target)
    if isinstance(planned, PlannedKernels):
        made: Lowered | Placed = place(planned, options, progress)
    else:
        made = lower(planned, options, progress)
    return Compilation(planned.model, planned.context.chip, options, planned.plan, made)


def plan_tiles(model: Model, chip: Chip, target: TiledT, options: CompileOptions) -> Planned[TiledT]:
    """Graph -> Plan for in-order cores, verified. Raises ModelError, PlanError or DoesNotFit."""
    ctx = Context(model.graph, model.constants, chip, target)
    return Planned(model, ctx, make_plan(ctx, options.level, options.spill))


def plan_kernels(model: Model, chip: Chip, target: GroupTarget, options: CompileOptions) -> PlannedKernels:
    """Graph -> Plan of kernels that are whole groups, verified. Raises ModelError, PlanError or DoesNotFit."""
    ctx = GraphContext(model.graph, model.constants, chip, target)
    return PlannedKernels(model, ctx, make_kernel_plan(ctx, options.level, options.spill))


def laid_out(plan: Plan, ctx: PlanContext, schedule: bool = False) -> Layout:
    """Where everything of a plan lies, verified; with `schedule` such that work can run ahead. Raises DoesNotFit or
    PlanError."""
    layout = lay_out(plan, ctx, FOR_SCHEDULING if schedule else PLAIN)
    verify_layout(layout, plan, ctx)
    return layout


def lower(planned: Planned[TileTarget], options: CompileOptions, progress: Progress) -> Lowered:
    """Plan -> Layout -> Program, scheduled where the options say so, verified. Raises DoesNotFit or PlanError."""
    found = lower_below(planned, options, progress)
    assert found is not None  # nothing reaches an endless limit
    return found


def lower_below(
    planned: Planned[TileTarget], options: CompileOptions, progress: Progress, limit_cycles: float = inf
) -> Lowered | None:
    """The same; None for a program that takes no fewer cycles than the limit, where the cycle model can time it. Raises
    DoesNotFit or PlanError."""
    plan, ctx = planned.plan, planned.context
    chip, target = ctx.chip, ctx.target
    layouts: dict[bool, Layout] = {}

    def lowered(ahead: bool) -> Program:
        progress("lowering")
        layouts[ahead] = laid_out(plan, ctx, ahead)
        found = lower_layout(layouts[ahead], ctx, target.data_base_bytes, options.isolated, options.keep_values)
        if options.schedule:
            progress("scheduling")
        return found

    cycles: float | None = None
    if options.schedule and isinstance(target, Timeable):
        best = scheduled_lowering(lowered, chip, target, limit_cycles)
        if best is None:
            return None
        program, cycles, ahead = best.program, best.cycles, best.ahead
    else:
        program, ahead = lowered(ahead=False), False
        if limit_cycles < inf and isinstance(target, Timeable):
            cycles = cycles_below(program, chip, target, limit_cycles)
            if cycles is None:
                return None
    progress("verifying the program")
    verify_program(program, chip)
    return Lowered(target, layouts[ahead], program, cycles)


def place(planned: PlannedKernels, options: CompileOptions, progress: Progress) -> Placed:
    """Plan -> TensorPlaces, verified: what lies between the kernels. Raises DoesNotFit where the main memory cannot
    hold it."""
    progress("placing tensors")
    plan, ctx, kept = planned.plan, planned.context, options.keep_values or options.isolated
    found = place_group_tensors(ctx, ctx.target.data_base_bytes, plan, kept, options.isolated)
    progress("verifying the places")
    verify_places(plan, ctx.graph, found)
    return Placed(ctx.target, TensorPlaces(found))
