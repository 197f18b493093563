"""What the executor and the bound notice of fused kernels: `python benchmarks/fused_mutants.py [--kernel NAME]`.

    small blocks --every fused template that is offered for all of a block--> a launch --changed in one place--> verdict

Each is the kernel as it is shipped, launched as its list of launches says, where it can be on maps of two extents,
its whole outputs held to the bound of float64 (`benchmarks/ptx_changes.py` has the changes, and some for these kernels
are here).

A change that nothing notices must leave the same bits in every output, and be of a kind for which a reason why some
compute the same is listed below; kernels that are written anew move their lines, so places are not listed. One that
leaves other bits within the bound fails, and so does a reason that nothing needs.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the package that is not installed

from benchmarks.chosen_kernels import forced_plan, gpu_target
from benchmarks.fused_kernels import Offer, fused_offers
from benchmarks.gpu.blocks import SMALL_ATTENTIONS, SMALL_BLOCKS, SMALL_LAYERS, Attention, Block, Products, block_model
from benchmarks.gpu.judged import whole_bound
from benchmarks.gpu.synthetic import Array, drawn_input
from benchmarks.output import add_outputs, at_least_one, keep
from benchmarks.ptx_cases.products import worst
from benchmarks.ptx_changes import MOVED, MUTATIONS, Case, Mutant, Mutation, studied
from codegen.cutlass.emission.launch_list import read_launch_list
from codegen.cutlass.execution import Bytes, filled_arena, run_entry
from codegen.cutlass.ptx import Module, PtxLimits, Statistics, parse
from codegen.cutlass.runner.runner import LaunchList
from codegen.judgement import Doubles
from codegen.target import ClusterFiles, GroupTarget
from dsa_sched.frontend import Model, load_model
from dsa_sched.pipeline.driver import compile_plan
from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.stages.kernel_stages import PlannedKernels
from dsa_sched.stages.targets import judge_of, target_of
from hw_models.chip import Chip
from hw_models.loading import load_chip
from partitioner.context.plan_context import GraphContext, KernelContext
from partitioner.ir.kernels import read_kernel
from partitioner.ir.layers import Layer
from partitioner.planners.levels import O0

__all__ = ["CHANGES", "EQUIVALENT", "LEAST", "Excuses", "Studied", "cases", "main"]

LEAST: Final = 200
CHIPS: Final = ("a100", "h200")
BATCH: Final = 2
PLACES: Final = 4
"""Of each change in each kernel: they are unrolled, and most places are like others."""
STUDIED_TILES: Final = ("64x32", "256x128")
"""Of single layers by wgmma: groups of warps that take turns, and that share a tile."""
FARTHER: Final = 7
"""Pixels, or rows, that the second map has more along each axis."""
STEPS: Final = PtxLimits(max_steps=200_000)
SEED: Final = 3
OTHER_SEEDS: Final = (8,)
"""Of attention: in another order copies of keys and values land, which it waits for one by one."""

CHANGES: Final = (
    *(mutation for mutation in MUTATIONS if mutation.name != "copy unbounded"),
    Mutation(
        "copy unbounded",
        r"^(?P<a>\s*cp\.async\.c[ag]\.[^;]*), (?P<n>%r\d+);",
        lambda m: f"{m['a']};",
        lambda m: f"{m.string} {{ .reg .pred q; setp.ne.s32 q, {m['n']}, 16; @q trap; }}",
    ),
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
)
NAMES: Final = frozenset({change.name for change in CHANGES} | {MOVED})

PIXELS: Final = (
    "of a pixel that is outside of the image by another axis too, or of a layer whose pixels outside of the image feed "
    "only results that are not stored"
)
PADDED: Final = "of keys behind the last one, which no row sees, or of padded elements of a head, which are not stored"
STAGE: Final = "of a stage that is never used, or not filled a second time"
EQUIVALENT: Final[dict[str, str]] = {
    "copy unbounded": (
        "what it copies beyond the image is made zero behind the layer, and beyond the channels or keys meets zeros"
    ),
    "commit dropped": "of a group without copies: none are started any more behind the last step's",
    "bound moved": f"{PIXELS}; or {PADDED}",
    "bound dropped": f"{PIXELS}; or {PADDED}",
    "choice fixed": "an activation of pixels outside of the image, which are made zero or not stored",
    "arrival dropped": STAGE,
    "fewer arrivals expected": STAGE,
    "object not made": STAGE,
    "wait not believed": f"{STAGE}; or of values where keys that were copied behind them are there",
    "matrix wait dropped": "of a layer of one step, behind which all products are waited for anyway",
    "swizzle dropped": "of a parity that never changes, where a ring of stages is not gone round",
    "barrier dropped": "before results take the place of keys and values that the last step does not read",
    "operand exchanged": PADDED,
    "product dropped": PADDED,
    "fragment exchanged": PADDED,
    "fragment turned": PADDED,
    "matrix layout changed": PADDED,
    "store moved": PADDED,
    "addend dropped": PADDED,
    "barrier moved": "beyond an access of memory that no other warp touches between this barrier and the next",
}
"""Why changes of a kind may compute the same."""


def cases(word: str = "") -> Iterator[Studied]:
    """Of each block and template the first candidate, on the first chip for which there is one, where the name has the
    word."""
    for block in (*SMALL_BLOCKS, *SMALL_ATTENTIONS, *SMALL_LAYERS):
        seen, cores = set[object](), 1 if block in SMALL_LAYERS else None
        opened = [(chip, gpu_target(target_of(chip), chip)) for chip in (_by_floors(name, cores) for name in CHIPS)]
        for chip, target in opened:
            model = _model(block, chip, target)
            context = GraphContext(model.graph, model.constants, chip, target)
            anchors = [layer for layer in context.layers if not layer.is_view(model.graph)]
            for offer in _offers(block, context):
                template, given = read_kernel(offer.kernel.text)
                kind = template, tuple(value for value in given.values() if isinstance(value, str))
                if len(offer.layers) == len(anchors) and kind not in seen:
                    seen.add(kind)
                    name = f"{block.name.removeprefix('small_')} {'_'.join((template, *kind[1]))}"
                    if word in name:
                        yield _studied(name, block, chip, target, offer)


def _offers(block: Block | Products | Attention, context: KernelContext) -> Iterator[Offer]:
    """Attention is one layer, and so are those by wgmma; all other blocks are kernels of several."""
    if not isinstance(block, Attention) and block not in SMALL_LAYERS:
        yield from fused_offers(context)
        return
    layers = tuple(layer for layer in context.layers if not layer.is_view(context.graph))
    for kernel in context.target.kernels(context.graph, layers, context.chip):
        template, given = read_kernel(kernel.text)
        if isinstance(block, Attention) or (template == "wgmma_layer" and given["tile"] in STUDIED_TILES):
            yield Offer(layers, kernel)


def _by_floors(name: str, cores: int | None = None) -> Chip:
    """The chip without what was measured on it, so that no instruction is too slow for small maps to be offered; of
    `cores` cores, on which blocks go through many tiles."""
    chip = load_chip(name)
    simt = chip.simt.model_copy(update={"kernels": ()})
    return chip.model_copy(update={"simt": simt, "cores_per_cluster": cores or chip.cores_per_cluster})


def _model(block: Block | Products | Attention, chip: Chip, target: GroupTarget) -> Model:
    return load_model(block_model(block), {}, BATCH, judge_of(chip, target))


@dataclass(frozen=True, slots=True)
class Studied:
    """A kernel with what it leaves when it is right."""

    case: Case
    right: tuple[bytes, ...]
    runs: tuple[_Launched, ...]

    def leaves_the_same(self, text: str) -> bool:
        """Whether a changed kernel, in which nothing was noticed, leaves the same bits."""
        return all(run.left(parse(text))[0].tobytes() == bits for run, bits in zip(self.runs, self.right, strict=True))


def _studied(name: str, block: Block | Products | Attention, chip: Chip, target: GroupTarget, offer: Offer) -> Studied:
    """On two maps where the same source is offered for both: tiles of some templates follow the extent."""
    runs, text = list[_Launched](), ""
    for each in (block, _farther(block)):
        model = _model(each, chip, target)
        layers = _same_layers(model, chip, target, offer)
        if all(kernel.text != offer.kernel.text for kernel in target.kernels(model.graph, layers, chip)):
            continue
        planned = forced_plan(model, chip, target, layers, offer.kernel.text)
        files = compile_plan(planned, CompileOptions(O0(), BATCH)).files
        run = _launched(model, planned, files)
        (module,) = {entry.module for entry in run.listed.launches}
        own = files.files[run.listed.modules[module].ptx].decode()
        if own == (text or own):
            runs.append(run)
            text = own
            if isinstance(block, Attention):
                runs.extend(replace(run, seed=seed) for seed in OTHER_SEEDS)
    kernel = runs[0].listed.launches[0].kernel

    def error(module: Module) -> tuple[float, Statistics]:
        largest, lines, steps = 0.0, frozenset[int](), 0
        for run in runs:
            left, done = run.left(module)
            largest, lines, steps = max(largest, run.share(left)), lines | done.lines, steps + done.steps
            if largest > 1:
                break
        return largest, Statistics(len(runs), steps, 0, lines)

    right = tuple(run.left(parse(text))[0].tobytes() for run in runs)
    return Studied(Case(name, kernel, text, error, NAMES, PLACES), right, tuple(runs))


def _farther(block: Block | Products | Attention) -> Block | Products | Attention:
    if isinstance(block, Products):
        return replace(block, rows=block.rows + FARTHER)
    if isinstance(block, Attention):
        return replace(block, rows=block.rows + FARTHER, keys=block.keys + FARTHER)
    return replace(block, extent=block.extent + FARTHER)


def _same_layers(model: Model, chip: Chip, target: GroupTarget, offer: Offer) -> tuple[Layer, ...]:
    context = GraphContext(model.graph, model.constants, chip, target)
    names = {layer.name for layer in offer.layers}
    return tuple(layer for layer in context.layers if layer.name in names)


@dataclass(frozen=True, slots=True)
class _Launched:
    """A group's launches on memory as it is before them, and what they must leave, `exact` within `allowed`."""

    listed: LaunchList
    arena: Bytes
    output: tuple[int, int]
    exact: Doubles
    allowed: Doubles
    seed: int = SEED

    def left(self, module: Module) -> tuple[Array, Statistics]:
        """What the module leaves. Raises Fault."""
        arena, lines, steps = self.arena.copy(), frozenset[int](), 0
        for number, entry in enumerate(self.listed.launches):
            done = run_entry(self.listed, entry, module, arena, self.seed + number, STEPS)
            lines, steps = lines | done.lines, steps + done.steps
        offset, size = self.output
        left = arena[offset : offset + size].view(np.float16).reshape(self.exact.shape)
        return left, Statistics(len(self.listed.launches), steps, 0, lines)

    def share(self, left: Array) -> float:
        """Of what is allowed, the largest that an element takes up."""
        return worst(left, self.exact, self.allowed)


