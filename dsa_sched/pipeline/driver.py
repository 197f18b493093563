"""The driver: one function a step, from a model file to an artifact.

    target whose kernels are tiles of in-order cores (TileTarget)
        load_model -> Graph -> make_plan -> Plan -> lower_plan -> Program -> emit -> Artifact
    target whose kernels are whole groups of layers (GroupTarget)
        load_model -> Graph -> make_plan -> Plan -> place_group_tensors ------> emit_plan -> Artifact

Every stage is verified as it ends. Equal input gives equal bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from codegen.target import GroupTarget, Target, TensorPlaces, TileTarget
from dsa_sched.frontend import Model, load_model
from dsa_sched.pipeline.compilation import Compilation, CompileOptions, Lowered, Placed
from dsa_sched.pipeline.gc_pause import uncollected
from dsa_sched.pipeline.targets import judge_of, planning_target, require_able, target_of
from hw_models.chip import Chip
from hw_models.errors import ModelError
from hw_models.loading import load_chip
from isched.hazards.verify_places import verify_places
from isched.hazards.verify_program import verify_program
from isched.lowering.lower import lower_plan
from isched.lowering.main_memory_allocation import place_group_tensors
from isched.program.program import Program
from isched.program.target import Timeable
from isched.scheduling.schedule import scheduled_lowering
from partitioner.ir.plan import Plan
from partitioner.planners.registry import LEVELS, make_plan, require_level

__all__ = ["compile_graph", "compile_model", "compile_plan", "plan_model"]

Progress = Callable[[str], None]
DEFAULTS = CompileOptions()


def plan_model(
    source: str | Path,
    chip: str | Path | Chip,
    options: CompileOptions = DEFAULTS,
    progress: Progress = lambda _step: None,
) -> tuple[Model, Plan]:
    """The first two steps alone. A chip without a code generator is planned by its costs and may lack nothing else.

    Raises ModelError, ChipError, PlanError or DoesNotFit, and TargetError for a code generator that lacks members.
    """
    described = chip if isinstance(chip, Chip) else load_chip(str(chip))
    target = planning_target(described)
    require_level(target, options.level, options.spill)
    progress("reading the model")
    model = load_model(source, dict(options.shapes), options.batch, judge_of(described, target))
    progress("partitioning")
    return model, make_plan(model.graph, model.constants, described, target, options.level, options.spill)


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
    if options.level not in LEVELS:
        raise ModelError("--level", needs=f"one of {', '.join(LEVELS)}", has=options.level)
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
    plan = make_plan(model.graph, model.constants, chip, target, options.level, options.spill)
    return compile_plan(plan, model, chip, target, options, progress)


@uncollected()
def compile_plan(
    plan: Plan,
    model: Model,
    chip: Chip,
    target: Target,
    options: CompileOptions,
    progress: Progress = lambda _step: None,
) -> Compilation:
    """The steps after partitioning, for callers that choose among plans. Raises TargetError or DoesNotFit."""
    require_able(options, target)
    if isinstance(target, GroupTarget):
        made: Lowered | Placed = place(plan, model, chip, target, options, progress)
    else:
        made = lower(plan, model, chip, target, options, progress)
    return Compilation(model, chip, options, plan, made)


def lower(
    plan: Plan, model: Model, chip: Chip, target: TileTarget, options: CompileOptions, progress: Progress
) -> Lowered:
    """Plan -> Program, scheduled where the options say so, verified. Raises DoesNotFit or PlanError."""

    def lowered(overlap: bool) -> Program:
        progress("lowering")
        how = options.isolated, overlap, options.keep_values
        found = lower_plan(plan, model.graph, model.constants, chip, target, target.data_base_bytes, *how)
        if options.schedule:
            progress("scheduling")
        return found

    if options.schedule and isinstance(target, Timeable):
        program = scheduled_lowering(lowered, chip, target)
    else:
        program = lowered(overlap=False)
    progress("verifying the program")
    verify_program(program, chip)
    return Lowered(target, program)


def place(
    plan: Plan, model: Model, chip: Chip, target: GroupTarget, options: CompileOptions, progress: Progress
) -> Placed:
    """Plan -> TensorPlaces, verified: what lies between the kernels. Raises DoesNotFit where the main memory cannot
    hold it."""
    progress("placing tensors")
    kept = options.keep_values or options.isolated
    found = place_group_tensors(model.graph, chip, target.data_base_bytes, plan, kept, options.isolated)
    progress("verifying the places")
    verify_places(plan, model.graph, found)
    return Placed(target, TensorPlaces(found))
