"""The driver: one function a step, from a model file to an artifact.

    load_model -> Graph -> make_plan -> Plan -> lay_out -> Layout -> lower_layout -> Program -> emit -> Artifact

Every stage behind the frontend is given the context of the compilation and is verified as it ends. Equal input gives
equal bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Generic, TypeVar

from codegen.generic import generic_target
from codegen.target import ENTRY_POINT_GROUP, ClusterFiles, Target, find_target, target_members, target_names
from dsa_sched.artifact.format import (
    FORMAT,
    GRAPH_FILE,
    PLAN_FILE,
    Artifact,
    ChipId,
    Manifest,
    ProgramEntry,
    TensorEntry,
    file_entry,
)
from dsa_sched.frontend import Model, load_model
from dsa_sched.frontend.refusals import Judge
from dsa_sched.pipeline.gc_pause import uncollected
from hw_models.chip import Chip
from hw_models.errors import ModelError, TargetError
from hw_models.loading import load_chip
from isched.hazards.verify_program import verify_program
from isched.lowering.lower import lower_layout
from isched.program.program import Placement, Program
from isched.scheduling.schedule import scheduled_lowering
from partitioner.context.plan_context import Context, PlanContext
from partitioner.cost.micro_batching import pass_count
from partitioner.ir.plan import Plan
from partitioner.ir.target import PlanTarget
from partitioner.memory.memory_plan import FOR_SCHEDULING, PLAIN, Layout, lay_out
from partitioner.memory.spilling import NO_SPILLS
from partitioner.planners.registry import LEVELS, make_plan, unsupported_ops
from partitioner.verification.verify_layout import verify_layout

__all__ = [
    "Compilation",
    "CompileOptions",
    "Planned",
    "compile_graph",
    "compile_model",
    "compile_plan",
    "gather_artifact",
    "judge_of",
    "laid_out",
    "plan_model",
    "target_of",
]

SAVED_AS = {"bfloat16": "float32"}
"""Types of files in which numpy saves no arrays -> the one that holds all their values and is used in their place."""
TargetT = TypeVar("TargetT", bound=PlanTarget, covariant=True)

VERSIONED = ("dsa-sched", "apache-tvm", "numpy", "onnx")


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """What to compile for. `batch` replaces the leading dimension of every input; `isolated` gives every layer its
    own copies of its inputs, so that it can be judged by itself; `schedule` orders instructions so that engines work at
    the same time (see `isched.scheduling.schedule`); with `keep_values` nothing in the main memory is overwritten once
    it is written; `spill` names the policy by which values of a group that find no room on the cores leave them."""

    level: str = "O0"
    batch: int | None = None
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()
    isolated: bool = False
    schedule: bool = False
    keep_values: bool = False
    spill: str = NO_SPILLS


@dataclass(frozen=True, slots=True)
class Planned(Generic[TargetT]):
    """A model with its plan, and the context in which that was made: what comes before lowering."""

    model: Model
    context: Context[TargetT]
    plan: Plan


@dataclass(frozen=True)
class Compilation:
    """Everything that compiling made, stage by stage. `items` are the rows of the batch that the program works off, in
    passes of the plan's batch; None for one pass."""

    model: Model
    chip: Chip
    target: Target
    options: CompileOptions
    plan: Plan
    layout: Layout
    program: Program
    items: int | None = None

    @property
    def rows(self) -> int:
        """Rows of the batch that the program works off, in all passes."""
        return self.plan.batch_per_cluster if self.items is None else self.items

    @property
    def passes(self) -> int:
        return pass_count(self.rows, self.plan.batch_per_cluster)

    @cached_property
    def artifact(self) -> Artifact:
        """The files. Raises DoesNotFit when the code overflows its space."""
        return gather_artifact((self,))

    @cached_property
    @uncollected()
    def files(self) -> ClusterFiles:
        """What emission made of the program."""
        return self.target.emit(self.program, self.model.graph, self.model.constants, self.chip)

    @cached_property
    def tensors(self) -> dict[str, TensorEntry]:
        """Where every tensor lies."""
        return {placement.tensor: self._tensor(placement) for placement in self.program.placements}

    def entry(self, batch_start: int) -> ProgramEntry:
        """The program in a manifest, computing the rows from `batch_start` on."""
        graph, folder = self.model.graph, f"cluster{self.program.cluster}"
        return ProgramEntry(
            cluster=self.program.cluster,
            elf=f"{folder}/{self.files.executable}",
            cores=self.files.cores,
            batch_start=batch_start,
            batch=self.rows,
            passes=self.passes,
            inputs=tuple(self.tensors[name] for name in graph.inputs),
            outputs=tuple(self.tensors[name] for name in graph.outputs),
            files=tuple(file_entry(f"{folder}/{name}", data) for name, data in self.files.files.items()),
        )

    def _tensor(self, placement: Placement) -> TensorEntry:
        tensor = self.model.graph.by_name[placement.of if placement.kind == "probe" else placement.tensor]
        # A value that is no permutation of an ONNX tensor (axes unknown) is described as it lies.
        layout = tensor.axes or tuple(range(len(tensor.shape)))
        shape = tensor.source_shape if tensor.axes else tensor.shape
        # Kinds and dtypes are texts in graph and program; the manifest refuses any that it does not list.
        return TensorEntry(
            name=placement.tensor,
            kind=placement.kind,  # type: ignore[arg-type]
            shape=shape,
            dtype=SAVED_AS.get(tensor.source_dtype, tensor.source_dtype),  # type: ignore[arg-type]
            layout=layout,
            device_dtype=tensor.dtype,  # type: ignore[arg-type]
            address=self.target.address(placement.memory, placement.offset_bytes),
            bytes=placement.size_bytes,
        )


