"""What the executor and the bound notice of fused kernels: `python benchmarks/fused_mutants.py [--kernel NAME]`.

    small blocks --every fused template that is offered for all of a block--> a launch --changed in one place--> verdict

Each is the kernel as it is shipped, launched as its list of launches says, its whole output held to the bound of
float64 (`benchmarks/ptx_changes.py` has the changes, and some for these kernels are here). What computes the same is
listed below, with the reason.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.chosen_kernels import forced_plan, gpu_target
from benchmarks.fused_kernels import fused_offers
from benchmarks.gpu.blocks import SMALL_BLOCKS
from benchmarks.gpu.judged import whole_bound
from benchmarks.gpu.networks import loaded
from benchmarks.gpu.synthetic import drawn_input
from benchmarks.output import add_outputs, keep
from benchmarks.ptx_cases.products import worst
from benchmarks.ptx_changes import MOVED, MUTATIONS, Case, Mutation, studied
from codegen.cutlass.emission.launch_list import LaunchList, read_launch_list
from codegen.cutlass.execution import Bytes, filled_arena, run_entry
from codegen.cutlass.ptx import Limits, Module, Statistics
from codegen.target import ClusterFiles
from dsa_sched.frontend import Model
from dsa_sched.pipeline.compilation import CompileOptions
from dsa_sched.pipeline.driver import PlannedKernels, compile_plan
from dsa_sched.pipeline.targets import judge_of, target_of
from hw_models.loading import load_chip
from partitioner.context.plan_context import GraphContext
from partitioner.ir.kernels import read_kernel

__all__ = ["CHANGES", "EQUIVALENT", "LEAST", "cases", "main"]

LEAST: Final = 200
CHIPS: Final = ("a100", "h200")
BATCH: Final = 2
MOST: Final = 4
"""Places of each change in each kernel: they are unrolled, and most places are like others."""
STEPS: Final = Limits(max_steps=200_000)
SEED: Final = 3

CHANGES: Final = (
    *MUTATIONS,
    Mutation(
        "read moved",
        r"^(?P<a>\s*ld\.shared\.\S+\s+(\S+|\{[^}]*\}), \[%r\d+)(\+(?P<n>-?\d+))?\]",
        lambda m: f"{m['a']}+{int(m['n'] or 0) + 16}]" + m.string[m.end() :],
    ),
    Mutation(
        "result moved",
        r"^(?P<a>\s*(@!?%p\d+\s+)?st\.global\.\S+\s+\[%rd\d+)(\+(?P<n>-?\d+))?\]",
        lambda m: f"{m['a']}+{int(m['n'] or 0) + 16}]" + m.string[m.end() :],
    ),
    Mutation("result dropped", r"^\s*(@!?%p\d+\s+)?st\.global\..*;"),
    Mutation(
        "term dropped",
        r"^(?P<a>\s*)fma\.rn\.f32\s+(?P<d>%f\d+), \S+, \S+, (?P<c>%f\d+);",
        lambda m: f"{m['a']}mov.f32 {m['d']}, {m['c']};",
    ),
    Mutation(
        "addend dropped",
        r"^(?P<a>\s*)add\.f32\s+(?P<d>%f\d+), (?P<x>%f\d+), (?P<y>%f\d+);",
        lambda m: f"{m['a']}mov.f32 {m['d']}, {m['x']};",
    ),
    Mutation(
        "choice fixed",
        r"^(?P<a>\s*)selp\.f32\s+(?P<d>%f\d+), (?P<x>\S+), (?P<y>\S+), (?P<p>%p\d+);",
        lambda m: f"{m['a']}mov.f32 {m['d']}, {m['y']};",
        lambda m: f"{m.string} @{m['p']} trap;",
    ),
    Mutation("conditions exchanged", r"^(?P<a>\s*)and\.pred(?P<b>\s.*)$", lambda m: f"{m['a']}or.pred{m['b']}"),
)
NAMES: Final = frozenset({change.name for change in CHANGES} | {MOVED})

EQUIVALENT: Final[dict[str, str]] = {}


def cases() -> Iterator[Case]:
    """Of each block and template the first candidate, on the first chip for which there is one."""
    opened = [(chip, gpu_target(target_of(chip), chip)) for chip in map(load_chip, CHIPS)]
    for block in SMALL_BLOCKS:
        model = loaded(block.name, BATCH, judge_of(*opened[0]))
        seen = set[object]()
        for chip, target in opened:
            context = GraphContext(model.graph, model.constants, chip, target)
            anchors = [layer for layer in context.layers if not layer.is_view(model.graph)]
            for offer in fused_offers(context):
                template, given = read_kernel(offer.kernel.text)
                kind = template, tuple(value for value in given.values() if isinstance(value, str))
                if len(offer.layers) == len(anchors) and kind not in seen:
                    seen.add(kind)
                    planned = forced_plan(model, chip, target, offer.layers, offer.kernel.text)
                    name = f"{block.name.removeprefix('small_')} {'_'.join((template, *kind[1]))}"
                    yield _case(name, model, planned)


def _case(name: str, model: Model, planned: PlannedKernels) -> Case:
    files = compile_plan(planned, CompileOptions(planned.plan.level, BATCH)).files
    launched = _launched(model, planned, files)
    (module,) = {entry.module for entry in launched.listed.launches}
    text = files.files[launched.listed.modules[module].ptx].decode()
    return Case(name, launched.listed.launches[0].kernel, text, launched.error, NAMES, MOST)


@dataclass(frozen=True, slots=True)
class _Launched:
    """A group's launches on memory as it is before them, and what they must leave, `exact` within `allowed`."""

    listed: LaunchList
    arena: Bytes
    output: tuple[int, int]
    exact: np.ndarray
    allowed: np.ndarray

    def error(self, module: Module) -> tuple[float, Statistics]:
        """What the module leaves, in parts of what is allowed. Raises Fault."""
        arena, lines, steps = self.arena.copy(), frozenset[int](), 0
        for number, entry in enumerate(self.listed.launches):
            done = run_entry(self.listed, entry, module, arena, SEED + number, STEPS)
            lines, steps = lines | done.lines, steps + done.steps
        offset, size = self.output
        left = arena[offset : offset + size].view(np.float16).reshape(self.exact.shape)
        return worst(left, self.exact, self.allowed), Statistics(len(self.listed.launches), steps, 0, lines)


