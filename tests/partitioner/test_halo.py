"""The cost of a halo: its parts by hand, and when each way is the cheapest."""

from __future__ import annotations

from codegen.neuralscale.target import TARGET
from hw_models.cost import matrix_cycles, transfer_cycles
from hw_models.loading import load_chip
from partitioner.context.plan_context import PlanContext
from partitioner.fusion.grouping import group_layers_into_subgraphs
from partitioner.fusion.halo import halo_cost, halo_veto
from partitioner.fusion.split_factor import SplitOptions, Splitter
from partitioner.ir.graph import Graph
from partitioner.ir.layers import Layer, group_layers
from tests.partitioner.random_groups import Builder

CHIP = load_chip("stcp920")
ROW = 32 * 64


def context_of(graph: Graph) -> PlanContext:
    return PlanContext(graph, {}, CHIP, TARGET)


def three_windows(channels: int = 64) -> tuple[Graph, tuple[Layer, ...]]:
    builder = Builder("windows")
    x = builder.input("x", 1, 32, 32, 64)
    for _ in range(3):
        x = builder.conv(x, channels)
    graph, _ = builder.build(x)
    return graph, group_layers(graph)[0]


def test_parts_of_the_cost_by_hand() -> None:
    """Four pieces of the third window's rows: two rows more of the second's output at each of three cuts, and two
    rows more of the first's than the second alone would need."""
    graph, layers = three_windows()
    cost = halo_cost(context_of(graph), layers, "conv1.out", 1, 4)
    macs_a_row = ROW * 9 * 64
    assert cost.recomputed_macs == 3 * (2 + 2) * macs_a_row
    assert cost.cut_bytes == (32 + 32 + 3 * 2) * ROW * 2
    each = matrix_cycles(CHIP, 6 * 32 // 8, 64, 9 * 64, "float16")
    reread = transfer_cycles(CHIP, "LLB", "L1", 3 * 2 * ROW * 2 // 8, sharers=8)
    assert cost.recompute_cycles == 2 * each + reread
    out = transfer_cycles(CHIP, "L1", "LLB", 32 * ROW * 2 // 8, sharers=8)
    back = transfer_cycles(CHIP, "LLB", "L1", 38 * ROW * 2 // 8, sharers=8)
    assert cost.cut_cycles == out + back


def test_each_way_can_be_the_cheapest() -> None:
    """A narrow halo before cheap windows is computed twice; many thin pieces are cut apart."""
    builder = Builder("thin")
    x = builder.input("x", 1, 64, 64, 8)
    y = builder.conv(builder.conv(x, 8, (1, 1), pads=(0, 0, 0, 0)), 8)
    graph, _ = builder.build(y)
    light = halo_cost(context_of(graph), group_layers(graph)[0], "conv0.out", 1, 2)
    assert not light.is_cut
    graph, layers = three_windows()
    assert halo_cost(context_of(graph), layers, "conv1.out", 1, 32).is_cut


def test_batch_pieces_have_no_halo() -> None:
    builder = Builder("batch")
    x = builder.input("x", 4, 8, 8, 8)
    graph, _ = builder.build(builder.conv(builder.conv(x, 8), 8))
    cost = halo_cost(context_of(graph), group_layers(graph)[0], "conv0.out", 0, 4)
    assert (cost.recomputed_macs, cost.recompute_cycles, cost.is_cut) == (0, 0.0, False)


def test_the_veto_keeps_apart_what_would_be_computed_twice_too_often() -> None:
    """Room for a few rows: together each piece would compute its own border rows again and again."""
    graph, layers = three_windows()
    ctx = context_of(graph)
    splitter = Splitter(ctx.footprints, 16 * ROW * 2, SplitOptions(uneven=True))
    free, _ = group_layers_into_subgraphs(graph, layers, splitter.best, lambda _layers: None)
    held, decisions = group_layers_into_subgraphs(graph, layers, splitter.best, halo_veto(ctx, splitter.best))
    assert len(held) > len(free)
    assert any("halo of" in d.reason and "computing" in d.reason for d in decisions if d.verdict == "not merged")
