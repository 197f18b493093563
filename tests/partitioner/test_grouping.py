"""Grouping: the published sub-graphs of ResNet-50, each pattern and rule alone, and what must hold of any grouping."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partitioner.footprint.footprint import Footprints
from partitioner.fusion.grouping import group_layers_into_subgraphs
from partitioner.fusion.split_factor import SplitOptions, Splitter, Splitting
from partitioner.ir.decisions import Decision
from partitioner.ir.graph import Graph
from partitioner.ir.layers import Layer, group_layers
from tests.partitioner.networks import MEBIBYTE, network_layers
from tests.partitioner.random_groups import Builder, groups

Names = list[tuple[str, ...]]


def factors(table: dict[str, int], merged: int = 1) -> Callable[[tuple[Layer, ...]], Splitting | None]:
    """A best splitting by name of a single layer; `merged` for anything of several layers."""

    def best(layers: tuple[Layer, ...]) -> Splitting | None:
        count = table[layers[0].name] if len(layers) == 1 else merged
        return Splitting(((0, count),), len(layers), 100) if count else None

    return best


def names(found: tuple[tuple[Layer, ...], ...]) -> Names:
    return [tuple(layer.name for layer in group) for group in found]


def grouped(graph: Graph, table: dict[str, int], merged: int = 1) -> tuple[Names, tuple[Decision, ...]]:
    found, decisions = group_layers_into_subgraphs(graph, group_layers(graph)[0], factors(table, merged))
    return names(found), decisions


def chain() -> Graph:
    builder = Builder("chain")
    x = builder.input("x", 1, 4, 4, 2)
    return builder.build(builder.conv(builder.conv(x, 2), 2))[0]


def residual() -> Graph:
    """conv0 is read by conv1 and by the addition in the epilogue of conv2."""
    builder = Builder("residual")
    entry = builder.conv(builder.input("x", 1, 4, 4, 2), 2)
    end = builder.conv(builder.conv(entry, 2), 2)
    return builder.build(builder.elementwise("add", end, entry))[0]


def two_paths() -> Graph:
    """conv1 and conv2 read different inputs and meet in a concat."""
    builder = Builder("paths")
    left, right = builder.input("x", 1, 4, 4, 2), builder.input("y", 1, 4, 4, 2)
    return builder.build(builder.concat(3, builder.conv(left, 2), builder.conv(right, 2)))[0]


@pytest.mark.parametrize(
    ("capacity_mebibytes", "ends", "counts"),
    [(10, ["n32", "n74", "n136", "n175"], [8, 4, 2, 1]), (8, ["n44", "n86", "n148", "n175"], [8, 4, 2, 1])],
)
@pytest.mark.commit
def test_resnet50_falls_into_its_stages(capacity_mebibytes: int, ends: list[str], counts: list[int]) -> None:
    """At the published capacity borders lie at stage ends; with less, behind the down-sampling blocks."""
    graph, layers = network_layers("resnet50", 16)
    splitter = Splitter(Footprints(graph), capacity_mebibytes * MEBIBYTE)
    found, decisions = group_layers_into_subgraphs(graph, layers, splitter.best)
    assert [group[-1].name for group in found] == ends
    best = [splitter.best(group) for group in found]
    assert [splitting.factors for splitting in best if splitting] == [((0, count),) for count in counts]
    refused = [decision for decision in decisions if decision.verdict == "not merged"]
    assert len(refused) == len(found) - 1
    assert all("rule (i): factor" in decision.reason and "of the producer" in decision.reason for decision in refused)
    assert len(decisions) - len(refused) <= len(layers) - len(found)


def test_straight_merges_where_the_factor_does_not_fall() -> None:
    graph = chain()
    assert grouped(graph, {"conv0": 2, "conv1": 2}, merged=2)[0] == [("conv0", "conv1")]
    assert grouped(graph, {"conv0": 1, "conv1": 2}, merged=2)[0] == [("conv0", "conv1")]
    apart, decisions = grouped(graph, {"conv0": 4, "conv1": 2}, merged=2)
    assert apart == [("conv0",), ("conv1",)]
    assert decisions == (Decision("conv0 + conv1", "not merged", "straight, rule (i): factor 2 < 4 of the producer"),)
    apart, decisions = grouped(graph, {"conv0": 1, "conv1": 2}, merged=4)
    assert apart == [("conv0",), ("conv1",)]
    assert decisions[-1].reason.endswith("factor 4 merged (4 pieces of axis 0, 100 bytes at the worst step) > 2 of the "
                                         "consumer's")  # fmt: skip


def test_what_fits_with_no_factor_is_not_merged() -> None:
    apart, decisions = grouped(chain(), {"conv0": 2, "conv1": 2}, merged=0)
    assert apart == [("conv0",), ("conv1",)]
    assert "no factor makes it fit when merged" in decisions[0].reason


def test_a_diamond_takes_its_paths_and_its_exit_but_not_its_entry() -> None:
    """Rule (ii) allows what rule (i) would not: the paths have a larger factor than the exit."""
    found, decisions = grouped(residual(), {"conv0": 16, "conv1": 8, "conv2": 2}, merged=8)
    assert found == [("conv0",), ("conv1", "conv2")]
    assert decisions[0].verdict == "merged"
    assert decisions[0].reason.startswith("diamond, rule (ii): factor 8 merged")
    found, decisions = grouped(residual(), {"conv0": 16, "conv1": 8, "conv2": 2}, merged=9)
    assert found == [("conv0",), ("conv1",), ("conv2",)]
    (refusal,) = (d.reason for d in decisions if d.subject == "conv1 + conv2")
    assert refusal.startswith("diamond, rule (ii)")
    assert "> 8 of the largest before; branch, rule (i): factor 2 < 8" in refusal


def test_a_branch_joins_its_exit_one_by_one() -> None:
    found, decisions = grouped(two_paths(), {"conv0": 1, "conv1": 2, "concat2": 2}, merged=2)
    assert found == [("conv0", "conv1", "concat2")]
    assert [decision.reason.split(",")[0] for decision in decisions] == ["branch", "straight"]
    found, _ = grouped(two_paths(), {"conv0": 4, "conv1": 2, "concat2": 2}, merged=2)
    assert found == [("conv0",), ("conv1", "concat2")]


def test_the_caller_can_refuse_with_a_sentence() -> None:
    graph = chain()
    found, decisions = group_layers_into_subgraphs(
        graph, group_layers(graph)[0], factors({"conv0": 1, "conv1": 1}), lambda layers: f"{len(layers)} are too many"
    )
    assert names(found) == [("conv0",), ("conv1",)]
    assert decisions == (Decision("conv0 + conv1", "not merged", "straight, 2 are too many"),)


def test_outputs_of_the_network_end_a_group() -> None:
    builder = Builder("outputs")
    first = builder.conv(builder.input("x", 1, 4, 4, 2), 2)
    graph, _ = builder.build(first, builder.conv(first, 2))
    found, decisions = grouped(graph, {"conv0": 1, "conv1": 1})
    assert found == [("conv0",), ("conv1",)]
    assert decisions[0].reason == "straight, conv0.out is an output of the network and must be stored"


def test_views_take_the_factor_of_their_neighbour() -> None:
    builder = Builder("view")
    first = builder.conv(builder.input("x", 1, 4, 4, 2), 2)
    graph, _ = builder.build(builder.matmul(builder.view(first, 1, 32), builder.normal(32, 3)))
    table = {"conv0": 4, "view1": 1, "matmul2": 4}
    assert grouped(graph, table, merged=4)[0] == [("conv0", "view1", "matmul2")]


@settings(max_examples=80)
@given(groups(most_ops=12), st.integers(50, 4000), st.booleans())
@pytest.mark.commit
def test_groups_cover_the_layers_once_in_an_order_that_runs(
    group: tuple[Graph, tuple[Layer, ...]], capacity_bytes: int, uneven: bool
) -> None:
    graph, layers = group
    layers = group_layers(graph)[0]
    splitter = Splitter(Footprints(graph), capacity_bytes, SplitOptions(uneven=uneven, most_axes=2))
    found, decisions = group_layers_into_subgraphs(graph, layers, splitter.best)
    assert (found, decisions) == group_layers_into_subgraphs(graph, layers, splitter.best)
    assert sorted(layer.name for members in found for layer in members) == sorted(layer.name for layer in layers)
    ready = {tensor.name for tensor in graph.tensors if tensor.constant} | set(graph.inputs)
    owner = {layer.output: number for number, members in enumerate(found) for layer in members}
    for number, members in enumerate(found):
        for layer in members:
            assert ready.issuperset(layer.inputs(graph)), layer.name
            ready.add(layer.output)
        # Nothing but the last output leaves a group, so no path can leave it and come back.
        inner = {layer.output for layer in members[:-1]}
        assert not inner.intersection(graph.outputs)
        for other in layers:
            assert owner[other.output] == number or not inner.intersection(other.inputs(graph))
        if len(members) > 1:
            best = splitter.best(members)
            assert best is not None
            assert best.peak_bytes <= capacity_bytes
    pairs = [decision.subject for decision in decisions if decision.verdict == "not merged"]
    assert len(pairs) == len(set(pairs))


def test_a_long_chain_is_merged_in_pairs() -> None:
    """Few candidates are looked at twice: near linear work."""
    builder = Builder("long")
    x = builder.input("x", 2, 4, 4, 1)
    for _ in range(256):
        x = builder.conv(x, 1, (1, 1), pads=(0, 0, 0, 0), bias=False)
    graph, _ = builder.build(x)
    asked: list[int] = []

    def best(layers: tuple[Layer, ...]) -> Splitting:
        asked.append(len(layers))
        return Splitting(((0, 1),), len(layers), 1)

    found, _ = group_layers_into_subgraphs(graph, group_layers(graph)[0], best)
    assert len(found) == 1
    assert sum(asked) <= 256 * 9  # itself, and once for each doubling


def test_a_group_has_an_end() -> None:
    builder = Builder("longer")
    x = builder.input("x", 2, 4, 4, 1)
    for _ in range(1_100):
        x = builder.conv(x, 1, (1, 1), pads=(0, 0, 0, 0), bias=False)
    graph, _ = builder.build(x)
    layers = group_layers(graph)[0]
    found, decisions = group_layers_into_subgraphs(graph, layers, lambda part: Splitting(((0, 1),), len(part), 1))
    assert [layer for group in found for layer in group] == list(layers)
    assert max(map(len, found)) <= 1_024 < sum(map(len, found))
    assert any("layers; a group has at most 1024" in decision.reason for decision in decisions)
