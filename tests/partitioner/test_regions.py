"""Backward boxes against the enumeration of every iteration point."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from partitioner.ir.access import Access, Full, Grouped, Index, Linear, Scaled, View
from partitioner.ir.graph import Axis, Graph, LoopNest, Op, Tensor
from partitioner.ir.regions import Box, box_size, full_box, input_boxes, join, matching_runs, run_count

Point = dict[str, int]

HALVES: tuple[str, tuple[int, ...], str] = ("float16", (), "float32")
"""Type, axes and type in the file of a tensor."""


def value_range(index: Index, point: Point, extent: int) -> range:
    """The elements of one axis that an index expression names at an iteration point, inside the tensor."""
    match index:
        case Linear():
            place = index.constant + sum(c * point[name] for name, c in index.terms)
            low, high = place, place
        case Grouped():
            low = high = index.size * (point[index.axis] // index.per_group) + point.get(index.offset, 0)
        case Scaled():
            ratio = point[index.axis] * index.numerator / index.denominator
            low, high = int(np.floor(ratio)) + index.low, int(np.ceil(ratio)) + index.high
            low, high = min(max(low, 0), extent - 1), min(max(high, 0), extent - 1)
        case Full():
            low, high = 0, extent - 1
    return range(max(low, 0), min(high, extent - 1) + 1)


def touched(op: Op, shapes: dict[str, tuple[int, ...]], written: Box) -> dict[str, set[tuple[int, ...]]]:
    """Elements of every tensor that are read to write `written`, by walking all points of all stages backward."""
    wanted = {op.outputs[0]: set(product(*(range(low, high) for low, high in written)))}
    for stage in reversed(op.stages):
        extents = [range(axis.extent) for axis in stage.domain]
        for values in product(*extents):
            point = dict(zip((axis.name for axis in stage.domain), values, strict=True))
            place = tuple(value_range(index, point, 1 << 30)[0] for index in stage.writes.indices)
            if place not in wanted.get(stage.writes.tensor, ()):
                continue
            for read in stage.reads:
                assert isinstance(read, Access)
                shape = shapes[read.tensor]
                spans = [value_range(index, point, extent) for index, extent in zip(read.indices, shape, strict=True)]
                wanted.setdefault(read.tensor, set()).update(product(*spans))
    return wanted


def bounds(elements: set[tuple[int, ...]], rank: int) -> Box:
    if not elements:
        return ((0, 0),) * rank
    return tuple((min(axis), max(axis) + 1) for axis in zip(*elements, strict=True))


def boxes(shape: tuple[int, ...]) -> st.SearchStrategy[Box]:
    def interval(extent: int) -> st.SearchStrategy[tuple[int, int]]:
        return st.tuples(st.integers(0, extent), st.integers(0, extent)).map(lambda pair: (min(pair), max(pair)))

    return st.tuples(*(interval(extent) for extent in shape))


def check(op: Op, shapes: dict[str, tuple[int, ...]], written: Box, exact: bool = True) -> None:
    """The inferred boxes hold all that is read; `exact` when no window leaves out elements between its taps."""
    tensors = tuple(Tensor(name, shape, *HALVES) for name, shape in shapes.items() if not name.startswith("%"))
    graph = Graph("g", op.inputs, op.outputs, (op,), tensors)
    inferred = input_boxes(graph, op, {op.outputs[0]: written})
    wanted = touched(op, shapes, written)
    assert set(inferred) == set(op.inputs)
    for name in op.inputs:
        needed = bounds(wanted.get(name, set()), len(shapes[name]))
        assert join(inferred[name], needed) == inferred[name], name
        assert inferred[name] == needed or not exact, name


def index(name: str, coefficient: int = 1, constant: int = 0, *more: tuple[str, int]) -> Linear:
    return Linear(((name, coefficient), *more), constant)


@settings(deadline=None)
@given(st.data())
def test_a_padded_window_reads_its_halo_and_nothing_more(data: st.DataObject) -> None:
    extent, kernel = data.draw(st.integers(3, 8)), data.draw(st.integers(1, 3))
    stride, dilation = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 2))
    before, after = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3))
    padded = extent + before + after
    reach = (kernel - 1) * dilation + 1
    if padded < reach:
        return
    out = (padded - reach) // stride + 1
    pad = LoopNest("pad", (Axis("y", padded),), Access("%p", (index("y"),)), (Access("x", (index("y", 1, -before),)),))
    window = LoopNest(
        "sum",
        (Axis("y", out), Axis("r", kernel, True)),
        Access("o", (index("y"),)),
        (Access("%p", (index("y", stride, 0, ("r", dilation)),)),),
    )
    op = Op("w", "max_pool", ("x",), ("o",), (), (pad, window))
    dense = dilation == 1 and stride <= kernel
    check(op, {"x": (extent,), "%p": (padded,), "o": (out,)}, data.draw(boxes((out,))), exact=dense)


@settings(deadline=None)
@given(st.data())
def test_groups_read_their_own_channels(data: st.DataObject) -> None:
    groups, inputs, outputs = (data.draw(st.integers(1, 3)) for _ in range(3))
    domain = (Axis("f", groups * outputs), Axis("c", inputs, True))
    reads = (
        Access("x", (Grouped("f", outputs, inputs, "c"),)),
        Access("w", (Grouped("f", outputs, 1), index("c"), Full())),
    )
    op = Op("c", "conv", ("x", "w"), ("o",), (), (LoopNest("conv", domain, Access("o", (index("f"),)), reads),))
    shapes = {"x": (groups * inputs,), "w": (groups, inputs, outputs), "o": (groups * outputs,)}
    check(op, shapes, data.draw(boxes((groups * outputs,))))


@given(st.data())
def test_pieces_of_a_concatenation_outside_the_box_are_not_read(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    total, start = sum(sizes), 0
    reads: list[Access] = []
    shapes: dict[str, tuple[int, ...]] = {"o": (2, total)}
    for number, size in enumerate(sizes):
        reads.append(Access(f"x{number}", (index("i"), index("j", 1, -start))))
        shapes[f"x{number}"] = (2, size)
        start += size
    stage = LoopNest("concat", (Axis("i", 2), Axis("j", total)), Access("o", (index("i"), index("j"))), tuple(reads))
    op = Op("c", "concat", tuple(f"x{n}" for n in range(len(sizes))), ("o",), (), (stage,))
    check(op, shapes, data.draw(boxes((2, total))))


@given(st.data())
def test_scaled_reads_cover_the_clamped_window(data: st.DataObject) -> None:
    extent, out = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 9))
    read = Access("x", (Scaled("i", extent, out, -1, 1),))
    stage = LoopNest("resize", (Axis("i", out),), Access("o", (index("i"),)), (read,))
    check(Op("r", "resize", ("x",), ("o",), (), (stage,)), {"x": (extent,), "o": (out,)}, data.draw(boxes((out,))))


@given(st.data())
def test_reversed_and_repeated_reads(data: st.DataObject) -> None:
    """Softmax's two readers of one tensor, and a slice with a negative step."""
    extent = data.draw(st.integers(1, 6))
    total = LoopNest("sum", (Axis("k", extent, True),), Access("%s", (Linear(),)), (Access("x", (index("k"),)),))
    last = LoopNest(
        "out",
        (Axis("i", extent),),
        Access("o", (index("i"),)),
        (Access("x", (index("i", -1, extent - 1),)), Access("%s", (Linear(),))),
    )
    op = Op("s", "softmax", ("x",), ("o",), (), (total, last))
    check(op, {"x": (extent,), "%s": (1,), "o": (extent,)}, data.draw(boxes((extent,))))


