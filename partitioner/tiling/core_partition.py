"""Core binding: the numbers of pieces per axis into which one output is cut so that the slowest core finishes soonest.

Every product of piece counts up to the number of cores is tried; a core's time is the engine work of its piece plus the
loads into its local memory, both from the target's `work`. Pieces may be uneven; cuts respect the target's granularity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, product
from typing import TypeAlias

from hw_models.chip import Chip
from hw_models.cost import transfer_cycles
from hw_models.parts import MatrixEngine
from hw_models.routes import staging_memory
from partitioner.context.plan_context import PlanContext
from partitioner.ir.graph import Tensor
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box, box_size, run_count
from partitioner.ir.steps import Binding

TileCycles: TypeAlias = Callable[[PlanContext, Layer, Box], float]
"""Function for the cycles of a core for a box of a layer's output."""


def cut_axis(low: int, high: int, parts: int, granule: int) -> tuple[tuple[int, int], ...]:
    """At most `parts` intervals of nearly equal length that cover [low, high), cut at multiples of `granule`."""
    if parts <= 1 or not granule:  # true for most axes of most boxes
        return ((low, high),) if high > low else ()
    units = -(-(high - low) // granule)
    parts = max(1, min(parts, units))
    points = [low + min(high - low, granule * (units * i // parts)) for i in range(parts)] + [high]
    return tuple((a, b) for a, b in pairwise(points) if b > a)


def piece_boxes(box: Box, pieces: tuple[int, ...], granularity: tuple[int, ...]) -> tuple[Box, ...]:
    """The pieces of a box, row-major over the axes' intervals."""
    axes = [cut_axis(low, high, n, q) for (low, high), n, q in zip(box, pieces, granularity, strict=True)]
    return tuple(product(*axes))


def tile_cycles(ctx: PlanContext, layer: Layer, box: Box) -> float:
    """Cycles of one tile (`box` of the layer's output) when nothing overlaps: its loads, engine work and store."""
    graph, chip, work = ctx.graph, ctx.chip, ctx.work(layer, box)
    needed = dict.fromkeys(load for step in work.passes for load in step.loads)
    loads = sum(load_cycles(chip, work.local, graph.by_name[load.tensor], load.box) for load in needed)
    engines = sum(cycles for _, cycles in work.engine_cycles)
    return loads + engines + store_cycles(chip, work.local, graph.by_name[layer.output], box)


def load_cycles(chip: Chip, local: str, tensor: Tensor, box: Box) -> float:
    """Cycles to bring a box into a core's memory from where it is staged, all cores of the cluster at once."""
    return _transfer_cycles(chip, staging_memory(chip, local), local, tensor, box)


def broadcast_cycles(chip: Chip, local: str, tensor: Tensor, box: Box) -> float:
    """Cycles to bring the same box into all cores' memories at once, where the link can; else as `load_cycles`."""
    link = chip.link(staging_memory(chip, local), local, None)
    if not link.broadcast:
        return load_cycles(chip, local, tensor, box)
    size_bytes, rows = box_size(box) * tensor.item_bytes, run_count(tensor.shape, box)
    return transfer_cycles(chip, link.source, local, size_bytes, max(1, rows), sharers=1)


def store_cycles(chip: Chip, local: str, tensor: Tensor, box: Box) -> float:
    """Cycles to bring a box from a core's memory to where it is staged: the converse of `load_cycles`."""
    return _transfer_cycles(chip, local, staging_memory(chip, local), tensor, box)


def _transfer_cycles(chip: Chip, source: str, destination: str, tensor: Tensor, box: Box) -> float:
    size_bytes, rows = box_size(box) * tensor.item_bytes, run_count(tensor.shape, box)
    return transfer_cycles(chip, source, destination, size_bytes, max(1, rows), sharers=chip.cores_per_cluster)


def bind(ctx: PlanContext, layer: Layer, box: Box) -> tuple[Binding, float]:
    """The binding whose slowest core takes the fewest cycles, and these cycles; ties go to fewer pieces, then to outer
    axes."""
    cycles, count, negated = min(
        (cycles, count, tuple(-n for n in pieces)) for pieces, (cycles, count) in ways(ctx, layer, box)
    )
    return Binding(tuple(-n for n in negated), tuple(range(count))), cycles


def ways(
    ctx: PlanContext, layer: Layer, box: Box, cycles_of: TileCycles = tile_cycles
) -> Iterator[tuple[tuple[int, ...], tuple[float, int]]]:
    """All piece counts that the cores of a cluster can take, each with the cycles of its slowest core and the number of
    pieces."""
    granularity = cut_granularity(ctx, layer, box)
    for pieces in piece_counts(box, granularity, ctx.chip.cores_per_cluster):
        slowest = 0.0
        boxes = piece_boxes(box, pieces, granularity)
        seen: set[tuple[int, ...]] = set()
        for piece in _distinct(boxes, seen):
            slowest = max(slowest, cycles_of(ctx, layer, piece))
        yield pieces, (slowest, len(boxes))


def cut_granularity(ctx: PlanContext, layer: Layer, box: Box) -> tuple[int, ...]:
    """The target's granularity; a long innermost axis is cut at multiples of the matrix array's channels."""
    granularity = ctx.target.granularity(ctx.graph, layer)
    array = max((engine.array_channels for engine in ctx.chip.engines if isinstance(engine, MatrixEngine)), default=1)
    low, high = box[-1]
    inner = granularity[-1]
    if inner and high - low >= 2 * array and array % inner == 0:
        inner = array
    return (*granularity[:-1], inner)


def piece_counts(box: Box, granularity: Sequence[int], cores: int) -> Iterator[tuple[int, ...]]:
    """Piece counts whose product is at most `cores`; an axis with granularity 0 is not cut."""
    most = [1 if q == 0 else min(cores, -(-(high - low) // q)) for (low, high), q in zip(box, granularity, strict=True)]

    def extend(axis: int, left: int) -> Iterator[tuple[int, ...]]:
        if axis == len(most):
            yield ()
            return
        for n in range(1, min(most[axis], left) + 1):
            for rest in extend(axis + 1, left // n):
                yield (n, *rest)

    return extend(0, cores)


def _distinct(boxes: tuple[Box, ...], seen: set[tuple[int, ...]]) -> Iterator[Box]:
    """One box of each shape at each border position: pieces that differ only by place cost the same."""
    for box in boxes:
        shape = tuple(high - low for low, high in box)
        if shape not in seen:
            seen.add(shape)
            yield box
