"""What the case study compares, planned: the same by one kernel a layer, by CUTLASS's pairs, by ours, and forced.

    subject x batch x chip --ways--> plans: default, layers, pairs, resident, chains, mma, ours, slices N,
                                     forced A,B:TEMPLATE ...                              --> floors, programs

`default` has one tile for all convolutions and products, as published comparisons do; `layers` the tile that the model
takes for each. `pairs` fuses wherever CUTLASS has a kernel for two convolutions, whether that pays or not, `resident`
wherever that keeps values between in registers, and `chains` wherever we have one; `mma` does so with the instructions
of before Hopper alone, which are all that CUTLASS 2 uses, so that fusion and instruction are told apart. `ours` is
level O3. `slices N` is level O3 with groups in N slices of the batch wherever that keeps more in the L2, as GraphTurbo
orders instances, even where launches are expected to cost more than that saves; it is of whole networks, where the
batch has such slices. A `forced` one fuses a set of layers that O3 did not, alone and with the kernel that the model
likes best: whether it was right to leave it is for a GPU to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.chosen_kernels import forced_plan, restricted, restricted_plan
from benchmarks.fused_kernels import Offer, fused_offers
from benchmarks.gpu.blocks import STUDIED_BLOCKS
from benchmarks.gpu.networks import loaded
from codegen.cutlass.families.registry import FAMILIES
from codegen.cutlass.kernel.family import KernelWork
from codegen.cutlass.kernel.launches import ComputedLaunch
from codegen.target import GroupTarget
from dsa_sched.frontend import Model
from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.stages.kernel_stages import PlannedKernels, plan_kernels
from dsa_sched.stages.targets import judge_of
from hw_models.chip import Chip
from hw_models.errors import ModelError
from hw_models.parts import TensorEngine
from partitioner.context.plan_context import GraphContext
from partitioner.ir.kernels import Kernel, read_kernel
from partitioner.ir.layers import Layer
from partitioner.ir.slice_segments import slices_of
from partitioner.planners.levels import O0, O3, LayerKernels
from partitioner.planners.registry import make_kernel_plan

__all__ = [
    "ORDERED_BATCH",
    "SMALL_SUBJECTS",
    "SUBJECTS",
    "Subject",
    "Way",
    "candidate_ways",
    "studied_model",
    "ways",
    "without_wgmma",
]

DEFAULT_TILE = "128x128"
TAILOR_BATCHES, BATCHES = (64, 128, 256, 512), (1, 8, 32, 128)
ORDERED_BATCH = 32
"""At which candidates of one group are compared."""
MOST_CANDIDATES = 4
"""Of a set of layers."""
SLICES = (2, 4, 8)
"""Of a batch."""
LONG = 3
"""Layers of a subject beyond which only sets of two are forced."""


@dataclass(frozen=True)
class Subject:
    """A network of the zoo, or a block (`blocks.py`), and its batches. Whole networks get no forced ways."""

    name: str
    batches: tuple[int, ...]
    whole: bool = False


SUBJECTS = (
    Subject("resnet18_tailor", TAILOR_BATCHES),
    *(Subject(block.name, TAILOR_BATCHES if "tailor" in block.name else BATCHES) for block in STUDIED_BLOCKS),
    Subject("mobilenet_v2", BATCHES, whole=True),
    Subject("resnet50", BATCHES, whole=True),
)


SMALL_SUBJECTS = (Subject("small_inverted", (1,)), Subject("small_tail", (1,)))
"""For the executor."""


@dataclass(frozen=True)
class Way:
    """One way to compute a subject: `group` is the first layer of the group that is forced, "" where none is."""

    name: str
    planned: PlannedKernels
    group: str = ""

    @property
    def kernels(self) -> tuple[tuple[str, int], ...]:
        """The kernel of each group and the slices in which it runs: two ways with the same are the same program."""
        return tuple((group.kernel, slices_of(group)) for group in self.planned.plan.groups)


def studied_model(subject: str, batch: int, chip: Chip, target: GroupTarget) -> Model:
    """Raises UserError."""
    return loaded(subject, batch, judge_of(chip, target))


def ways(
    model: Model, subject: Subject, batch: int, chip: Chip, target: GroupTarget, forced: Sequence[str] = ()
) -> Iterator[Way]:
    """All ways to compute a subject, and one more for each of `forced`, as `--force-group` takes them, at level O3;
    pairs, chains and slices are left out where there are none. Raises UserError."""

    def by_cutlass(offer: Offer) -> bool:
        return _is_cutlass(model, offer.layers, offer.kernel, chip)

    yield Way("default", restricted_plan(model, chip, target, "O0", _with_default_tile))
    yield Way("layers", plan_kernels(model, chip, target, CompileOptions(O0(), batch)))
    context = GraphContext(model.graph, model.constants, chip, target)
    offers = list(fused_offers(context))
    pairs, own = _parted(offers, by_cutlass)
    resident, stored = _parted(pairs, _is_resident)
    for name, some in (("pairs", stored), ("resident", resident), ("chains", own)):
        yield from _everywhere(name, model, chip, target, some)
    older = without_wgmma(chip)
    if older != chip:
        context = GraphContext(model.graph, model.constants, older, target)
        yield from _everywhere("mma", model, older, target, _parted(fused_offers(context), by_cutlass)[1])
    ours = plan_kernels(model, chip, target, CompileOptions(O3(), batch))
    yield Way("ours", ours)
    for text in forced:
        options = CompileOptions(O3(), batch, force_groups=(text,))
        yield Way(f"asked {text}", plan_kernels(model, chip, target, options))
    if subject.whole:
        yield from _in_slices(model, batch, chip, target)
    else:
        yield from _forced(model, chip, target, offers, ours)


def _in_slices(model: Model, batch: int, chip: Chip, target: GroupTarget) -> Iterator[Way]:
    """Every number of slices that a batch of more has."""
    for count in SLICES:
        if batch % count or batch == count:
            continue
        try:
            planned = plan_kernels(model, chip, target, CompileOptions(O3(), batch, slices=count))
        except ModelError:  # no two kernels in a row whose images are independent
            continue
        yield Way(f"slices {count}", planned)


def without_wgmma(chip: Chip) -> Chip:
    """The chip without the instruction that came with Hopper; the same chip where it has none."""
    engines = tuple(
        engine.model_copy(update={"rates": tuple(rate for rate in engine.rates if rate.instruction != "wgmma")})
        if isinstance(engine, TensorEngine)
        else engine
        for engine in chip.engines
    )
    return chip.model_copy(update={"engines": engines})


def _everywhere(name: str, model: Model, chip: Chip, target: GroupTarget, offers: Sequence[Offer]) -> Iterator[Way]:
    """One kernel for each set of layers that has one among `offers`: long sets first, then the first in the network; of
    a set the kernel that the model likes best."""
    best: dict[tuple[Layer, ...], Kernel] = {}
    for offer in offers:
        if offer.layers not in best or offer.kernel.seconds < best[offer.layers].seconds:
            best[offer.layers] = offer.kernel
    taken: set[Layer] = set()
    chosen = {}
    for layers in sorted(best, key=len, reverse=True):
        if taken.isdisjoint(layers):
            taken.update(layers)
            chosen[frozenset(layers)] = layers, best[layers]
    if not chosen:
        return

    def choose(layers: tuple[Layer, ...], kernel: Kernel) -> Kernel | None:
        wanted = chosen.get(frozenset(layers))
        return kernel if wanted is None or kernel.text == wanted[1].text else None

    context = GraphContext(model.graph, model.constants, chip, restricted(target, choose))
    forced = tuple(",".join(layer.name for layer in layers) for layers, _ in chosen.values())
    yield Way(name, PlannedKernels(model, context, make_kernel_plan(context, LayerKernels(), forced=forced)))


def _with_default_tile(layers: tuple[Layer, ...], kernel: Kernel) -> Kernel | None:
    del layers
    return kernel if dict(kernel.parameters).get("tile", DEFAULT_TILE) == DEFAULT_TILE else None


def _parted(offers: Iterable[Offer], is_one: Callable[[Offer], bool]) -> tuple[list[Offer], list[Offer]]:
    """Those that are, and the others."""
    parts: tuple[list[Offer], list[Offer]] = ([], [])
    for offer in offers:
        parts[not is_one(offer)].append(offer)
    return parts


def _is_resident(offer: Offer) -> bool:
    """Is it one of CUTLASS's pairs whose values between stay in registers?"""
    return dict(offer.kernel.parameters).get("values") == "registers"


