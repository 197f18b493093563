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
from contextlib import closing
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

from codegen.target import ClusterFiles, GroupTarget, Measures, Target, TensorPlaces, TileTarget
from dsa_sched.frontend import Model, load_model
from dsa_sched.search.candidates import Candidate, Way
from dsa_sched.search.loop import Chosen, cheapest_level, fastest_level
from dsa_sched.search.tuning import kernel_times, tuned
from dsa_sched.stages.compilation import Compilation, CompileOptions, Lowered, Placed
from dsa_sched.stages.gc_pause import uncollected
from dsa_sched.stages.targets import judge_of, planning_target, require_able, require_groups, settled, target_of
from dsa_sched.stages.tile_stages import Planned, laid_out, lower, plan_tiles
from hw_models.chip import Chip
from hw_models.errors import PlanError
from hw_models.loading import load_chip
from isched.hazards.verify_places import verify_places
from isched.lowering.main_memory_allocation import place_group_tensors
from isched.program.target import Timeable
from partitioner.context.plan_context import GraphContext
from partitioner.ir.plan import Plan
from partitioner.ir.target import PlanTarget
from partitioner.planners.levels import Auto, kernel_planner_of
from partitioner.planners.registry import make_kernel_plan, require_planner
from partitioner.verification.kernel_plan import verify_kernel_plan

__all__ = [
    "FastestLevel",
    "Planned",
    "PlannedKernels",
    "compile_fastest",
    "compile_graph",
    "compile_model",
    "compile_plan",
    "laid_out",
    "plan_model",
]

Progress = Callable[[str], None]
DEFAULTS = CompileOptions()


@dataclass(frozen=True, slots=True)
class PlannedKernels:
    """The same where kernels are whole groups: what comes before placing."""

    model: Model
    context: GraphContext[GroupTarget]
    plan: Plan


@dataclass(frozen=True, slots=True)
class FastestLevel:
    """What level auto found, compiled."""

    compilation: Compilation
    chosen: Chosen[TileTarget]


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
    require_planner(target, options.planner)
    require_groups(options, target)
    progress("reading the model")
    model = load_model(source, dict(options.shapes), options.batch, judge_of(described, target), dict(options.bindings))
    progress("partitioning")
    if isinstance(target, GroupTarget):
        return plan_kernels(model, described, target, options, progress)
    if not isinstance(options.planner, Auto):
        return plan_tiles(model, described, target, options.planner)
    options = settled(options, target)
    if isinstance(target, TileTarget) and isinstance(target, Timeable):
        found = fastest_level(model, described, target, options, progress)
        assert found is not None  # nothing reaches an endless limit
        return found.planned
    return cheapest_level(model, described, target, options, progress).planned


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
    described = chip if isinstance(chip, Chip) else load_chip(str(chip))
    target = target_of(described)
    require_able(options, target)
    progress("reading the model")
    model = load_model(source, dict(options.shapes), options.batch, judge_of(described, target), dict(options.bindings))
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
    options = settled(options, target)
    progress("partitioning")
    if isinstance(target, GroupTarget):
        return compile_plan(plan_kernels(model, chip, target, options, progress), options, progress)
    if not isinstance(options.planner, Auto):
        return compile_plan(plan_tiles(model, chip, target, options.planner), options, progress)
    if isinstance(target, Timeable):
        found = compile_fastest(model, chip, target, options, progress)
        assert found is not None  # a search without a limit ends with a program or an error
        return found.compilation
    cheapest = cheapest_level(model, chip, target, options, progress)
    return compile_plan(cheapest.planned, cheapest.options, progress)


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


def plan_kernels(
    model: Model, chip: Chip, target: GroupTarget, options: CompileOptions, progress: Progress = lambda _step: None
) -> PlannedKernels:
    """Graph -> Plan of kernels that are whole groups, verified. Raises ModelError, PlanError or DoesNotFit, and
    TargetError where kernels are to be timed and there is no device."""
    ctx = GraphContext(model.graph, model.constants, chip, target)
    planner = kernel_planner_of(target.name, options.planner)
    planned = PlannedKernels(model, ctx, make_kernel_plan(ctx, planner, options.force_groups))
    if not options.tune or not isinstance(target, Measures):
        return planned

    def emitted(plan: Plan) -> ClusterFiles:
        return place(replace(planned, plan=plan), options, progress).emit(plan, model, chip)

    with closing(target.open_device()) as device:
        plan = tuned(planned.plan, ctx, options.force_groups, device, emitted, kernel_times(), progress)
    verify_kernel_plan(plan, ctx)
    return replace(planned, plan=plan)


@uncollected()
def compile_fastest(
    model: Model,
    chip: Chip,
    target: TileTarget,
    options: CompileOptions,
    progress: Progress,
    limit_cycles: float = inf,
    without: frozenset[Way] = frozenset(),
    promising_cycles: float = inf,
    others: Callable[[float], tuple[Candidate, ...]] = lambda _promising: (),
) -> FastestLevel | None:
    """What level auto finds, for parameters as `fastest_level` takes them; a program whose code overflows its space
    gives way to the next one. Raises PlanError or DoesNotFit where nothing is left."""
    refused: PlanError | None = None
    search = model, chip, target, options, progress, limit_cycles
    while found := fastest_level(*search, without, promising_cycles, others):
        assert found.lowered is not None  # it was timed
        made = Compilation(
            found.planned.model, chip, found.options, found.planned.plan, found.lowered, level_times=found.level_times
        )
        try:
            _ = made.files
        except PlanError as error:
            without |= {found.way}
            refused = error
            continue
        return FastestLevel(made, found)
    if refused is not None:
        raise refused
    return None


def place(planned: PlannedKernels, options: CompileOptions, progress: Progress) -> Placed:
    """Plan -> TensorPlaces, verified: what lies between the kernels. Raises DoesNotFit where the main memory cannot
    hold it."""
    progress("placing tensors")
    plan, ctx, kept = planned.plan, planned.context, options.keep_values or options.isolated
    found = place_group_tensors(ctx, ctx.target.data_base_bytes, plan, kept, options.isolated)
    progress("verifying the places")
    verify_places(plan, ctx.graph, found)
    return Placed(ctx.target, TensorPlaces(found), progress=progress)
