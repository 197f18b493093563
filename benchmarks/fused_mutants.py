"""What the executor and the bound notice of our kernels: `python benchmarks/fused_mutants.py [--kernel NAME]`.

    small blocks --every fused template that is offered for all of a block--> a launch --changed in one place--> verdict
    single layers --attention, wgmma, first ones, depthwise, wide teams of lines, lookups--> ...
    integers --each launch of one operator--> ...

Each is the kernel as it is shipped, launched as its list of launches says, where it can be on maps of two extents,
its whole outputs held to the bound of float64, integers to what numpy says (`benchmarks/ptx_changes.py` has the
changes, and some for these kernels are here).

A change that nothing notices must leave the same bits in every output, and be of a kind for which a reason why some
compute the same is listed below; kernels that are written anew move their lines, so places are not listed. One that
leaves other bits within the bound fails, and so does a reason that nothing needs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Final

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the package that is not installed

from benchmarks.chosen_kernels import forced_plan, gpu_target
from benchmarks.fused_kernels import Offer, fused_offers
from benchmarks.gpu.blocks import (
    SMALL_ATTENTIONS,
    SMALL_BLOCKS,
    SMALL_DEPTHWISE,
    SMALL_FIRSTS,
    SMALL_LAYERS,
    SMALL_NORMS,
    SMALL_SPLITS,
    Attention,
    Block,
    Normed,
    Products,
    block_model,
)
from benchmarks.gpu.judged import whole_bound
from benchmarks.gpu.small_kernels import LOOKUPS, SMALL_LINES, WORDS, Integers, Lines, Lookup, small_model
from benchmarks.gpu.synthetic import Array, drawn_input
from benchmarks.output import add_outputs, at_least_one, keep
from benchmarks.ptx_cases.products import worst
from benchmarks.ptx_changes import MOVED, MUTATIONS, Case, Mutant, Mutation, studied
from codegen.cutlass.emission.launch_list import read_launch_list
from codegen.cutlass.execution import Bytes, filled_arena, run_entry
from codegen.cutlass.ptx import Module, PtxLimits, Statistics, parse
from codegen.cutlass.reference.words import emulate_prepared
from codegen.cutlass.runner.runner import LaunchEntry, LaunchList, LaunchTensor
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
from partitioner.ir.graph import Graph, Op
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
STUDIED_TEAMS: Final = 128
"""Of lines: the least threads."""
STUDIED_STRIPS: Final = (1, 4)
"""Of depthwise convolutions: one output a thread, and several that share what they read."""
FARTHER: Final = 7
"""Pixels, or rows, that the second map has more along each axis."""
INDICES: Final = 11
"""Integers are drawn from this many on both sides of zero: rows of each table, counted from its ends."""
OF_INTEGERS: Final = "integers: "
"""What launches of operators on integers are labelled with."""
EXACT: Final = 0.5
"""How far an integer may be from what it must be."""
FAR_ROWS: Final = 9.0
"""Means of some rows before a norm, in deviations."""
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
    Mutation(
        "input moved",
        r"^(?P<a>\s*(@!?%p\d+\s+)?ld\.global\S*\s+(\S+|\{[^}]*\}), \[%rd\d+)(\+(?P<n>-?\d+))?\]",
        lambda m: f"{m['a']}+{int(m['n'] or 0) + 16}]" + m.string[m.end() :],
    ),
    Mutation(
        "integer choice fixed",
        r"^(?P<a>\s*)selp\.[bsu]32\s+(?P<d>%r\d+), (?P<x>\S+), (?P<y>\S+), (?P<p>%p\d+);",
        lambda m: f"{m['a']}mov.b32 {m['d']}, {m['y']};",
        lambda m: f"{m.string} @{m['p']} trap;",
    ),
    Mutation(
        "sum turned",
        r"^(?P<a>\s*)(?P<o>add|sub)\.s32(?P<b>\s+%r\d+, .*)$",
        lambda m: f"{m['a']}{'sub' if m['o'] == 'add' else 'add'}.s32{m['b']}",
    ),
    Mutation(
        "order turned",
        r"^(?P<a>\s*)(?P<o>min|max)\.s32(?P<b>\s+%r\d+, .*)$",
        lambda m: f"{m['a']}{'min' if m['o'] == 'max' else 'max'}.s32{m['b']}",
    ),
)
OF_SINGLES: Final = frozenset({"input moved"})
OF_WORDS: Final = frozenset({"integer choice fixed", "sum turned", "order turned"})
"""Changes of the kernels alone whose results are made of what they read, or of indices, and nothing else."""
NAMES: Final = frozenset({change.name for change in CHANGES} | {MOVED})
FUSED: Final = NAMES - OF_SINGLES - OF_WORDS

PIXELS: Final = (
    "of a pixel that is outside of the image by another axis too, or of a layer whose pixels outside of the image feed "
    "only results that are not stored, or of threads that have no line, whose results are not stored"
)
PADDED: Final = "of keys behind the last one, which no row sees, or of padded elements of a head, which are not stored"
STAGE: Final = "of a stage that is never used, or not filled a second time"
EQUIVALENT: Final[dict[str, str]] = {
    "copy unbounded": (
        "what it copies beyond the image is made zero behind the layer, and beyond the channels or keys meets zeros"
    ),
    "commit dropped": "of a group without copies: none are started any more behind the last step's",
    "bound moved": f"{PIXELS}; or {PADDED}; or of an integer that is chosen where both choices are equal",
    "bound dropped": f"{PIXELS}; or {PADDED}; or of a place that no thread lacks",
    "choice fixed": "an activation of pixels outside of the image, which are made zero or not stored",
    "arrival dropped": STAGE,
    "fewer arrivals expected": STAGE,
    "object not made": STAGE,
    "wait not believed": f"{STAGE}; or of values where keys that were copied behind them are there",
    "matrix wait dropped": "of a layer of one step, behind which all products are waited for anyway",
    "swizzle dropped": "of a parity that never changes, where a ring of stages is not gone round",
    "barrier dropped": (
        "before results take the place of keys and values that the last step does not read, or behind a block's last "
        "sums, whose place nothing takes"
    ),
    "operand exchanged": PADDED,
    "product dropped": PADDED,
    "fragment exchanged": f"{PADDED}; or of elements of a row in another order, of which it finds sums",
    "fragment turned": PADDED,
    "shuffle changed": "of filters that there are not, which are not stored",
    "matrix layout changed": PADDED,
    "store moved": PADDED,
    "addend dropped": f"{PADDED}; or of a warp that has no elements of a line",
    "barrier moved": "beyond an access of memory that no other warp touches between this barrier and the next",
    "input moved": "of the last integer of a line that a running sum leaves out",
    "sum turned": (
        "of the last integer of a line that a running sum leaves out, of the end of a table where indices are inside, "
        "of how long a loop is before it is unrolled, or of the rounding of a quotient of what is not negative"
    ),
}
"""Why changes of a kind may compute the same."""


Small = Block | Products | Attention | Normed | Lines | Lookup


def cases(word: str = "") -> Iterator[Studied]:
    """Of each block and template the first candidate, and all studied ones of each single layer, on the first chip for
    which there is one; then every kernel on integers; where the name has the word."""
    layers = (*SMALL_ATTENTIONS, *SMALL_LAYERS, *SMALL_FIRSTS, *SMALL_SPLITS, *SMALL_DEPTHWISE)
    singles = (*layers, *SMALL_LINES, *LOOKUPS)
    for small in (*SMALL_BLOCKS, *SMALL_NORMS, *singles):
        seen, cores = set[str](), 1 if small in (*SMALL_LAYERS, *SMALL_FIRSTS, *SMALL_NORMS) else None
        before, apart, _ = word.partition(" ")
        if apart and not small.name.endswith(before):
            continue
        opened = [(chip, gpu_target(target_of(chip), chip)) for chip in (_by_floors(name, cores) for name in CHIPS)]
        for chip, target in opened:
            model = _model(small, chip, target)
            context = GraphContext(model.graph, model.constants, chip, target)
            anchors = [layer for layer in context.layers if not layer.is_view(model.graph)]
            for offer in _single_offers(context) if small in singles else _fused_offers(context):
                template, given = read_kernel(offer.kernel.text)
                kind = "_".join((template, *_studied_numbers(template, given)))
                name = f"{small.name.removeprefix('small_')} {kind}"
                if len(offer.layers) == len(anchors) and kind not in seen and word in name:
                    seen.add(kind)
                    yield _studied(name, small, chip, target, offer)
    yield from _words(word)


def _studied_numbers(template: str, given: Mapping[str, object]) -> tuple[str, ...]:
    """What candidates of a template that are studied differ in."""
    if template in ("lines", "depthwise"):
        return (str(given["threads" if template == "lines" else "strip"]),)
    return tuple(value for value in given.values() if isinstance(value, str))


def _fused_offers(context: KernelContext) -> Iterator[Offer]:
    """For models of several layers; of products of norms, those of studied tiles."""
    for offer in fused_offers(context):
        template, given = read_kernel(offer.kernel.text)
        if template != "norm_product" or given["tile"] in STUDIED_TILES:
            yield offer


def _single_offers(context: KernelContext) -> Iterator[Offer]:
    """For models of one layer."""
    layers = tuple(layer for layer in context.layers if not layer.is_view(context.graph))
    for kernel in context.target.kernels(context.graph, layers, context.chip):
        template, given = read_kernel(kernel.text)
        match template:
            case "wgmma_layer" | "split_layer":
                studied = given["tile"] in STUDIED_TILES
            case "lines":
                studied = int(given["threads"]) >= STUDIED_TEAMS
            case "depthwise":
                studied = given["strip"] in STUDIED_STRIPS
            case _:
                studied = template in ("attention", "gather", "first_convolution")
        if studied:
            yield Offer(layers, kernel)


def _by_floors(name: str, cores: int | None = None) -> Chip:
    """The chip without what was measured on it, so that no instruction is too slow for small maps to be offered; of
    `cores` cores, on which blocks go through many tiles."""
    chip = load_chip(name)
    simt = chip.simt.model_copy(update={"kernels": ()})
    return chip.model_copy(update={"simt": simt, "cores_per_cluster": cores or chip.cores_per_cluster})


def _model(small: Small | Integers, chip: Chip, target: GroupTarget) -> Model:
    made = small_model(small) if isinstance(small, Lines | Lookup | Integers) else block_model(small)
    return load_model(made, {}, BATCH, judge_of(chip, target))


@dataclass(frozen=True, slots=True)
class Studied:
    """A kernel with what it leaves when it is right."""

    case: Case
    right: tuple[bytes, ...]
    runs: tuple[_Launched, ...]

    def leaves_the_same(self, text: str) -> bool:
        """Whether a changed kernel, in which nothing was noticed, leaves the same bits."""
        return all(run.left(parse(text))[0].tobytes() == bits for run, bits in zip(self.runs, self.right, strict=True))


def _studied(name: str, small: Small, chip: Chip, target: GroupTarget, offer: Offer) -> Studied:
    """On two maps where the same source is offered for both: tiles of some templates follow the extent."""
    runs, text = list[_Launched](), ""
    for each in (small, _farther(small)):
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
            if isinstance(small, Attention):
                runs.extend(replace(run, seed=seed) for seed in OTHER_SEEDS)
    changes = FUSED if len(offer.layers) > 1 or isinstance(small, Attention) else FUSED | OF_SINGLES
    return _kernel(name, text, changes, runs)


def _kernel(name: str, text: str, changes: frozenset[str], runs: list[_Launched]) -> Studied:
    def error(module: Module) -> tuple[float, Statistics]:
        largest, lines, steps = 0.0, frozenset[int](), 0
        for run in runs:
            left, done = run.left(module)
            largest, lines, steps = max(largest, run.share(left)), lines | done.lines, steps + done.steps
            if largest > 1:
                break
        return largest, Statistics(len(runs), steps, 0, lines)

    right = tuple(run.left(parse(text))[0].tobytes() for run in runs)
    return Studied(Case(name, runs[0].entries[0].kernel, text, error, changes, PLACES), right, tuple(runs))


def _farther(small: Small) -> Small:
    match small:
        case Block():
            return replace(small, extent=small.extent + FARTHER)
        case Attention():
            return replace(small, rows=small.rows + FARTHER, keys=small.keys + FARTHER)
        case _:
            return replace(small, rows=small.rows + FARTHER)


def _same_layers(model: Model, chip: Chip, target: GroupTarget, offer: Offer) -> tuple[Layer, ...]:
    context = GraphContext(model.graph, model.constants, chip, target)
    names = {layer.name for layer in offer.layers}
    return tuple(layer for layer in context.layers if layer.name in names)


@dataclass(frozen=True, slots=True)
class _Launched:
    """Launches on memory as it is before them, and what they must leave, `exact` within `allowed`."""

    listed: LaunchList
    entries: tuple[LaunchEntry, ...]
    arena: Bytes
    output: LaunchTensor
    exact: Doubles
    allowed: Doubles
    seed: int = SEED

    def left(self, module: Module) -> tuple[Array, Statistics]:
        """What the module leaves. Raises Fault."""
        arena, lines, steps = self.arena.copy(), frozenset[int](), 0
        for number, entry in enumerate(self.entries):
            done = run_entry(self.listed, entry, module, arena, self.seed + number, STEPS)
            lines, steps = lines | done.lines, steps + done.steps
        left = _held(arena, self.output).reshape(self.exact.shape)
        return left, Statistics(len(self.entries), steps, 0, lines)

    def share(self, left: Array) -> float:
        """Of what is allowed, the largest that an element takes up."""
        return worst(left, self.exact, self.allowed)


def _held(arena: Bytes, tensor: LaunchTensor) -> Array:
    """Of as many bytes as its elements take up."""
    place = slice(tensor.offset, tensor.offset + tensor.used_bytes)
    return arena[place].view(tensor.dtype).reshape(tensor.shape)


def _inputs(listed: LaunchList) -> dict[str, Array]:
    """Numbers as the study's; integers around zero."""
    drawn, found = np.random.default_rng(SEED), dict[str, Array]()
    for tensor in listed.tensors:
        if tensor.role == "input" and tensor.dtype == "float16":
            found[tensor.name] = drawn_input(SEED, tensor.shape, "float16")
        elif tensor.role == "input":
            found[tensor.name] = drawn.integers(-INDICES, INDICES, tensor.shape).astype(tensor.dtype)
    return found


