"""The driver: one function a step, from a model file to an artifact.

    load_model -> Graph -> make_plan -> Plan -> lower_plan -> Program -> emit -> Artifact

Every stage is verified as it ends. Equal input gives equal bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path

from codegen.target import Target, find_target, target_names
from dsa_sched.artifact import FORMAT, Artifact, ChipId, Manifest, ProgramEntry, TensorEntry, file_entry
from dsa_sched.frontend import Model, load_model
from hw_models.chip import Chip
from hw_models.errors import ModelError, TargetError
from hw_models.loading import load_chip
from isched.lower import lower_plan
from isched.program import Placement, Program
from isched.verify import verify_program
from partitioner.levels import LEVELS, make_plan
from partitioner.plan import Plan

__all__ = ["Compilation", "CompileOptions", "compile_model", "target_of"]

VERSIONED = ("dsa-sched", "apache-tvm", "numpy", "onnx")


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """What to compile for. `batch` replaces the leading dimension of every input; `isolated` gives every layer its
    own copies of its inputs, so that it can be judged by itself."""

    level: str = "O0"
    batch: int | None = None
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()
    isolated: bool = False


@dataclass(frozen=True)
class Compilation:
    """Everything that compiling made, stage by stage."""

    model: Model
    chip: Chip
    target: Target
    options: CompileOptions
    plan: Plan
    program: Program

    @cached_property
    def artifact(self) -> Artifact:
        """The files. Raises DoesNotFit when the code overflows its space."""
        graph = self.model.graph
        files = self.target.emit(self.program, graph, self.model.constants)
        folder = f"cluster{self.program.cluster}"
        entries = tuple(file_entry(f"{folder}/{name}", data) for name, data in files.files.items())
        program = ProgramEntry(
            cluster=self.program.cluster, elf=f"{folder}/{files.executable}", cores=files.cores, files=entries
        )
        tensors = {p.tensor: self._tensor(p) for p in self.program.placements}
        texts = {"plan.txt": str(self.plan).encode()}
        manifest = Manifest(
            format=FORMAT,
            model=graph.name,
            model_sha256=self.model.sha256,
            graph_hash=graph.hash,
            level=self.options.level,
            batch=self.plan.batch_per_cluster,
            chip=ChipId(name=self.chip.name, isa=self.chip.isa, hash=self.chip.hash),
            versions={name: version(name) for name in VERSIONED},
            programs=(program,),
            inputs=tuple(tensors[name] for name in graph.inputs),
            outputs=tuple(tensors[name] for name in graph.outputs),
            tensors=tuple(tensors.values()),
            files=tuple(file_entry(name, data) for name, data in texts.items()),
        )
        return Artifact(manifest, (files,), texts)

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
            dtype=tensor.source_dtype,  # type: ignore[arg-type]
            layout=layout,
            device_dtype=tensor.dtype,  # type: ignore[arg-type]
            address=self.target.address(placement.memory, placement.offset_bytes),
            bytes=placement.size_bytes,
        )


def target_of(chip: Chip) -> Target:
    """The chip's code generator. Raises TargetError saying which instruction sets have one."""
    target = find_target(chip.isa)
    if target is None:
        raise TargetError(
            f"chip {chip.name}",
            needs=f"a code generator for {chip.isa}",
            has=", ".join(target_names()),
            change="install a target for it; graph, plan and costs are available without one",
        )
    return target


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
    model = load_model(source, dict(options.shapes), options.batch)
    return compile_graph(model, described, target, options, progress)


def compile_graph(
    model: Model,
    chip: Chip,
    target: Target,
    options: CompileOptions,
    progress: Callable[[str], None] = lambda _step: None,
) -> Compilation:
    """The steps after the frontend, for callers that load a model once and compile it more than once."""
    progress("partitioning")
    plan = make_plan(model.graph, model.constants, chip, target, options.level)
    progress("lowering")
    program = lower_plan(plan, model.graph, model.constants, chip, target, target.data_base_bytes, options.isolated)
    progress("verifying the program")
    verify_program(program, chip)
    return Compilation(model, chip, target, options, plan, program)