shapes_of_64 = st.sampled_from(
    [(64,), (4, 16), (2, 2, 16), (4, 4, 4), (1, 64), (8, 1, 8), (2, 32, 1, 1), (2, 4, 8), (1, 1, 64)]
)


@given(st.data())
def test_a_view_reads_every_element_of_the_box(data: st.DataObject) -> None:
    source, target = data.draw(shapes_of_64), data.draw(shapes_of_64)
    written = data.draw(boxes(target))
    domain = tuple(Axis(f"i{axis}", extent) for axis, extent in enumerate(target))
    stage = LoopNest("view", domain, Access("o", tuple(index(axis.name) for axis in domain)), (View("x"),))
    op = Op("v", "view", ("x",), ("o",), (), (stage,))
    graph = Graph(
        "g",
        ("x",),
        ("o",),
        (op,),
        (Tensor("x", source, *HALVES), Tensor("o", target, *HALVES)),
    )
    box = input_boxes(graph, op, {"o": written})["x"]
    places = np.arange(prod(target)).reshape(target)[tuple(slice(low, high) for low, high in written)]
    inside = np.arange(prod(source)).reshape(source)[tuple(slice(low, high) for low, high in box)]
    assert set(places.ravel()) <= set(inside.ravel())
    if source == target:
        assert box == written or box_size(written) == 0
    assert (box_size(box) == 0) == (box_size(written) == 0)