def _filled(files: ClusterFiles, listed: LaunchList, inputs: Mapping[str, Array]) -> Bytes:
    at = {tensor.name: tensor.offset for tensor in listed.tensors if tensor.role == "input"}
    return filled_arena(files, listed, {at[name]: inputs[name].tobytes() for name in at})


def _launched(model: Model, planned: PlannedKernels, files: ClusterFiles) -> _Launched:
    graph, listed = model.graph, read_launch_list(files.files[files.executable])
    inputs = _inputs(listed)
    if any(op.kind == "layer_norm" for op in graph.ops):
        inputs = {name: _partly_far(value) for name, value in inputs.items()}
    (output,) = [tensor for tensor in listed.tensors if tensor.role == "output"]
    (group,) = [group for group in planned.plan.groups if group.kernel]
    exact, allowed = whole_bound(graph, model.constants, group, inputs)
    return _Launched(listed, listed.launches, _filled(files, listed, inputs), output, exact, allowed)


def _words(word: str) -> Iterator[Studied]:
    """Every kernel on integers of a model, with all launches of it, each on what those before it have left."""
    chip = _by_floors(CHIPS[0])
    target = gpu_target(target_of(chip), chip)
    model = _model(WORDS, chip, target)
    if not any(word.rstrip("0123456789") in f"words {_stem(op)}" for op in _of_integers(model.graph)):
        return
    files = compile_plan(forced_plan(model, chip, target, (), ""), CompileOptions(O0(), BATCH)).files
    listed = read_launch_list(files.files[files.executable])
    texts = [files.files[module.ptx].decode() for module in listed.modules]
    runs: dict[int, list[_Launched]] = {}
    for module, run in _words_launched(model, files, listed, [parse(text) for text in texts]):
        runs.setdefault(module, []).append(run)
    stems, operators = Counter[str](), {op.name: op for op in _of_integers(model.graph)}
    for module, own in runs.items():
        stem = _stem(operators[own[0].entries[0].layer.removeprefix(OF_INTEGERS)])
        stems[stem] += 1
        name = f"words {stem}{stems[stem] if stems[stem] > 1 else ''}"
        if word in name:
            yield _kernel(name, texts[module], FUSED | OF_SINGLES | OF_WORDS, own)


