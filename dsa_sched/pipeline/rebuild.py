"""The way back from an artifact: its plan in its context, without planning again, and builds of the same plan.

    artifact --planned_again--> Planned        model file, checked against the artifact --reloaded--> Model
    artifact, model --built_again--> Compilation of the same plan, with other options of lowering

What an artifact says comes from strangers: graph, plan and chip are checked against its manifest, and the plan is
verified like one that was just made.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import onnx

from codegen.target import GroupTarget, TileTarget
from dsa_sched.artifact.format import Artifact
from dsa_sched.frontend import Model, load_model
from dsa_sched.frontend.model_file import file_digest
from dsa_sched.pipeline.driver import compile_plan
from dsa_sched.stages.chunked_model import chunked_model
from dsa_sched.stages.compilation import Compilation, CompileOptions
from dsa_sched.stages.gc_pause import uncollected
from dsa_sched.stages.kernel_stages import PlannedKernels
from dsa_sched.stages.targets import judge_of, require_tiles, target_of
from dsa_sched.stages.tile_stages import Planned
from hw_models.errors import ModelError, TargetError
from partitioner.context.plan_context import Context, GraphContext
from partitioner.memory.memory_plan_types import LayoutOptions
from partitioner.verification.kernel_plan import verify_kernel_plan
from partitioner.verification.verify_plan import verify_plan

MOST_FILES = 20
"""Largest number of files in one folder that are read to find a model by its content."""


def planned_again(artifact: Artifact, model: Model | None = None) -> Planned[TileTarget] | PlannedKernels:
    """The plan of one pass as it was made, verified. Without the `model`, the graph is that of the artifact, whose
    constants have no values: enough for all that moves and counts, not for lowering.

    Raises TargetError for an artifact that does not tell its plan, and PlanError for a plan that is wrong.
    """
    chip = artifact.chip
    target = target_of(chip)
    graph = artifact.graph if model is None else model.graph
    read = model or Model(graph, {}, onnx.ModelProto(), artifact.origin.warnings, artifact.manifest.model_sha256)
    if isinstance(target, GroupTarget):
        kernels = GraphContext(graph, read.constants, chip, target)
        verify_kernel_plan(artifact.plan, kernels)
        return PlannedKernels(read, kernels, artifact.plan)
    context = Context(graph, read.constants, chip, require_tiles(target, artifact.manifest.model))
    verify_plan(artifact.plan, context)
    chosen = artifact.origin.chosen
    options = LayoutOptions(chosen.rounds_ahead, chosen.buffers_apart, constants_ahead=chosen.constants_ahead)
    return Planned(read, context, artifact.plan, options)


def reloaded(artifact: Artifact, source: str | Path | None = None) -> Model:
    """The model of one pass, read again from `source`, or from where it was compiled, from the zoo, or from a file with
    the same content next to the artifact's folder or in the current one.

    Raises ModelError for a file that is not there or not the one compiled, TargetError where this version makes another
    graph of it, and what `load_model` raises.
    """
    asked, chip = artifact.origin.options, artifact.chip
    named = source_of(artifact, source)
    target = target_of(chip)
    batch = artifact.plan.batch_per_cluster if asked.batch is not None else None
    judge = judge_of(chip, target, asked.packed)
    model = load_model(named, asked.shapes, batch, judge, asked.bind, asked.state_pairs)
    if model.sha256 != artifact.manifest.model_sha256:
        raise ModelError(
            named,
            needs=f"the file that was compiled, SHA-256 {artifact.manifest.model_sha256[:12]}...",
            has=f"{model.sha256[:12]}...",
            change="give the file with --model, or compile again",
        )
    if model.graph.hash != artifact.manifest.graph_hash and isinstance(target, TileTarget):
        model = chunked_model(model, chip, target) or model
    if model.graph.hash != artifact.manifest.graph_hash:
        versions = ", ".join(f"{name} {number}" for name, number in artifact.manifest.versions.items())
        raise TargetError(
            f"artifact of {artifact.manifest.model}",
            needs="the graph that this version makes of the file",
            has=f"the graph of another version ({versions})",
            change="compile again",
        )
    return model


def source_of(artifact: Artifact, source: str | Path | None = None) -> str:
    """The model of an artifact: `source`, or where it was compiled, or a network of the zoo, or a file with the same
    content. Raises ModelError."""
    return str(source or artifact.model_path or artifact.origin.network or _found(artifact))


def _found(artifact: Artifact) -> Path:
    """A file with the content that was compiled, next to the artifact's folder or in the current one. Raises
    ModelError."""
    home = Path(artifact.folder or ".")
    around = (home.parent, *([home.parent.parent] if artifact.manifest.weights is not None else []), Path())
    places = dict.fromkeys(place.resolve() for place in around)
    for file in (file for place in places for file in sorted(place.glob("*.onnx"))[:MOST_FILES]):
        with suppress(ModelError):
            if file_digest(file) == artifact.manifest.model_sha256:
                return file
    raise ModelError(
        f"artifact of {artifact.manifest.model}",
        needs="the file that was compiled",
        has="no .onnx file with its content here or next to the artifact",
        change="give it with --model",
    )


def _options_again(artifact: Artifact) -> CompileOptions:
    """Options of lowering and emission with which the artifact was built, for one pass on one cluster. The planner is
    not needed again."""
    asked, chosen = artifact.origin.options, artifact.origin.chosen
    return CompileOptions(
        batch=artifact.plan.batch_per_cluster if asked.batch is not None else None,
        shapes=tuple(asked.shapes.items()),
        schedule=chosen.schedule,
        keep_values=asked.keep_values,
        effort=asked.effort,
        constants_ahead=chosen.constants_ahead,
        force_groups=asked.force_group,
        slices=asked.slices,
        roll=asked.roll,
        bindings=tuple(asked.bind.items()),
        state=tuple(asked.state_pairs.items()),
    )


@uncollected()
def built_again(
    artifact: Artifact,
    model: Model,
    *,
    keep_values: bool = False,
    progress: Callable[[str], None] = lambda _step: None,
) -> Compilation:
    """The artifact's plan compiled again, as one pass on one cluster. With `keep_values`, every value that reaches the
    main memory keeps a place of its own. Raises what `compile_plan` raises."""
    options = replace(_options_again(artifact), keep_values=keep_values)
    return compile_plan(planned_again(artifact, model), options, progress)