def _launched(model: Model, planned: PlannedKernels, files: ClusterFiles) -> _Launched:
    graph, listed = model.graph, read_launch_list(files.files[files.executable])
    inputs = {name: drawn_input(SEED, graph.by_name[name].shape, "float16") for name in graph.inputs}
    at = {tensor.name: tensor for tensor in listed.tensors if tensor.role in ("input", "output")}
    arena = filled_arena(files, listed, {at[name].offset: value.tobytes() for name, value in inputs.items()})
    (group,) = [group for group in planned.plan.groups if group.kernel]
    exact, allowed = whole_bound(graph, model.constants, group, inputs)
    (output,) = graph.outputs
    return _Launched(listed, arena, (at[output].offset, at[output].bytes), exact, allowed)


@dataclass
class Excuses:
    """Which kinds of changes were found to compute the same; of each kernel so many `places` of a kind are changed."""

    places: int = PLACES
    studied: dict[str, Studied] = field(default_factory=dict)
    used: Counter[str] = field(default_factory=Counter)

    def known(self, chosen: Iterable[Studied]) -> Iterator[Case]:
        for each in chosen:
            self.studied = {each.case.name: each}
            yield replace(each.case, most=self.places)

    def __call__(self, case: Case, mutant: Mutant) -> bool:
        if mutant.mutation not in EQUIVALENT or not self.studied[case.name].leaves_the_same(mutant.text):
            return False
        self.used[mutant.mutation] += 1
        return True


def main() -> int:
    """Judges all mutants; 1 where one goes unnoticed for which there is no reason, or a reason has no mutant."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else "")
    parser.add_argument("--kernel", metavar="WORD", help="only those whose names have it")
    parser.add_argument("--places", type=at_least_one, default=PLACES, metavar="N",
                        help=f"of each change in each kernel (default {PLACES})")  # fmt: skip
    add_outputs(parser)
    options = parser.parse_args()
    excuses = Excuses(options.places)
    found = studied(
        excuses.known(cases(options.kernel or "")), {}, lambda said: print(said, flush=True), CHANGES, excuses
    )
    keep(options, {"places": options.places, "kernels": found.figures, "equivalent": dict(excuses.used)})
    unused = [] if options.kernel or options.places < PLACES else sorted(EQUIVALENT.keys() - excuses.used.keys())
    for kind in unused:
        print(f"{kind}: a reason is listed, and no change of this kind computes the same")
    return found.failed(0 if options.kernel else LEAST) or int(bool(unused))


if __name__ == "__main__":
    sys.exit(main())