def _of_integers(graph: Graph) -> tuple[Op, ...]:
    return (*graph.prepared, *graph.concluded)


def _stem(op: Op) -> str:
    return str(op.attribute("function")) if op.kind in ("words", "reduce") else op.kind


def _words_launched(
    model: Model, files: ClusterFiles, listed: LaunchList, modules: list[Module]
) -> Iterator[tuple[int, _Launched]]:
    """The launches of each operator on integers with their module's number, in order."""
    graph, values = model.graph, _inputs(listed)
    arena = _filled(files, listed, values)
    operators = {op.name: op for op in _of_integers(graph)}

    def read(name: str) -> Array:
        tensor = graph.by_name[name]
        return model.constants[tensor.constant].reshape(tensor.shape) if tensor.constant else values[name]

    for label, entries in groupby(listed.launches, lambda entry: entry.layer):
        own, before = tuple(entries), arena.copy()
        for entry in own:
            run_entry(listed, entry, modules[entry.module], arena, SEED, STEPS)
        if label.startswith(OF_INTEGERS):
            op = operators[label.removeprefix(OF_INTEGERS)]
            made = values[op.outputs[0]] = emulate_prepared(graph, op, read)
            exact = made.astype(np.float64)
            output = listed.tensors[own[0].relocations[0].tensor]
            yield own[0].module, _Launched(listed, own, before, output, exact, np.full(exact.shape, EXACT))