def _launched(model: Model, planned: PlannedKernels, files: ClusterFiles) -> _Launched:
    graph, listed = model.graph, read_launch_list(files.files[files.executable])
    inputs = {name: drawn_input(SEED, graph.by_name[name].shape, "float16") for name in graph.inputs}
    at = {tensor.name: tensor for tensor in listed.tensors if tensor.role in ("input", "output")}
    arena = filled_arena(files, listed, {at[name].offset: value.tobytes() for name, value in inputs.items()})
    (group,) = [group for group in planned.plan.groups if group.kernel]
    exact, allowed = whole_bound(graph, model.constants, group, inputs)
    (output,) = graph.outputs
    return _Launched(listed, arena, (at[output].offset, at[output].bytes), exact, allowed)


def main() -> int:
    """Judges all mutants; 1 where one that is not listed goes unnoticed, or a listed one is noticed after all."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else "")
    parser.add_argument("--kernel", metavar="WORD", help="only those whose names have it")
    add_outputs(parser)
    options = parser.parse_args()
    chosen = (case for case in cases() if (options.kernel or "") in case.name)
    found = studied(chosen, EQUIVALENT, lambda said: print(said, flush=True), CHANGES)
    keep(options, found.figures)
    return found.failed(0 if options.kernel else LEAST)


if __name__ == "__main__":
    sys.exit(main())