def gather_artifact(parts: tuple[Compilation, ...]) -> Artifact:
    """One artifact of the programs of several clusters, which take the rows of the batch one after the other."""
    first, programs, start = parts[0], [], 0
    for part in parts:
        programs.append(part.entry(start))
        start += part.rows
    texts = {PLAN_FILE: str(first.plan).encode(), GRAPH_FILE: str(first.model.graph).encode()}
    manifest = Manifest(
        format=FORMAT,
        model=first.model.graph.name,
        model_sha256=first.model.sha256,
        graph_hash=first.model.graph.hash,
        level=first.options.level,
        batch=start,
        chip=ChipId(name=first.chip.name, isa=first.chip.isa, hash=first.chip.hash),
        versions={name: version(name) for name in VERSIONED},
        programs=tuple(programs),
        inputs=programs[0].inputs,
        outputs=programs[0].outputs,
        tensors=tuple(first.tensors.values()),
        files=tuple(file_entry(name, data) for name, data in texts.items()),
    )
    return Artifact(manifest, tuple(part.files for part in parts), texts)


def target_of(chip: Chip) -> Target:
    """The chip's code generator. Raises TargetError saying which instruction sets have one and how to add one."""
    target = find_target(chip.isa)
    if target is None:
        works = "--print graph and --print plan work" if chip.kind == "cores" else "--print graph works"
        raise TargetError(
            f"chip {chip.name}",
            needs=f"a code generator for {chip.isa}",
            has=", ".join(target_names()),
            change=(
                f"install a package with an entry point {chip.isa!r} in the group {ENTRY_POINT_GROUP!r} that names an "
                f"object with {', '.join(target_members())}; {works} without one"
            ),
        )
    if problems := target.unsuited(chip):
        raise TargetError(f"chip {chip.name}", needs=f"what {chip.isa} has", has="\n  ".join(("", *problems)).strip())
    return target


def judge_of(chip: Chip, target: PlanTarget) -> Judge:
    """What `load_model` asks about a graph, so that what the chip cannot compute and what the frontend cannot read are
    told together."""
    return lambda graph, constants: unsupported_ops(graph, constants, chip, target)


def plan_model(
    source: str | Path,
    chip: str | Path | Chip,
    options: CompileOptions = CompileOptions(),
    progress: Callable[[str], None] = lambda _step: None,
) -> Planned[PlanTarget]:
    """The first two steps alone. An array of cores without a code generator is planned by its costs and may lack
    nothing else.

    Raises ModelError, ChipError, or TargetError for a chip of another kind without a code generator.
    """
    described = chip if isinstance(chip, Chip) else load_chip(str(chip))
    progress("reading the model")
    target = find_target(described.isa) or generic_target(described)
    model = load_model(source, dict(options.shapes), options.batch, judge_of(described, target))
    progress("partitioning")
    ctx: Context[PlanTarget] = Context(model.graph, model.constants, described, target)
    return Planned(model, ctx, make_plan(ctx, options.level, options.spill))


def laid_out(plan: Plan, ctx: PlanContext, schedule: bool = False) -> Layout:
    """Where everything of a plan lies, verified; with `schedule` such that work can run ahead. Raises DoesNotFit or
    PlanError."""
    layout = lay_out(plan, ctx, FOR_SCHEDULING if schedule else PLAIN)
    verify_layout(layout, plan, ctx)
    return layout


@uncollected()
def compile_model(
    source: str | Path,
    chip: str | Path | Chip,
    options: CompileOptions = CompileOptions(),
    progress: Callable[[str], None] = lambda _step: None,
) -> Compilation:
    """Compile an ONNX file or a network of the zoo for a chip (a name or a chip file).

    Raises ModelError, ChipError, TargetError or DoesNotFit, each naming the user's own thing and what to change.
    """
    if options.level not in LEVELS:
        raise ModelError("--level", needs=f"one of {', '.join(LEVELS)}", has=options.level)
    described = chip if isinstance(chip, Chip) else load_chip(str(chip))
    target = target_of(described)
    progress("reading the model")
    model = load_model(source, dict(options.shapes), options.batch, judge_of(described, target))
    return compile_graph(model, described, target, options, progress)


@uncollected()
def compile_graph(
    model: Model,
    chip: Chip,
    target: Target,
    options: CompileOptions,
    progress: Callable[[str], None] = lambda _step: None,
) -> Compilation:
    """The steps after the frontend, for callers that load a model once and compile it more than once."""
    ctx = Context(model.graph, model.constants, chip, target)
    progress("partitioning")
    return compile_plan(Planned(model, ctx, make_plan(ctx, options.level, options.spill)), options, progress)


@uncollected()
def compile_plan(
    planned: Planned[Target], options: CompileOptions, progress: Callable[[str], None] = lambda _step: None
) -> Compilation:
    """The steps after partitioning, for callers that choose among plans."""
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

    program, ahead = scheduled_lowering(lowered, chip, target) if options.schedule else (lowered(False), False)
    progress("verifying the program")
    verify_program(program, chip)
    return Compilation(planned.model, chip, target, options, plan, layouts[ahead], program)
