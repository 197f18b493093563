"""The result of compiling a model, stage by stage, for targets of either kind through one interface.

    TileTarget    Plan, Layout, Program --emit-->       ClusterFiles        (Lowered)
    GroupTarget   Plan, TensorPlaces    --emit_plan-->  ClusterFiles        (PlacedKernels)

`Lowered` and `PlacedKernels` hold all that differs: where tensors lie, how files are emitted, which kind of execution
they need, and whether there is a program of instructions to look at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path

from onnx import ModelProto

from codegen.target import ELF, ClusterFiles, GroupTarget, Rolls, Target, TensorPlaces, TileTarget
from dsa_sched.artifact.format import (
    FORMAT,
    GRAPH_FILE,
    PLAN_FILE,
    Artifact,
    ChipId,
    ExecutionEntry,
    Manifest,
    ProgramEntry,
    cluster_folder,
)
from dsa_sched.artifact.origin import CHIP_FILE, ChosenEntry, DecisionEntry, OptionsEntry, OriginEntry
from dsa_sched.artifact.tensors import IndexBounds, TensorEntry
from dsa_sched.artifact.whole_folder import file_entry
from dsa_sched.frontend import Model
from dsa_sched.stages.compile_options import CompileOptions as CompileOptions
from dsa_sched.stages.gc_pause import uncollected
from dsa_sched.stages.index_bounds import index_bounds
from dsa_sched.zoo import zoo_names
from hw_models.changes import chip_json
from hw_models.chip import Chip
from hw_models.errors import TargetError
from isched.program.program import Program, TensorPlacement
from partitioner.cost.micro_batching import pass_count
from partitioner.ir.plan import Plan
from partitioner.memory.memory_plan_types import PLAIN, Layout
from partitioner.planners.levels import NO_SPILLS, O3

INTERRUPTED = "the search of level auto was interrupted"
"""Beginning of the warning about a program that a search had found when Ctrl-C ended it."""

VERSIONED = ("dsa-sched", "apache-tvm", "numpy", "onnx")
SAVED_AS = {"bfloat16": "float32"}
"""File types in which numpy saves no arrays -> the type that holds all their values and is used instead."""


@dataclass(frozen=True, slots=True)
class LevelTime:
    """Time of a plain level as a search of level auto knows it, for all items in one pass: the cycles of its program,
    launch included, if `timed`; otherwise a lower bound for every program of its plan.
    """

    level: str
    cycles: float
    timed: bool


@dataclass(frozen=True, slots=True)
class Lowered:
    """A plan as instructions of in-order cores, with the place of everything in memory, and the `cycles` that the cycle
    model found on the way, launch included (None where it was not asked).
    """

    target: TileTarget
    layout: Layout
    program: Program
    cycles: float | None = None

    @property
    def cluster(self) -> int:
        return self.program.cluster

    @property
    def placements(self) -> tuple[TensorPlacement, ...]:
        return self.program.placements

    @property
    def execution(self) -> str:
        return ELF

    def on_cluster(self, cluster: int) -> Lowered:
        return replace(self, program=replace(self.program, cluster=cluster))

    def instructions(self) -> Program:
        return self.program

    def memory_layout(self) -> Layout:
        return self.layout

    def size_text(self, plan: Plan) -> str:
        del plan
        count = sum(len(stream.instrs) for stream in self.program.streams)
        return f"{count} instructions on {len(self.program.streams)} cores"


@dataclass(frozen=True, slots=True)
class PlacedKernels:
    """A plan of kernels that are whole groups: they start in sequence, and nothing is lowered."""

    target: GroupTarget
    places: TensorPlaces
    cluster: int = 0
    progress: Callable[[str], None] = field(default=lambda _step: None, compare=False)

    @property
    def placements(self) -> tuple[TensorPlacement, ...]:
        return self.places.placements

    @property
    def execution(self) -> str:
        return self.target.execution

    def on_cluster(self, cluster: int) -> PlacedKernels:
        return replace(self, cluster=cluster)

    def instructions(self) -> Program:
        """Raises TargetError, always."""
        raise no_program(self.target)

    def memory_layout(self) -> Layout:
        """Raises TargetError, always."""
        raise no_layout(self.target)

    def size_text(self, plan: Plan) -> str:
        return f"{sum(bool(group.kernel) for group in plan.groups)} kernels"

    def emit(self, plan: Plan, model: Model, chip: Chip) -> ClusterFiles:
        """Files of the plan's kernels. Raises what the target raises for kernels that cannot be made."""
        files = self.target.emit_plan(plan, model.graph, model.constants, self.places, chip, self.progress)
        return replace(files, cluster=self.cluster)