def _partly_far(x: Array) -> Array:
    """Every other row far from zero, in halves, whose sums and sums of squares are the same in any order."""
    rows = np.arange(x.shape[-2])[:, None]
    return np.asarray(np.round(2 * x) / 2 + rows % 2 * FAR_ROWS, x.dtype)


@dataclass
class Excuses:
    """Which kinds of changes were found to compute the same, by kernel; of each so many `places` of a kind are
    changed."""

    places: int = PLACES
    studied: dict[str, Studied] = field(default_factory=dict)
    used: dict[str, Counter[str]] = field(default_factory=dict)

    def known(self, chosen: Iterable[Studied]) -> Iterator[Case]:
        for each in chosen:
            self.studied = {each.case.name: each}
            yield replace(each.case, most=self.places)

    def __call__(self, case: Case, mutant: Mutant) -> bool:
        if mutant.mutation not in EQUIVALENT or not self.studied[case.name].leaves_the_same(mutant.text):
            return False
        self.used.setdefault(case.name, Counter())[mutant.mutation] += 1
        return True

    @property
    def kinds(self) -> set[str]:
        """Of any kernel."""
        return {kind for own in self.used.values() for kind in own}


Rows = dict[str, Mapping[str, int]]
KEPT: Final = ("kernels", "equivalent")


