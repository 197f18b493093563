"""Places and orders: what shares a place, and the search against every order of small groups."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given, settings

from partitioner.footprint.footprint import Footprints
from partitioner.footprint.peak_memory import Activations, best_order, peak_of, places_of, segments
from partitioner.ir.graph import Graph
from partitioner.ir.layers import Layer, group_layers
from tests.partitioner.random_groups import Builder, groups


def sharing(graph: Graph) -> list[tuple[str, ...]]:
    return [place.tensors for place in places_of(Activations(graph), group_layers(graph)[0])]


def runs(graph: Graph, order: tuple[Layer, ...]) -> bool:
    made: set[str] = set()
    own = {layer.output for layer in order}
    for layer in order:
        if any(name in own and name not in made for name in layer.inputs(graph)):
            return False
        made.add(layer.output)
    return True


def test_a_residual_read_elsewhere_keeps_its_place() -> None:
    """conv0 is read by conv1 too, so conv2 with its addition needs a place of its own."""
    builder = Builder("residual")
    entry = builder.conv(builder.input("x", 1, 4, 4, 2), 2)
    end = builder.conv(builder.conv(entry, 2), 2)
    graph, _ = builder.build(builder.elementwise("add", end, entry))
    assert sharing(graph) == [("x",), ("conv0.out",), ("conv1.out",), ("add3.out",)]


def test_an_operand_that_only_the_addition_reads_is_accumulated_into() -> None:
    """The shortcut convolution of a down-sampling block, added to what the block made before."""
    builder = Builder("shortcut")
    x = builder.input("x", 1, 4, 4, 2)
    graph, _ = builder.build(builder.elementwise("add", builder.conv(x, 2), builder.conv(x, 2)))
    assert sharing(graph) == [("x",), ("conv0.out", "add2.out")]


def test_maps_write_over_an_operand_that_dies() -> None:
    builder = Builder("maps")
    x = builder.input("x", 1, 4, 4, 2)
    y = builder.elementwise("relu", builder.pool("max_pool", x, (1, 1)))
    graph, _ = builder.build(builder.elementwise("add", builder.elementwise("exp", x), x), y)
    assert any({"x", "add3.out"} <= set(place) for place in sharing(graph))


def test_views_own_no_bytes() -> None:
    builder = Builder("view")
    x = builder.conv(builder.input("x", 1, 4, 4, 2), 2)
    graph, _ = builder.build(builder.matmul(builder.view(x, 1, 32), builder.normal(32, 4)))
    assert ("conv0.out", "view1.out") in sharing(graph)


def test_the_shortcut_runs_after_the_long_path() -> None:
    """In the file the shortcut comes first and would wait, twice as large as what the path makes."""
    builder = Builder("block")
    x = builder.input("x", 1, 8, 8, 8)
    shortcut = builder.conv(x, 16, (1, 1), 2, (0, 0, 0, 0))
    path = builder.conv(builder.conv(x, 8, (1, 1), pads=(0, 0, 0, 0)), 4, stride=2)
    end = builder.elementwise("add", builder.conv(path, 16, (1, 1), pads=(0, 0, 0, 0)), shortcut)
    graph, _ = builder.build(end)
    layers = group_layers(graph)[0]
    order = Footprints(graph).ordered(layers)
    assert [layer.name for layer in layers] == ["conv0", "conv1", "conv2", "conv3"]
    assert [layer.name for layer in order] == ["conv1", "conv2", "conv0", "conv3"]
    inputs = Activations(graph)
    assert peak_of(inputs, order) < peak_of(inputs, layers)


@settings(max_examples=60)
@given(groups(most_ops=7))
def test_the_order_found_is_the_best_of_all(group: tuple[Graph, tuple[Layer, ...]]) -> None:
    """With the group's output last; the search keeps every partial order of groups this small."""
    graph, layers = group
    inputs = Activations(graph)
    order = best_order(inputs, layers, {})
    assert runs(graph, order)
    assert sorted(layer.name for layer in order) == sorted(layer.name for layer in layers)
    every = [(*rest, layers[-1]) for rest in permutations(layers[:-1])]
    assert peak_of(inputs, order) == min(peak_of(inputs, other) for other in every if runs(graph, other))


@given(groups())
def test_segments_end_where_one_value_is_alive(group: tuple[Graph, tuple[Layer, ...]]) -> None:
    graph, layers = group
    found = segments(Activations(graph), layers)
    assert tuple(layer for segment in found for layer in segment) == layers
    position = {layer.name: number for number, segment in enumerate(found) for layer in segment}
    for number, segment in enumerate(found[:-1]):
        known = {name for layer in layers if position[layer.name] <= number for name in layer.inputs(graph)}
        known |= {layer.output for layer in layers if position[layer.name] <= number}
        needed = {name for layer in layers if position[layer.name] > number for name in layer.inputs(graph)}
        assert known & needed == {segment[-1].output}
