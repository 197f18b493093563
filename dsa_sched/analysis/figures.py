"""What one program is, in a line: kernels, instances, bytes of the main memory, cycles by the clock.

Compilation  -->  ProgramFigures, for setting programs of the same network beside each other
"""

from __future__ import annotations

from dataclasses import dataclass

from dsa_sched.analysis.work import add_work, layer_work
from dsa_sched.pipeline.driver import Compilation
from hw_models.routes import main_memory
from isched.program.target import Timeable
from isched.timing.cycle_model import time_program
from partitioner.ir.plan import MOVES

__all__ = ["ProgramFigures", "program_figures"]


@dataclass(frozen=True, slots=True)
class ProgramFigures:
    """`kernels` are groups of layers, views not counted; `instances` how often one of them runs; `main_bytes` come from
    the main memory or go there. `cycles` are the clock's, its launch included, for one pass over a batch of one
    cluster; None where the target says nothing of issuing."""

    name: str
    kernels: int
    instances: int
    main_bytes: int
    cycles: float | None


def program_figures(compilation: Compilation) -> ProgramFigures:
    """The figures of a compiled network, read off its plan and program."""
    plan, program, chip = compilation.plan, compilation.program, compilation.chip
    runs = [step for step in plan.steps if step.kind not in (*MOVES, "view")]
    main = main_memory(chip)
    moved = add_work(layer_work(program, chip, plan).values()).moved_bytes
    target = compilation.target
    return ProgramFigures(
        name=f"{plan.level}, scheduled" if compilation.options.schedule else plan.level,
        kernels=len({step.group for step in runs}),
        instances=len(runs),
        main_bytes=sum(size for way, size in moved.items() if main in way.split("->")),
        cycles=time_program(program, chip, target).cycles if isinstance(target, Timeable) else None,
    )