@dataclass(frozen=True)
class Compilation:
    """Everything that compiling made, stage by stage. `items` are the rows of the batch that it computes, as
    micro-batches of the plan's batch, one per pass; None for one pass. `level_times` has what level auto learned about
    the plain levels on the way.
    """

    model: Model
    chip: Chip
    options: CompileOptions
    plan: Plan
    made: Lowered | PlacedKernels
    items: int | None = None
    level_times: tuple[LevelTime, ...] = ()

    @property
    def target(self) -> Target:
        return self.made.target

    @property
    def program(self) -> Program:
        """The instructions of all cores. Raises TargetError where kernels are whole groups, which have none."""
        return self.made.instructions()

    @property
    def layout(self) -> Layout:
        """Places of everything that the program uses. Raises TargetError where kernels are whole groups."""
        return self.made.memory_layout()

    @property
    def interrupted(self) -> bool:
        """Whether a search for the program was ended by Ctrl-C."""
        return any(warning.startswith(INTERRUPTED) for warning in self.model.warnings)

    @property
    def rows(self) -> int:
        """Rows of the batch that are computed, in all passes."""
        return self.plan.batch_per_cluster if self.items is None else self.items

    @property
    def passes(self) -> int:
        return pass_count(self.rows, self.plan.batch_per_cluster)

    def with_decisions(
        self, plan: Plan, model: Model, items: int, level_times: tuple[LevelTime, ...] = ()
    ) -> Compilation:
        """A copy with other decisions and warnings, for this many rows of the batch; the files stay those that were
        made. Raises as `files` does.
        """
        return replace(self, plan=plan, model=model, items=items, level_times=level_times).with_files(self.files)

    def with_files(self, files: ClusterFiles) -> Compilation:
        """A copy whose files were emitted already."""
        found = replace(self)
        found.__dict__["files"] = files  # where cached_property keeps it
        return found

    def on_cluster(self, cluster: int, items: int) -> Compilation:
        """A copy for another cluster of the chip and this many rows of the batch."""
        return replace(self, made=self.made.on_cluster(cluster), items=items)

    @property
    def size_text(self) -> str:
        """Amount of what is executed, in words."""
        return self.made.size_text(self.plan)

    @cached_property
    def artifact(self) -> Artifact:
        """The files of this cluster alone. Raises as `files` does."""
        return gather_artifact((self,))

    @cached_property
    @uncollected()
    def files(self) -> ClusterFiles:
        """The emitted files. Raises DoesNotFit when the code overflows its space."""
        made, graph = self.made, self.model.graph
        if not isinstance(made, Lowered):
            return made.emit(self.plan, self.model, self.chip)
        program = self.options.shared.without(made.program, graph)
        if isinstance(made.target, Rolls) and self.options.roll is not False:
            return made.target.emit_rolled(program, graph, self.model.constants, self.chip)
        return made.target.emit(program, graph, self.model.constants, self.chip)

    @cached_property
    def tensors(self) -> dict[str, TensorEntry]:
        """Place of every tensor."""
        return {placement.tensor: self._tensor(placement) for placement in self.made.placements}

    def entry(self, batch_start: int) -> ProgramEntry:
        """The executable in a manifest, computing the rows from `batch_start` on. Raises as `files` does."""
        graph, folder = self.model.graph, cluster_folder(self.made.cluster)
        return ProgramEntry(
            cluster=self.made.cluster,
            execution=ExecutionEntry(kind=self.made.execution, file=f"{folder}{self.files.executable}"),
            cores=self.files.cores,
            batch_start=batch_start,
            batch=self.rows,
            passes=self.passes,
            inputs=tuple(self.tensors[name] for name in graph.fed),
            outputs=tuple(self.tensors[name] for name in graph.results),
            files=tuple(file_entry(f"{folder}{name}", data) for name, data in self.files.files.items()),
        )

    def _tensor(self, placement: TensorPlacement) -> TensorEntry:
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
            state_of=placement.of if placement.kind == "state" else "",
            indices=self._indices.get(placement.tensor, ()),
        )

    @cached_property
    def _indices(self) -> dict[str, tuple[IndexBounds, ...]]:
        return index_bounds(self.model.graph, self.model.constants)