def test_a_flattened_map_of_one_pixel_keeps_the_box_of_its_channels() -> None:
    stage = LoopNest("view", (Axis("n", 2), Axis("c", 8)), Access("o", (index("n"), index("c"))), (View("x"),))
    op = Op("v", "view", ("x",), ("o",), (), (stage,))
    graph = Graph(
        "g",
        ("x",),
        ("o",),
        (op,),
        (Tensor("x", (2, 1, 1, 8), *HALVES), Tensor("o", (2, 8), *HALVES)),
    )
    assert input_boxes(graph, op, {"o": ((1, 2), (2, 5))})["x"] == ((1, 2), (0, 1), (0, 1), (2, 5))


@given(st.lists(st.integers(1, 4), max_size=5), st.lists(st.integers(1, 4), max_size=5))
def test_matching_runs_partition_both_shapes(a: list[int], b: list[int]) -> None:
    runs = matching_runs(tuple(a), tuple(b))
    if prod(a) != prod(b):
        assert runs is None
        return
    assert runs is not None
    assert [axis for left, _ in runs for axis in left] == list(range(len(a)))
    assert [axis for _, right in runs for axis in right] == list(range(len(b)))
    assert all(prod(a[i] for i in left) == prod(b[j] for j in right) for left, right in runs)


@given(st.data())
def test_join_is_the_smallest_box_of_both(data: st.DataObject) -> None:
    a, b = data.draw(boxes((5, 4))), data.draw(boxes((5, 4)))
    elements = {point for box in (a, b) for point in product(*(range(low, high) for low, high in box))}
    both = join(a, b)
    assert (bounds(elements, 2) == both) if elements else box_size(both) == 0


@given(st.data())
def test_runs_are_counted_as_they_lie_in_memory(data: st.DataObject) -> None:
    shape = (3, 4, 5)
    box = data.draw(boxes(shape))
    inside = np.zeros(shape, bool)
    inside[tuple(slice(low, high) for low, high in box)] = True
    starts = np.count_nonzero(np.diff(inside.reshape(-1).astype(int), prepend=0) == 1)
    assert not box_size(box) or starts == run_count(shape, box)


def test_the_full_box_of_an_output_needs_full_inputs() -> None:
    stage = LoopNest("relu", (Axis("i", 3),), Access("o", (index("i"),)), (Access("x", (index("i"),)),))
    op = Op("r", "relu", ("x",), ("o",), (), (stage,))
    graph = Graph(
        "g",
        ("x",),
        ("o",),
        (op,),
        (Tensor("x", (3,), *HALVES), Tensor("o", (3,), *HALVES)),
    )
    assert input_boxes(graph, op, {"o": full_box((3,))}) == {"x": ((0, 3),)}
