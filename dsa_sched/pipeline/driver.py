"""The driver, the only entry point: one function per step, from a model file to an artifact.

    target whose kernels are tiles of in-order cores (TileTarget)
        load_model -> Graph -> make_plan -> Plan -> lay_out -> Layout -> lower_layout -> Program -> emit -> Artifact
    target whose kernels are whole groups of layers (GroupTarget)
        load_model -> Graph -> make_kernel_plan -> Plan -> place_group_tensors -> TensorPlaces -> emit_plan -> Artifact
    level auto, and --per-pass auto
        load_model -> Graph -> dsa_sched/search/ -> the same, of the planner and the items per pass that are best
    a batch for several clusters
        batch -> shares -> passes -> one program per cluster, run again and again

Every stage after the frontend is given the context of the compilation and is verified as it ends. Equal input gives
equal bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeGuard, TypeVar

from onnx import ModelProto

from codegen.target import GroupTarget, Target, TileTarget
from dsa_sched.frontend import Model, load_model, open_model
from dsa_sched.frontend.load import Opened
from dsa_sched.pipeline.division import on_clusters, require_divisible, shares_of_clusters
from dsa_sched.search.candidates import SearchRequest
from dsa_sched.search.loop import cheapest_plan, fastest_program, fastest_timed
from dsa_sched.search.passes import cheapest_pass, fastest_pass
from dsa_sched.search.tuning import tuned_kernels
from dsa_sched.stages.compilation import Compilation, CompileOptions, Lowered, PlacedKernels
from dsa_sched.stages.gc_pause import uncollected
from dsa_sched.stages.kernel_stages import PlannedKernels, place, plan_kernels
from dsa_sched.stages.targets import (
    judge_of,
    planning_target,
    require_able,
    require_groups,
    require_tiles,
    target_of,
    with_defaults,
)
from dsa_sched.stages.tile_stages import Planned, lower, plan_tiles
from hw_models.chip import Chip
from hw_models.errors import ModelError
from hw_models.loading import load_chip
from isched.program.target import Timeable
from partitioner.context.plan_context import Context
from partitioner.ir.target import AcceptingTarget, PlanTarget
from partitioner.planners.levels import AUTO, Auto, Planner
from partitioner.planners.registry import require_planner

Progress = Callable[[str], None]
TiledT = TypeVar("TiledT", bound=PlanTarget)
DEFAULTS = CompileOptions()
PER_PASS_AUTO = "--per-pass auto"


@uncollected()
def compile_clusters(
    source: str | Path | ModelProto | Opened,
    chip: str | Path | Chip,
    options: CompileOptions = DEFAULTS,
    progress: Progress = lambda _step: None,
) -> tuple[Compilation, ...]:
    """Compile an ONNX file, a network of the zoo or a model that was opened with the options' bindings for a chip (a
    name or a chip file), one part for each of `options.clusters`, which divide the batch; `gather_artifact` makes one
    artifact of the parts.

    The first clusters take one row more where the batch does not divide evenly. Raises ModelError, ChipError,
    TargetError or DoesNotFit, each naming the user's own thing and what to change.
    """
    described = _described(chip)
    shares = shares_of_clusters(described, options)
    target = target_of(described)
    require_able(options, target)
    load = _loader(source, described, target, options)

    def one_pass(batch: int | None) -> Compilation:
        progress("reading the model")
        return compile_graph(load(batch), described, target, replace(options, batch=batch), progress)

    if _searches_passes(options) and _is_timed(target, options):
        first = _fastest_pass(source, described, target, options, shares, progress)
        return on_clusters(shares, first.plan.batch_per_cluster, one_pass, first)
    if options.per_pass == "auto":
        tiled = require_tiles(target, PER_PASS_AUTO)

        def compiled(planned: Planned[TileTarget]) -> tuple[Compilation, ...]:
            batch = planned.plan.batch_per_cluster
            first = replace(compile_plan(planned, replace(options, batch=batch), progress), items=shares[0])
            parts = on_clusters(shares, batch, one_pass, first)
            _ = first.files  # refused where the code overflows its space
            return parts

        request = SearchRequest(described, tiled, options, progress)
        return cheapest_pass(request, _by_name(options), shares, load, compiled)
    batch = options.per_pass or shares[0]
    if options.batch is None or shares == (batch,):
        return (one_pass(options.batch),)
    require_divisible(load, options, batch, shares, progress)
    return on_clusters(shares, batch, one_pass)


def compile_model(
    source: str | Path,
    chip: str | Path | Chip,
    options: CompileOptions = DEFAULTS,
    progress: Progress = lambda _step: None,
) -> Compilation:
    """`compile_clusters` as one program: the whole batch is one pass on one cluster, whatever the options say about its
    division.
    """
    return compile_clusters(source, chip, replace(options, clusters=1, per_pass=options.batch), progress)[0]


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
    options = with_defaults(options, target)
    progress("partitioning")
    if _is_timed(target, options):
        found = fastest_program(SearchRequest(chip, target, options, progress), model)
        assert found is not None  # a search without a limit finds a program or raises
        return found.compilation
    return compile_plan(*_planned(model, chip, target, options, progress), progress)


def plan_graph(model: Model, chip: Chip, target: Target, planner: Planner) -> Planned[TileTarget] | PlannedKernels:
    """The plan of one planner for a model that is loaded, to be compiled in more than one way. Raises ModelError,
    PlanError or DoesNotFit."""
    if isinstance(target, GroupTarget):
        return plan_kernels(model, chip, target, CompileOptions(planner))
    return plan_tiles(model, chip, target, planner)


@uncollected()
def compile_plan(
    planned: Planned[TileTarget] | PlannedKernels, options: CompileOptions, progress: Progress = lambda _step: None
) -> Compilation:
    """The steps after partitioning, for callers that choose among plans. Raises TargetError, PlanError or
    DoesNotFit."""
    require_able(options, planned.context.target)
    if isinstance(planned, PlannedKernels):
        made: Lowered | PlacedKernels = place(planned, options, progress)
    else:
        made = lower(planned, options, progress)
    return Compilation(planned.model, planned.context.chip, options, planned.plan, made)


def plan_model(
    source: str | Path,
    chip: str | Path | Chip,
    options: CompileOptions = DEFAULTS,
    progress: Progress = lambda _step: None,
) -> Planned[PlanTarget] | PlannedKernels:
    """Run the first two steps alone: the plan of one pass on the cluster with the largest share of the batch. An array
    of cores without a code generator is planned by its costs and may lack nothing else.

    Raises ModelError, ChipError, PlanError or DoesNotFit, and TargetError for a chip of another kind without a code
    generator and for a code generator that lacks members.
    """
    described = _described(chip)
    shares = shares_of_clusters(described, options)
    target = planning_target(described)
    require_planner(target, options.planner)
    require_groups(options, target)
    if _searches_passes(options) and _is_timed(target, options):
        require_able(options, target)
        made = _fastest_pass(source, described, target, options, shares, progress)
        context = Context(made.model.graph, made.model.constants, described, target)
        return Planned(made.model, context, made.plan, made.layout.options)
    load = _loader(source, described, target, options)
    if options.per_pass == "auto":
        tiled: PlanTarget = require_tiles(target, PER_PASS_AUTO)
        request = SearchRequest(described, tiled, options, progress)
        return cheapest_pass(request, _by_name(options), shares, load, lambda planned: planned)
    if options.batch is not None:
        batch = options.per_pass or shares[0]
        require_divisible(load, options, batch, shares, progress)
        options = replace(options, batch=batch)
    progress("reading the model")
    model = load(options.batch)
    progress("partitioning")
    options = with_defaults(options, target)
    if _is_timed(target, options):
        found = fastest_timed(SearchRequest(described, target, options, progress), model)
        assert found is not None  # nothing reaches an endless limit
        return found.planned
    return _planned(model, described, target, options, progress)[0]


def _planned(
    model: Model, chip: Chip, target: TiledT | GroupTarget, options: CompileOptions, progress: Progress
) -> tuple[Planned[TiledT] | PlannedKernels, CompileOptions]:
    """A plan, and the options that make it without a search."""
    if isinstance(target, GroupTarget):
        planned = plan_kernels(model, chip, target, options)
        return (tuned_kernels(planned, options, progress) if options.tune else planned), options
    if isinstance(options.planner, Auto):
        return cheapest_plan(SearchRequest(chip, target, options, progress), model)
    return plan_tiles(model, chip, target, options.planner), options


def _described(chip: str | Path | Chip) -> Chip:
    return chip if isinstance(chip, Chip) else load_chip(str(chip))


def _loader(
    source: str | Path | ModelProto | Opened, chip: Chip, target: AcceptingTarget, options: CompileOptions
) -> Callable[[int | None], Model]:
    """Function that loads the model for a given number of items."""
    judge = judge_of(chip, target, options.packed)
    shapes, bindings, state = dict(options.shapes), dict(options.bindings), dict(options.state)
    return lambda batch: load_model(source, shapes, batch, judge, bindings, state)


def _is_timed(target: AcceptingTarget, options: CompileOptions) -> TypeGuard[TileTarget]:
    """Whether level auto is asked for, and can judge by programs that the cycle model times."""
    timeable = isinstance(target, TileTarget) and isinstance(target, Timeable)
    return timeable and isinstance(options.planner, Auto)


def _searches_passes(options: CompileOptions) -> bool:
    """Whether level auto also chooses the items per pass, which it does where it times programs."""
    return options.batch is not None and not isinstance(options.per_pass, int)


def _by_name(options: CompileOptions) -> Planner:
    """The planner for which the cost model chooses the items per pass. Raises ModelError at level auto."""
    if isinstance(options.planner, Auto):
        needs = "a target whose programs the cycle model can time, or a level by its name"
        raise ModelError(PER_PASS_AUTO, needs=needs, has=f"--level {AUTO}")
    return options.planner


def _fastest_pass(
    source: str | Path | ModelProto | Opened,
    chip: Chip,
    target: TileTarget,
    options: CompileOptions,
    shares: tuple[int, ...],
    progress: Progress,
) -> Compilation:
    """Run level auto for the largest share, including the choice of the items per pass."""
    if len(shares) > 1:
        require_divisible(_loader(source, chip, target, options), options, shares[0], shares, progress)
    progress("reading the model")
    opened = source if isinstance(source, Opened) else open_model(source, dict(options.bindings))
    load = _loader(opened, chip, target, replace(options, bindings=()))
    return fastest_pass(SearchRequest(chip, target, with_defaults(options, target), progress), shares[0], load)
