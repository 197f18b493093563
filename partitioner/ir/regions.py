"""Boxes backward through access maps: what must be read so that a box of the output can be written.

    box of an output  -->  box of every input, clipped at the tensor's borders (padding is never read)

A box is one half-open interval for each tensor axis. The same function serves a tile, a core's share, a halo and a
whole fused group, because operators carry their access maps.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from partitioner.ir.access import Access, Full, Grouped, Linear, Scaled, View
from partitioner.ir.graph import Graph, LoopNest, Op

Box = tuple[tuple[int, int], ...]


def full_box(shape: tuple[int, ...]) -> Box:
    return tuple((0, extent) for extent in shape)


def box_shape(box: Box) -> tuple[int, ...]:
    return tuple([high - low for low, high in box])


def box_size(box: Box) -> int:
    """Elements in the box."""
    size = 1
    for low, high in box:
        size *= high - low
    return size


def run_count(shape: tuple[int, ...], box: Box) -> int:
    """Number of runs of neighbouring elements that a box of a row-major tensor of `shape` consists of."""
    runs, whole = 1, True
    for (low, high), extent in zip(reversed(box), reversed(shape), strict=True):
        runs *= 1 if whole else high - low
        whole = whole and high - low == extent
    return runs


def join(a: Box, b: Box) -> Box:
    """The smallest box that holds both; an empty box adds nothing."""
    if box_size(a) == 0:
        return b
    if box_size(b) == 0:
        return a
    return tuple((min(x[0], y[0]), max(x[1], y[1])) for x, y in zip(a, b, strict=True))


def empty_box(rank: int) -> Box:
    """A box without elements."""
    return ((0, 0),) * rank


def common(a: Box, b: Box) -> Box:
    """The intersection of two boxes; empty where they are apart."""
    box = tuple((max(x[0], y[0]), min(x[1], y[1])) for x, y in zip(a, b, strict=True))
    return box if all(high > low for low, high in box) else empty_box(len(box))


def holds(outer: Box, inner: Box) -> bool:
    """True when every element of `inner` is in `outer`."""
    return box_size(inner) == 0 or all(a <= c and d <= b for (a, b), (c, d) in zip(outer, inner, strict=True))


def joined(boxes: Iterable[Box]) -> Box:
    """The smallest box that holds all of one or more boxes; empty ones add nothing."""
    first, *rest = boxes
    for box in rest:
        first = join(first, box)
    return first


def input_boxes(graph: Graph, op: Op, output_boxes: dict[str, Box]) -> dict[str, Box]:
    """The box of each input of `op` that is read when the given boxes of its outputs are written.

    Inputs that are not read at all (a concat piece outside the box) get an empty box (low == high).
    """
    needed: dict[str, Box] = dict(output_boxes)
    for stage in reversed(op.stages):
        written = needed.get(stage.writes.tensor)
        if written is None or box_size(written) == 0:
            continue
        ranges = _iteration_ranges(stage, written)
        for access in stage.reads:
            box = _read_box(graph, op, access, ranges, stage, written)
            needed[access.tensor] = join(needed[access.tensor], box) if access.tensor in needed else box
    empty = {name: tuple((0, 0) for _ in graph.by_name[name].shape) for name in op.inputs}
    return {name: needed.get(name, empty[name]) for name in op.inputs}


def _iteration_ranges(stage: LoopNest, written: Box) -> dict[str, tuple[int, int]]:
    """Half-open range of every axis; axes that the write does not pin run over their whole extent."""
    ranges = {axis.name: (0, axis.extent) for axis in stage.domain}
    for index, (low, high) in zip(stage.writes.indices, written, strict=True):
        match index:
            case Linear(terms=((name, 1),), constant=constant):
                start, stop = ranges[name]
                ranges[name] = (max(start, low - constant), max(max(start, low - constant), min(stop, high - constant)))
            case Linear(terms=()):
                pass
            case _:
                raise ValueError(f"stage {stage.name}: cannot invert the written index {index}")
    return ranges


def _extents(graph: Graph, op: Op, tensor: str) -> tuple[int, ...] | None:
    """Shape of a tensor of the graph, or of a buffer inside the op from the stage that writes it."""
    if tensor in graph.by_name:
        return graph.by_name[tensor].shape
    for stage in op.stages:
        if stage.writes.tensor == tensor:
            extents = {axis.name: axis.extent for axis in stage.domain}
            return tuple(
                sum(c * (extents[n] - 1) for n, c in index.terms) + index.constant + 1
                if isinstance(index, Linear)
                else 0
                for index in stage.writes.indices
            )
    return None


def _read_box(
    graph: Graph, op: Op, access: Access | View, ranges: dict[str, tuple[int, int]], stage: LoopNest, written: Box
) -> Box:
    shape = _extents(graph, op, access.tensor)
    if shape is None:
        raise ValueError(f"operator {op.name}: nothing gives the shape of {access.tensor}")
    if isinstance(access, View):
        return view_box(shape, _extents(graph, op, stage.writes.tensor) or (), written)
    if any(high <= low for low, high in ranges.values()):
        return tuple((0, 0) for _ in shape)
    box = []
    for index, extent in zip(access.indices, shape, strict=True):
        low, high = _index_range(index, ranges, extent)
        low, high = max(0, low), min(extent, high)
        box.append((low, high) if high > low else (0, 0))
    return tuple(box) if all(high > low for low, high in box) else tuple((0, 0) for _ in shape)


def _index_range(
    index: Linear | Grouped | Scaled | Full, ranges: dict[str, tuple[int, int]], extent: int
) -> tuple[int, int]:
    """Half-open range of one index expression, unclipped."""
    match index:
        case Full():
            return 0, extent
        case Linear():
            low = high = index.constant
            for name, coefficient in index.terms:
                first, last = ranges[name][0] * coefficient, (ranges[name][1] - 1) * coefficient
                low, high = low + min(first, last), high + max(first, last)
            return low, high + 1
        case Grouped():
            start, stop = ranges[index.axis]
            inner_low, inner_high = ranges[index.offset] if index.offset else (0, 1)
            return index.size * (start // index.per_group) + inner_low, index.size * (
                (stop - 1) // index.per_group
            ) + inner_high
        case Scaled():
            start, stop = ranges[index.axis]
            low = start * index.numerator // index.denominator + index.low
            high = -(-(stop - 1) * index.numerator // index.denominator) + index.high
            return min(max(low, 0), extent - 1), max(min(high, extent - 1), 0) + 1


def view_box(shape: tuple[int, ...], written_shape: tuple[int, ...], written: Box) -> Box:
    """The box of the source that holds every element of `written`, run of axes by run of axes."""
    if box_size(written) == 0:
        return tuple((0, 0) for _ in shape)
    runs = matching_runs(shape, written_shape)
    if runs is None:
        return full_box(shape)
    box = list(full_box(shape))
    for sources, targets in runs:
        first = last = 0
        for axis in targets:
            low, high = written[axis]
            first, last = first * written_shape[axis] + low, last * written_shape[axis] + high - 1
        for axis, interval in zip(sources, _linear_box([shape[axis] for axis in sources], first, last), strict=True):
            box[axis] = interval
    return tuple(box)


def _linear_box(extents: list[int], first: int, last: int) -> list[tuple[int, int]]:
    """Smallest box of a row-major array that holds the elements from linear place `first` to `last`."""
    box: list[tuple[int, int]] = []
    for axis in range(len(extents)):
        inner = prod(extents[axis + 1 :])
        low, high = first // inner, last // inner
        box.append((low, high + 1))
        if low != high:  # the interval crosses rows: take all elements inside them
            return box + [(0, rest) for rest in extents[axis + 1 :]]
        first, last = first % inner, last % inner
    return box


def matching_runs(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] | None:
    """Shortest runs of axes of two shapes, from the front, with equal products; None when the sizes differ.

    (4, 6, 5) and (2, 2, 30) --> ((0,), (0, 1)), ((1, 2), (2,)). A view keeps the order of elements within every run.
    Trailing unit axes may stand in a run whose other side is empty.
    """
    if prod(a) != prod(b):
        return None
    runs: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    i = j = 0
    while i < len(a) or j < len(b):
        start_i, start_j, size_a, size_b = i, j, 1, 1
        while i == start_i or j == start_j or size_a != size_b:
            if i < len(a) and (i == start_i or (j > start_j and size_a < size_b) or j == len(b)):
                size_a *= a[i]
                i += 1
            elif j < len(b):
                size_b *= b[j]
                j += 1
            else:
                break
        runs.append((tuple(range(start_i, i)), tuple(range(start_j, j))))
    return tuple(runs)


def relative(box: Box, origin: Box) -> Box:
    """`box` in the coordinates of the box `origin`, which contains it."""
    return tuple((low - base, high - base) for (low, high), (base, _) in zip(box, origin, strict=True))


def box_text(box: Box) -> str:
    """`[0:1, 0:56]`."""
    return "[" + ", ".join(f"{low}:{high}" for low, high in box) + "]"


def exact_view_box(graph: Graph, view: Op, box: Box) -> Box | None:
    """The box of a view's result that has exactly the elements of a box of its source; None where there is none."""
    source, result = view.inputs[0], view.outputs[0]
    other = view_box(graph.by_name[result].shape, graph.by_name[source].shape, box)
    exact = box_size(other) == box_size(box) and input_boxes(graph, view, {result: other})[source] == box
    return other if exact else None