def _kept(path: Path | None, word: str | None, places: int) -> tuple[Rows, Rows]:
    """Of kernels whose names have not the word: what the file has of verdicts and of changes that compute the same.
    Raises SystemExit for a file of other numbers of places."""
    if path is None or not word or not path.exists():
        return {}, {}
    had = json.loads(path.read_text(encoding="utf-8"))
    if had["places"] != places:
        raise SystemExit(f"{path} has {had['places']} places of each change, not {places}: rows cannot be added")
    rows, same = ({name: own for name, own in had[key].items() if word not in name} for key in KEPT)
    return rows, same


def main() -> int:
    """Judges all mutants; 1 where one goes unnoticed for which there is no reason, or a reason has no mutant."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else "")
    parser.add_argument(
        "--kernel", metavar="WORD", help="only those whose names have it; others that the file of --json has are kept"
    )
    parser.add_argument("--places", type=at_least_one, default=PLACES, metavar="N",
                        help=f"of each change in each kernel (default {PLACES})")  # fmt: skip
    add_outputs(parser)
    options = parser.parse_args()
    rows, same = _kept(options.json, options.kernel, options.places)
    excuses = Excuses(options.places)
    found = studied(
        excuses.known(cases(options.kernel or "")), {}, lambda said: print(said, flush=True), CHANGES, excuses
    )
    figures = {"kernels": rows | dict(found.figures), "equivalent": same | excuses.used}
    keep(options, {"places": options.places} | figures)
    unused = [] if options.kernel or options.places < PLACES else sorted(EQUIVALENT.keys() - excuses.kinds)
    for kind in unused:
        print(f"{kind}: a reason is listed, and no change of this kind computes the same")
    return found.failed(0 if options.kernel else LEAST) or int(bool(unused))


if __name__ == "__main__":
    sys.exit(main())
