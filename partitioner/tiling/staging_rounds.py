"""Rounds: the parts of a layer for which the shared buffer can hold all that the cores read and write in one of them.

    boxes of the cores --cut--> rounds; in each: [main -> staging] cores work [staging -> main]

Where nothing stays in the cores' local memories the whole output is cut and every round is divided among the cores
anew. Where something does, each core keeps its own box and cuts that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product, zip_longest
from math import inf, prod
from typing import NamedTuple

from hw_models.infeasible import Infeasible
from hw_models.memory_parts import aligned
from partitioner.context.plan_context import PlanContext
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box, box_size, empty_box, join, run_count
from partitioner.tiling.core_partition import cut_axis, piece_boxes
from partitioner.tiling.tiling import Overflow, cut_counts, middle, no_tile, outer_counts, piece_cycles


@dataclass(frozen=True, slots=True)
class Round:
    """The box of the layer's output for each core, empty for a core that rests; `whole` is the box that they divide
    among them, None where each works on its own."""

    boxes: tuple[Box, ...]
    whole: Box | None = None


HARDLY = 0.875
"""Share of the bytes of the best cut so far; a finer cut is only looked at if it moves less than this."""

EVEN_ROUNDS = 1.25
"""Largest factor in the number of rounds for which equal rounds are preferred, if they move no more bytes."""

MUCH_FEWER = 0.5
"""Largest share of the cycles of its slowest core for which a round is cut finer than its binding says: more pieces
load some data more often, which the cycles of one core do not show."""

WASTE = 1.25
"""Largest factor between the bytes of one box around those of several cores and their own bytes, for staging it as
one."""

RUN_BYTES = 512
"""Cost in bytes of each run that an output is cut into where the DMA cannot scatter, as each needs a descriptor of its
own: about what the DMA moves while a core writes a descriptor."""


@dataclass(frozen=True, slots=True)
class Staged:
    """A box of a tensor, dense, at `offset_bytes` of the staging area."""

    tensor: str
    box: Box
    offset_bytes: int


@dataclass(frozen=True, slots=True)
class StagingRound:
    """Content of the staging area in one round: `inputs`, and `outputs` on their way to the main memory."""

    inputs: tuple[Staged, ...]
    outputs: tuple[Staged, ...]
    loaded_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Stager:
    """Staging of a round of `layer`: the tensors in `staged` are brought into the staging memory; with `output`, the
    round's output lies there too. `room_bytes` are available."""

    ctx: PlanContext
    layer: Layer
    staged: Callable[[str], bool]
    output: bool
    room_bytes: int

    def stage(self, this_round: Round) -> StagingRound:
        """Places of everything that the cores read and write in one round, constants first."""
        found: dict[str, dict[Box, None]] = {}
        boxes = this_round.boxes if this_round.whole is None else (this_round.whole,)
        for box in dict.fromkeys(boxes):
            if box_size(box):
                for name, read in self.ctx.reads(self.layer, box).items():
                    if self.staged(name) and box_size(read):
                        found.setdefault(name, {})[read] = None
        inputs: list[Staged] = []
        offset = 0
        # What does not change between rounds comes first, so that its place does not move.
        for name, wanted in sorted(found.items(), key=lambda item: not self.ctx.graph.by_name[item[0]].constant):
            for box in _merged(tuple(wanted)):
                inputs.append(Staged(name, box, offset))
                offset += self._bytes(name, box)
        loaded = offset
        outputs: list[Staged] = []
        for box in boxes if self.output else ():
            if box_size(box):
                outputs.append(Staged(self.layer.output, box, offset))
                offset += self._bytes(self.layer.output, box)
        return StagingRound(tuple(inputs), tuple(outputs), loaded, offset)

    def scattered_bytes(self, stage: StagingRound) -> int:
        """Cost, in bytes, of writing the outputs of a round to the main memory beyond their own bytes."""
        if self.ctx.chip.dma.scatter:
            return 0
        shape = self.ctx.graph.by_name[self.layer.output].shape
        return sum(RUN_BYTES * (run_count(shape, staged.box) - 1) for staged in stage.outputs)

    def _bytes(self, name: str, box: Box) -> int:
        return aligned(self.ctx.chip, self.ctx.roles.staging, box_size(box) * self.ctx.graph.by_name[name].item_bytes)


def _merged(boxes: tuple[Box, ...]) -> tuple[Box, ...]:
    """The boxes, or the one that holds them all where it is hardly larger."""
    if len(boxes) == 1:
        return boxes
    whole = boxes[0]
    for box in boxes[1:]:
        whole = join(whole, box)
    return (whole,) if box_size(whole) <= WASTE * sum(box_size(box) for box in boxes) else boxes


def shared_rounds(
    stager: Stager, box: Box, pieces: tuple[int, ...], granularity: tuple[int, ...]
) -> tuple[Round, ...] | Infeasible:
    """Rounds of an output `box` of which nothing stays local; each is divided among the cores into `pieces`, or other
    ones where it is too small for these. Of the rounds in which most cores have work, these move the fewest bytes."""
    best: tuple[int, float, int, tuple[int, ...]] | None = None
    least = 0
    for inner in cut_counts(box[-1], granularity[-1]):
        for cuts in (outer_counts(box, granularity), outer_counts(box, granularity, pieces)):
            for outer in cuts:
                counts = (*outer, inner)
                sample = middle(box, counts, granularity)
                stage = stager.stage(Round((), sample))
                least = min(least or stage.size_bytes, stage.size_bytes)
                if stage.size_bytes <= stager.room_bytes:
                    rounds = prod(counts)
                    idle = prod(pieces) - len(_divided(stager, sample, pieces, granularity))
                    moved = float((stage.loaded_bytes + stager.scattered_bytes(stage)) * rounds)
                    key = (idle, moved, rounds, counts)
                    best = key if best is None else min(best, key)
                    break
        if best is not None and best[2] == 1:
            break
    if best is None:
        return no_tile(stager.layer, Overflow(stager.ctx.roles.staging, "", least, stager.room_bytes))
    return tuple(
        Round(_divided(stager, part, pieces, granularity), part) for part in piece_boxes(box, best[3], granularity)
    )


