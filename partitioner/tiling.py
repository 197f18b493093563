"""Tiling: rounds that fit the shared buffer, tiles that fit a core's local memories.

    output box --rounds--> what the LLB holds at once --binding--> a core's piece --tiles--> what L1 and IM hold at once

Outer axes (images, then rows) are cut before inner ones, the channel axis apart from them, because cutting channels
reloads the input and cutting rows reloads the weights. Among the cuts that fit, the one with the fewest cycles by the
cost model wins, for both loop orders; whatever does not fit is refused with the numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod

from hw_models.chip import Chip
from hw_models.errors import DoesNotFit
from partitioner.binding import cut_axis, cut_quanta, load_cycles, piece_boxes, store_cycles
from partitioner.graph import Graph
from partitioner.layers import Layer
from partitioner.regions import Box, box_size, join
from partitioner.target import PlanTarget, Work

__all__ = [
    "Sizes",
    "Tiling",
    "buffer_sizes",
    "choose_rounds",
    "choose_tiles",
    "demand_bytes",
    "overflow",
    "place_buffers",
    "staged_boxes",
    "tile_boxes",
]

Sizes = dict[tuple[str, str, str], int]
"""(buffer, memory, physical part) -> bytes."""


@dataclass(frozen=True, slots=True)
class Tiling:
    """Cuts of each axis at multiples of `quanta`; with `channels_outer` the last axis is the outer loop."""

    counts: tuple[int, ...]
    quanta: tuple[int, ...]
    channels_outer: bool = False


def tile_boxes(box: Box, tiling: Tiling) -> tuple[Box, ...]:
    """The tiles of a box in the order in which they run."""
    boxes = piece_boxes(box, tiling.counts, tiling.quanta)
    return tuple(sorted(boxes, key=lambda b: (b[-1], b))) if tiling.channels_outer else boxes


def staged_boxes(work: Work) -> dict[str, Box]:
    """The box of each tensor that all passes of `work` load together."""
    boxes: dict[str, Box] = {}
    for step in work.passes:
        for load in step.loads:
            boxes[load.tensor] = join(boxes[load.tensor], load.box) if load.tensor in boxes else load.box
    return boxes


def buffer_sizes(works: Iterable[Work]) -> Sizes:
    """What each buffer needs so that every one of `works` finds room in it."""
    sizes: Sizes = {}
    for work in works:
        for buffer in work.buffers:
            key = (buffer.name, buffer.memory, buffer.part)
            sizes[key] = max(sizes.get(key, 0), buffer.size_bytes)
    return sizes


def demand_bytes(chip: Chip, sizes: Sizes) -> dict[tuple[str, str], int]:
    """Bytes that buffers need in each (memory, physical part), alignment included."""
    demand: dict[tuple[str, str], int] = {}
    for (_, memory, part), size in sizes.items():
        place = _place(chip, memory, part)
        demand[place] = demand.get(place, 0) + _aligned(chip, memory, size)
    return demand


def place_buffers(chip: Chip, sizes: Sizes) -> dict[str, int]:
    """Offsets of buffers in their memories, one after the other in each part."""
    used: dict[tuple[str, str], int] = {}
    offsets: dict[str, int] = {}
    for (name, memory, part), size in sizes.items():
        place = _place(chip, memory, part)
        offsets[name] = _part_start(chip, *place) + used.get(place, 0)
        used[place] = used.get(place, 0) + _aligned(chip, memory, size)
    return offsets


def overflow(chip: Chip, sizes: Sizes) -> tuple[str, int, int] | None:
    """(place, demand, bound) in bytes of the first memory that buffers overflow; None when they fit."""
    for (memory, part), demand in demand_bytes(chip, sizes).items():
        bound = chip.memory(memory).buffer(part).size_bytes if part else chip.memory(memory).size_bytes
        if demand > bound:
            return f"{memory} ({part} buffer)" if part else memory, demand, bound
    return None


def choose_rounds(
    graph: Graph, layer: Layer, box: Box, target: PlanTarget, chip: Chip, quanta: tuple[int, ...], staging: str
) -> tuple[int, ...]:
    """Cuts of `box` so that one round's inputs and output fit `staging` together, moving the fewest bytes."""
    bound = chip.memory(staging).size_bytes
    item_bytes = graph.by_name[layer.output].item_bytes
    best: tuple[float, int, tuple[int, ...]] | None = None
    least = 0
    for inner in _counts(box[-1], quanta[-1]):
        for outer in _outer_counts(box, quanta):
            counts = (*outer, inner)
            sample = _middle(box, counts, quanta)
            staged = staged_boxes(target.work(graph, layer, sample, chip))
            loaded = {n: _aligned(chip, staging, box_size(b) * graph.by_name[n].item_bytes) for n, b in staged.items()}
            demand = sum(loaded.values()) + _aligned(chip, staging, box_size(sample) * item_bytes)
            least = min(least or demand, demand)
            if demand <= bound:
                rounds = prod(counts)
                key = (float(sum(loaded.values()) * rounds), rounds, counts)
                best = key if best is None else min(best, key)
                break
    if best is None:
        raise _does_not_fit(layer, staging, least, bound)
    return best[2]


