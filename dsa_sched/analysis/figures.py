"""Figures of one program, printed on one line: kernels, instances, bytes of the main memory, cycles by the cycle model.

Compilation  -->  ProgramFigures, to compare programs of the same network
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from codegen.target import GroupTarget
from dsa_sched.analysis.artifact_timing import time_artifact
from dsa_sched.analysis.work import LayerWork, TimedWork, add_work, layer_work, timed_work
from dsa_sched.artifact.format import Artifact
from dsa_sched.stages.compilation import Compilation, PlacedKernels
from dsa_sched.stages.targets import target_of
from hw_models.routes import main_memory
from isched.program.target import Timeable
from isched.timing.cycle_model import time_streams
from partitioner.ir.graph import Graph
from partitioner.ir.plan import Group
from partitioner.ir.steps import RunStep


@dataclass(frozen=True, slots=True)
class ProgramFigures:
    """`kernels` are groups of layers, not counting views; `instances` is how often one of them runs; `main_bytes` come
    from the main memory or go there (at least this many, if kernels are whole groups). `cycles` are those of the
    machine code by the cycle model, its launch included, for one pass over a batch of one cluster; None where the
    target does not describe how instructions are issued.
    """

    name: str
    kernels: int
    instances: int
    main_bytes: int
    cycles: float | None


@dataclass(frozen=True, slots=True)
class ProgramWork:
    """A program's figures, and its work for each layer; nothing is known of layers where kernels are whole groups."""

    figures: ProgramFigures
    layers: Mapping[str, LayerWork]


def program_figures(compilation: Compilation) -> ProgramFigures:
    """The figures of a compiled network, read from its plan and its program."""
    return _figures(compilation, _main_bytes(compilation), _cycles(compilation))


def shipped_work(artifact: Artifact, twin: Compilation, timed: TimedWork | None = None) -> ProgramWork:
    """Figures and work of the first program of an artifact, from its machine code, which is timed once unless its work
    is given; `twin` is the same plan. A target that cannot be timed has those of the twin by the cost model."""
    target = target_of(artifact.chip)
    if isinstance(target, GroupTarget) or not isinstance(target, Timeable):
        return ProgramWork(program_figures(twin), compiled_work(twin))
    if timed is None:
        run = time_artifact(artifact, artifact.chip, target, artifact.manifest.model)
        timed = timed_work(run.programs[0], artifact.chip, twin.plan)
    main_bytes = _moved_bytes(timed.layers, main_memory(artifact.chip))
    return ProgramWork(_figures(twin, main_bytes, timed.cycles), timed.layers)


def _figures(compilation: Compilation, main_bytes: int, cycles: float | None) -> ProgramFigures:
    plan = compilation.plan
    runs = [step for step in plan.steps if isinstance(step, RunStep)]
    return ProgramFigures(
        name=f"{plan.level}, scheduled" if compilation.options.schedule else plan.level,
        kernels=len({step.group for step in runs}),
        instances=len(runs),
        main_bytes=main_bytes,
        cycles=cycles,
    )


def compiled_work(compilation: Compilation) -> dict[str, LayerWork]:
    """Work for each layer; nothing is known where kernels are whole groups."""
    if isinstance(compilation.made, PlacedKernels):
        return {}
    return layer_work(compilation.made.program, compilation.chip, compilation.plan)


def _main_bytes(compilation: Compilation) -> int:
    """Bytes that instructions move; where kernels are whole groups, bytes that each reads and writes at least once."""
    main, made = main_memory(compilation.chip), compilation.made
    if isinstance(made, PlacedKernels):
        return sum(_group_bytes(compilation.model.graph, group) for group in compilation.plan.groups if group.kernel)
    return _moved_bytes(compiled_work(compilation), main)


def _moved_bytes(layers: Mapping[str, LayerWork], main: str) -> int:
    """Bytes that come from the main memory or go there."""
    moved = add_work(layers.values()).moved_bytes
    return sum(size for way, size in moved.items() if main in way.split("->"))


def _group_bytes(graph: Graph, group: Group) -> int:
    constants = {name for layer in group.layers for name in layer.inputs(graph) if graph.by_name[name].constant}
    return sum(graph.by_name[name].size_bytes for name in (*group.inputs(graph), *constants, *group.outputs(graph)))


def _cycles(compilation: Compilation) -> float | None:
    made = compilation.made
    if isinstance(made, PlacedKernels) or not isinstance(made.target, Timeable):
        return None
    files = compilation.files
    streams = made.target.trace(files.files[files.executable], files.cores, compilation.chip, made.cluster)
    return time_streams(streams, compilation.chip).cycles