def _divided(stager: Stager, box: Box, pieces: tuple[int, ...], granularity: tuple[int, ...]) -> tuple[Box, ...]:
    """The pieces of a round, one per core. Where an axis has too few granules for that, so that cores would rest, other
    axes are cut finer, if the slowest core needs much fewer cycles then."""
    usual = piece_boxes(box, pieces, granularity)
    if len(usual) == prod(pieces):
        return usual
    finer = piece_boxes(box, _finer_pieces(box, pieces, granularity), granularity)
    if len(finer) <= len(usual):
        return usual
    slowest = [piece_cycles(stager.ctx, stager.layer, max(boxes, key=box_size)) for boxes in (usual, finer)]
    before, after = (inf if isinstance(cycles, Infeasible) else cycles for cycles in slowest)
    return finer if after <= MUCH_FEWER * before else usual


def _finer_pieces(box: Box, pieces: tuple[int, ...], granularity: tuple[int, ...]) -> tuple[int, ...]:
    """As many pieces, if the axes have granules for them; where one has too few, others are cut finer."""
    granules = [
        -(-(high - low) // granule) if granule else 1 for (low, high), granule in zip(box, granularity, strict=True)
    ]
    counts = [max(d for d in range(1, count + 1) if count % d == 0 and d <= max(1, most))
              for count, most in zip(pieces, granules, strict=True)]  # fmt: skip
    while (left := prod(pieces) // prod(counts)) > 1:
        factor = next(number for number in range(2, left + 1) if left % number == 0)
        axis = max(range(len(counts)), key=lambda axis: granules[axis] / counts[axis])
        if granules[axis] < factor * counts[axis]:
            break
        counts[axis] *= factor
    return tuple(counts)


def own_rounds(stager: Stager, boxes: tuple[Box, ...], granularity: tuple[int, ...]) -> tuple[Round, ...] | Infeasible:
    """Rounds in which every core cuts the box that it owns."""
    largest = max(boxes, key=box_size)
    best: _Way | None = None
    least = 0
    intervals_of = _Intervals(granularity)
    for inner in cut_counts(largest[-1], granularity[-1]):
        for outer in outer_counts(largest, granularity):
            axes = [intervals_of(box, (*outer, inner)) for box in boxes]
            number = max(prod(map(len, intervals)) for intervals in axes)
            uneven = _uneven(largest[-1], inner, granularity[-1])
            rounds: list[Round] = []
            demand = cost = 0
            for this_round in _cut_rounds(axes):
                rounds.append(this_round)
                stage = stager.stage(this_round)
                demand = max(demand, stage.size_bytes)
                cost += stage.size_bytes + stager.scattered_bytes(stage)
                evener = best is not None and best.uneven and not uneven and number <= EVEN_ROUNDS * best.number
                if stage.size_bytes > stager.room_bytes:
                    break
                if not evener and _hardly_better(cost, len(rounds), number, best):
                    break
            least = min(least or demand, demand)
            if demand <= stager.room_bytes:
                if len(rounds) == number:
                    way = _Way(cost, uneven, number, tuple(rounds))
                    best = way if best is None else min(best, way, key=lambda way: way[:3])
                break
        if best is not None and best.number == 1:
            break
    if best is None:
        return no_tile(stager.layer, Overflow(stager.ctx.roles.staging, "", least, stager.room_bytes))
    return best.rounds


class _Way(NamedTuple):
    """A way to cut a layer; fewer bytes are better, then equal rounds, then fewer rounds."""

    cost_bytes: int
    uneven: bool
    number: int
    rounds: tuple[Round, ...]


def _uneven(interval: tuple[int, int], count: int, granule: int) -> bool:
    """Whether some parts of an interval hold more granules than others."""
    return bool(granule) and -(-(interval[1] - interval[0]) // granule) % count > 0


def _hardly_better(cost: int, count: int, number: int, best: _Way | None) -> bool:
    """Whether more rounds than in the best way so far hardly save any bytes, by the cost of the first `count`."""
    if best is None or number <= best.number:
        return False
    return cost * number >= best.cost_bytes * count * HARDLY


class _Intervals:
    """The cut axes of the cores' boxes, which are alike on most axes."""

    def __init__(self, granularity: tuple[int, ...]) -> None:
        self._granularity = granularity
        self._known: dict[tuple[tuple[int, int], int, int], tuple[tuple[int, int], ...]] = {}

    def __call__(self, box: Box, counts: tuple[int, ...]) -> list[tuple[tuple[int, int], ...]]:
        """The cut axes of one box; one without pieces for an empty box."""
        if not box_size(box):
            return [()]
        known, found = self._known, []
        for key in zip(box, counts, self._granularity, strict=True):
            intervals = known.get(key)
            if intervals is None:
                (low, high), count, granule = key
                intervals = known[key] = cut_axis(low, high, count, granule)
            found.append(intervals)
        return found


def _cut_rounds(axes: list[list[tuple[tuple[int, int], ...]]]) -> Iterator[Round]:
    """Rounds in which each core takes its pieces one after the other; one that has fewer rests at the end."""
    rest = empty_box(max(map(len, axes)))
    for parts in zip_longest(*(product(*intervals) for intervals in axes), fillvalue=rest):
        yield Round(parts)