def choose_tiles(graph: Graph, layer: Layer, piece: Box, target: PlanTarget, chip: Chip) -> tuple[Tiling, float]:
    """The tiling of a core's piece with the fewest cycles when nothing overlaps, and that number.

    Channels are cut at multiples of the matrix array; where even one array's width does not fit (a long reduction
    fills the weight buffer), at any multiple that the target allows.
    """
    best: tuple[float, int, Tiling] | None = None
    closest: tuple[int, str, int, int] | None = None
    for quanta in dict.fromkeys((cut_quanta(graph, layer, piece, target, chip), target.quanta(graph, layer))):
        for counts, work in _candidates(graph, layer, piece, target, chip, quanta):
            if over := overflow(chip, buffer_sizes((work,))):
                where, demand, bound = over
                if closest is None or demand - bound < closest[0]:
                    closest = (demand - bound, where, demand, bound)
                continue
            for channels_outer in (False, True):
                tiling = Tiling(counts, quanta, channels_outer)
                cycles = _cycles(graph, layer, piece, tiling, work, target, chip)
                if best is None or (cycles, prod(counts)) < best[:2]:
                    best = (cycles, prod(counts), tiling)
        if best is not None:
            return best[2], best[0]
    assert closest is not None  # every candidate overflowed something
    _, where, demand, bound = closest
    raise _does_not_fit(layer, where, demand, bound)


def _candidates(
    graph: Graph, layer: Layer, piece: Box, target: PlanTarget, chip: Chip, quanta: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], Work]]:
    """For each cut of the channels the cuts of the outer axes, coarse to fine, up to the first that fits."""
    for inner in _counts(piece[-1], quanta[-1]):
        for outer in _outer_counts(piece, quanta):
            counts = (*outer, inner)
            work = target.work(graph, layer, _middle(piece, counts, quanta), chip)
            yield counts, work
            if overflow(chip, buffer_sizes((work,))) is None:
                break


def _does_not_fit(layer: Layer, where: str, demand: int, bound: int) -> DoesNotFit:
    levers = ("a smaller batch or input", f"a chip with more {where.split()[0]}", "an operator with fewer channels")
    return DoesNotFit(
        f"layer {layer.name} (smallest tile)", demand_bytes=demand, bound_bytes=bound, where=where, levers=levers
    )


def _cycles(
    graph: Graph,
    layer: Layer,
    piece: Box,
    tiling: Tiling,
    work: Work,
    target: PlanTarget,
    chip: Chip,
) -> float:
    """Engine work of all tiles, their stores, and each load as often as its box changes in this loop order."""
    axes = zip(piece, tiling.counts, tiling.quanta, strict=True)
    intervals = [cut_axis(low, high, n, q) for (low, high), n, q in axes]
    inner = len(intervals[-1])
    outer = prod(len(axis) for axis in intervals[:-1])
    store = store_cycles(chip, work.local, graph.by_name[layer.output], _middle(piece, tiling.counts, tiling.quanta))
    cycles = inner * outer * (sum(c for _, c in work.engine_cycles) + store)
    first = tuple(axis[0] for axis in intervals)
    start = _load_boxes(target.work(graph, layer, first, chip))
    across = _load_boxes(target.work(graph, layer, (*first[:-1], intervals[-1][-1]), chip))
    along = _load_boxes(target.work(graph, layer, (*(axis[-1] for axis in intervals[:-1]), first[-1]), chip))
    for buffer, (tensor, box) in _load_boxes(work).items():
        changes = (start.get(buffer) != along.get(buffer), start.get(buffer) != across.get(buffer))
        loops = (outer, changes[0]), (inner, changes[1])
        (slow, on_slow), (fast, on_fast) = reversed(loops) if tiling.channels_outer else loops
        times = slow * fast if (on_fast and fast > 1) or len(work.passes) > 1 else slow if on_slow else 1
        cycles += times * load_cycles(chip, work.local, graph.by_name[tensor], box)
    return cycles


def _load_boxes(work: Work) -> dict[str, tuple[str, Box]]:
    """What each buffer is loaded with; of a buffer that several passes fill, the last."""
    return {load.buffer: (load.tensor, load.box) for step in work.passes for load in step.loads}


def _counts(interval: tuple[int, int], quantum: int) -> Iterator[int]:
    """Cuts to try: 1 to 8, then in steps of about an eighth, up to one quantum a piece."""
    units = -(-(interval[1] - interval[0]) // quantum) if quantum else 1
    count = 1
    while count < units:
        yield count
        count += max(1, count // 8)
    yield units


def _outer_counts(box: Box, quanta: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Cuts of all axes but the last, the outermost cut to single units before the next is cut at all."""
    most = [-(-(high - low) // q) if q else 1 for (low, high), q in zip(box[:-1], quanta[:-1], strict=True)]
    yield (1,) * len(most)
    for axis in range(len(most)):
        for count in _counts(box[axis], quanta[axis]):
            if count > 1:
                yield (*most[:axis], count, *(1,) * (len(most) - axis - 1))


def _middle(box: Box, counts: tuple[int, ...], quanta: tuple[int, ...]) -> Box:
    """The largest piece of each axis, away from the borders where there is a choice: the one that needs most."""
    middle = []
    for (low, high), count, quantum in zip(box, counts, quanta, strict=True):
        pieces = cut_axis(low, high, count, quantum)
        centre = len(pieces) // 2
        middle.append(max(pieces, key=lambda p, c=pieces[centre]: (p[1] - p[0], -abs(p[0] - c[0]))))  # type: ignore[misc]
    return tuple(middle)


def _place(chip: Chip, memory: str, part: str) -> tuple[str, str]:
    """Where the chip does not enforce its physical parts, the memory is one pool."""
    described = chip.memory(memory)
    return (memory, part if part and described.buffers_enforced and described.buffers else "")


def _part_start(chip: Chip, memory: str, part: str) -> int:
    start = 0
    for buffer in chip.memory(memory).buffers if part else ():
        if buffer.name == part:
            break
        start += buffer.size_bytes
    return start


def _aligned(chip: Chip, memory: str, size_bytes: int) -> int:
    unit = chip.memory(memory).alignment_bytes
    return -(-size_bytes // unit) * unit