def _is_cutlass(model: Model, layers: tuple[Layer, ...], kernel: Kernel, chip: Chip) -> bool:
    """Is it a kernel of CUTLASS's own?"""
    template, parameters = read_kernel(kernel.text)
    launches = FAMILIES[template].launches(KernelWork(model.graph, layers, chip), parameters, model.constants)
    return all(isinstance(launch, ComputedLaunch) for launch in launches)


def _forced(model: Model, chip: Chip, target: GroupTarget, offers: list[Offer], ours: PlannedKernels) -> Iterator[Way]:
    """Every set of layers that has a kernel and is no group of `ours`, by template; of long subjects pairs."""
    chosen = {frozenset(group.layers) for group in ours.plan.groups}
    most = 2 if len(ours.context.layers) > LONG else LONG
    best: dict[tuple[tuple[Layer, ...], str], Kernel] = {}
    for offer in offers:
        key = offer.layers, offer.kernel.template
        if frozenset(offer.layers) in chosen or len(offer.layers) > most:
            continue
        if key not in best or offer.kernel.seconds < best[key].seconds:
            best[key] = offer.kernel
    for (layers, template), kernel in best.items():
        names = ",".join(layer.name for layer in layers)
        yield Way(f"forced {names}:{template}", forced_plan(model, chip, target, layers, kernel.text), layers[0].name)


def candidate_ways(model: Model, chip: Chip, target: GroupTarget, most: int = MOST_CANDIDATES) -> Iterator[Way]:
    """Candidates of every group that could be, each forced into one kernel a layer: what the model orders by its
    floors, for the order that a GPU measures. Of each set of layers `most`, from the fastest by its floor to the
    slowest; none where there is but one."""
    context = GraphContext(model.graph, model.constants, chip, target)
    sets: dict[tuple[Layer, ...], list[Kernel]] = {}
    for layer in context.layers:
        if not layer.is_view(model.graph):
            sets[layer,] = list(target.kernels(model.graph, (layer,), chip))
    for offer in fused_offers(context):
        sets.setdefault(offer.layers, []).append(offer.kernel)
    for layers, kernels in sets.items():
        names = ",".join(layer.name for layer in layers)
        for kernel in _spread(sorted(kernels, key=lambda kernel: kernel.seconds), most):
            planned = forced_plan(model, chip, target, layers, kernel.text)
            yield Way(f"{names}:{kernel.text}", planned, layers[0].name)


def _spread(kernels: list[Kernel], most: int) -> list[Kernel]:
    """The first, the last, and others at even distances."""
    if len(kernels) < 2:
        return []
    count = min(most, len(kernels))
    return [kernels[number * (len(kernels) - 1) // (count - 1)] for number in range(count)]
