"""Figures of one program, printed on one line: kernels, instances, bytes of the main memory, cycles by the cycle model.

Compilation  -->  ProgramFigures, to compare programs of the same network
"""

from __future__ import annotations

from dataclasses import dataclass

from dsa_sched.analysis.work import LayerWork, add_work, layer_work
from dsa_sched.stages.compilation import Compilation, PlacedKernels
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


def program_figures(compilation: Compilation) -> ProgramFigures:
    """The figures of a compiled network, read from its plan and its program."""
    plan = compilation.plan
    runs = [step for step in plan.steps if isinstance(step, RunStep)]
    return ProgramFigures(
        name=f"{plan.level}, scheduled" if compilation.options.schedule else plan.level,
        kernels=len({step.group for step in runs}),
        instances=len(runs),
        main_bytes=_main_bytes(compilation),
        cycles=_cycles(compilation),
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
    moved = add_work(compiled_work(compilation).values()).moved_bytes
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