def no_program(target: GroupTarget) -> TargetError:
    """Error to raise where instructions are asked for and kernels are whole groups."""
    return TargetError(
        target.name,
        needs="a target that lowers plans to instructions",
        has="one whose kernels are whole groups of layers, without a program",
        change="--print plan names the kernels",
    )


def no_layout(target: GroupTarget) -> TargetError:
    """Error to raise where a layout is asked for and kernels are whole groups."""
    return TargetError(
        target.name,
        needs="a target that lays plans out in the memories of cores",
        has="one whose kernels are whole groups of layers, which place their own data",
        change="--print plan names the kernels",
    )


def gather_artifact(
    parts: tuple[Compilation, ...], source: str | Path | ModelProto = "", asked: CompileOptions | None = None
) -> Artifact:
    """One artifact of the executables of several clusters, which take the rows of the batch in order. It records the
    options that were asked for, those of the first part unless given, and of the `source` the name of a network of the
    zoo.

    Raises DoesNotFit when code overflows its space, and what a target raises for kernels that cannot be made."""
    first, programs, start = parts[0], [], 0
    for part in parts:
        programs.append(part.entry(start))
        start += part.rows
    texts = {
        PLAN_FILE: str(first.plan).encode(),
        GRAPH_FILE: str(first.model.graph).encode(),
        CHIP_FILE: chip_json(first.chip).encode(),
    }
    manifest = Manifest(
        format=FORMAT,
        model=first.model.graph.name,
        model_sha256=first.model.sha256,
        graph_hash=first.model.graph.hash,
        level=first.plan.level,
        batch=start,
        chip=ChipId(name=first.chip.name, isa=first.chip.isa, hash=first.chip.hash),
        versions={name: version(name) for name in VERSIONED},
        origin=_origin(first, "" if isinstance(source, ModelProto) else str(source), asked or first.options),
        programs=tuple(programs),
        inputs=programs[0].inputs,
        outputs=programs[0].outputs,
        tensors=tuple(first.tensors.values()),
        files=tuple(file_entry(name, data) for name, data in texts.items()),
    )
    return Artifact(manifest, tuple(part.files for part in parts), texts)


def _origin(made: Compilation, source: str, asked: CompileOptions) -> OriginEntry:
    lowered = made.made if isinstance(made.made, Lowered) else None
    layout = lowered.layout.options if lowered else PLAIN
    return OriginEntry(
        network=source if source in zoo_names() and not Path(source).is_file() else "",
        options=options_entry(asked),
        chosen=ChosenEntry(
            schedule=bool(made.options.schedule),
            constants_ahead=layout.constants_ahead,
            rounds_ahead=layout.rounds_ahead,
            buffers_apart=layout.buffers_apart,
        ),
        decisions=tuple(
            DecisionEntry(subject=each.subject, verdict=each.verdict, reason=each.reason)
            for each in (*made.model.decisions, *(lowered.program.decisions if lowered else ()))
        ),
        warnings=made.model.warnings,
    )


def options_entry(options: CompileOptions) -> OptionsEntry:
    """The options in a manifest."""
    planner = options.planner
    return OptionsEntry(
        level=planner.name,
        spill=planner.spill if isinstance(planner, O3) else NO_SPILLS,
        effort=options.effort,
        batch=options.batch,
        shapes=dict(options.shapes),
        bind=dict(options.bindings),
        packed=options.packed,
        clusters=options.clusters,
        per_pass=options.per_pass,
        schedule=options.schedule,
        keep_values=options.keep_values,
        roll=options.roll,
        force_group=options.force_groups,
        slices=options.slices,
        tune=options.tune,
        state_pairs=dict(options.state),
    )
