"""Goldens: what a compilation makes, as texts that can be read and compared line by line.

    case --compile--> plan (without its reasons), summary of the program, hash of the machine code  ==  a file here

Values are judged elsewhere; goldens show a plan that became another one, and a program that became longer or slower.
Reasons of decisions are left out, weights too: the hash is that of the instructions alone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

from codegen.neuralscale.target import TARGET
from codegen.riscv.elf import read_elf
from dsa_sched.analysis.work import add_work, layer_work
from dsa_sched.frontend import Model, load_model
from dsa_sched.pipeline.driver import compile_plan
from dsa_sched.stages.compilation import Compilation, CompileOptions
from dsa_sched.stages.tile_stages import plan_tiles
from hw_models.loading import load_chip
from isched.timing.cycle_model import time_program
from partitioner.planners.levels import planner_of
from tests.small_networks import small_network

__all__ = ["Case", "FOLDER", "compare", "cycles", "plan_text", "program_text"]

FOLDER = Path(__file__).parent / "files"


@dataclass(frozen=True, slots=True)
class Case:
    """A network of the zoo at full size (`extent` 0) or for smaller images, for one cluster of the stcp920."""

    network: str
    extent: int
    batch: int
    level: str

    def __str__(self) -> str:
        size = f"-{self.extent}" if self.extent else ""
        return f"{self.network}{size}-{self.batch}-{self.level}"

    @property
    def folder(self) -> Path:
        size = f"-{self.extent}" if self.extent else ""
        return FOLDER / f"{self.network}{size}-{self.batch}"


@cache
def _model(network: str, extent: int, batch: int) -> Model:
    return load_model(small_network(network, extent) if extent else network, {}, batch)


def compiled(case: Case) -> tuple[Compilation, Compilation]:
    """In the plan's own order, and scheduled: a plan knows nothing of that."""
    planner = planner_of(case.level)
    planned = plan_tiles(_model(case.network, case.extent, case.batch), load_chip("stcp920"), TARGET, planner)
    plain, scheduled = (CompileOptions(planner, batch=case.batch, schedule=schedule) for schedule in (False, True))
    return compile_plan(planned, plain), compile_plan(planned, scheduled)


def plan_text(compilation: Compilation) -> str:
    """Groups, steps, what is pinned; the number of decisions instead of their reasons. Weights have no part in it."""
    lines = str(compilation.plan).splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith(("  decision ", "plan "))]
    return "".join([*kept, f"decisions: {len(lines) - len(kept) - 1}\n"])


def program_text(compilation: Compilation) -> str:
    """Groups, instances, instructions and cycles by engine, bytes by way, cycles of the whole, hash of the code."""
    plan, program, chip = compilation.plan, compilation.program, compilation.chip
    work = add_work(layer_work(program, chip, plan).values())
    kinds = Counter(step.kind for step in plan.steps)
    instances = ", ".join(
        f"{group.name} x{group.split.instances}" for group in plan.groups if group.split.instances > 1
    )
    code = sha256()
    for segment in read_elf(compilation.files.files[compilation.files.executable]).segments:
        if segment.executable:
            code.update(segment.data)
    lines = [
        f"groups: {len(plan.groups)} of {sum(len(group.layers) for group in plan.groups)} layers",
        f"instances: {instances or 'one each'}",
        f"steps: {', '.join(f'{kind} {count}' for kind, count in sorted(kinds.items()))}",
        *(f"instructions {engine}: {count:,}" for engine, count in work.instructions.items()),
        *(f"engine cycles {engine}: {cycles:,.0f}" for engine, cycles in work.cycles.items()),
        *(f"bytes {way}: {count:,}" for way, count in sorted(work.moved_bytes.items())),
        f"cycles: {time_program(program, chip, TARGET).cycles:,.0f}",
        f"code: {code.hexdigest()}",
    ]
    return "\n".join(lines) + "\n"


def cycles(path: Path) -> int:
    """Of the whole program that a golden tells of."""
    (line,) = (line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("cycles: "))
    return int(line.removeprefix("cycles: ").replace(",", ""))


def compare(path: Path, text: str, update: bool) -> None:
    """Raises AssertionError with the differing lines, and the command that accepts them; with `update` writes."""
    how = "accept by: python -m pytest tests/golden --update-goldens -k NAME"
    if update:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return
    assert path.exists(), f"no golden {path.name}; make it by: python -m pytest tests/golden --update-goldens -k NAME"
    assert text == path.read_text(encoding="utf-8"), f"{path.name} differs; {how}"
