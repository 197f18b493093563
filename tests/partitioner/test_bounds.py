"""Floors by hand, and that no plan of any level goes below those of its network."""

from __future__ import annotations

from dataclasses import replace

import pytest

from codegen.generic import GenericTarget
from codegen.neuralscale.target import TARGET
from hw_models.chip import Chip
from partitioner.context.plan_context import PlanContext
from partitioner.cost.roofline import (
    Floor,
    binding_floor,
    compulsory_bytes,
    items_per_second,
    network_floors,
    plan_floors,
)
from partitioner.cost.traffic import Traffic, plan_traffic
from partitioner.ir.graph import Constants, Graph
from partitioner.ir.target import PlanTarget
from partitioner.memory.memory_plan import lay_out
from partitioner.planners.levels import LEVELS, planner_of
from partitioner.planners.registry import make_plan
from tests.chip_runs import small_chip, stcp920
from tests.small_graphs import GraphBuilder


def convolution() -> tuple[Graph, Constants]:
    """64x64 pixels, 16 to 40 channels, 3x3, then relu."""
    builder = GraphBuilder("one")
    return builder.build(builder.elementwise("relu", builder.conv(builder.input("x", 1, 64, 64, 16), 40)))


def network(batch: int = 2) -> tuple[Graph, Constants]:
    builder = GraphBuilder("several")
    x = builder.input("x", batch, 24, 24, 16)
    first = builder.elementwise("relu", builder.conv(x, 32))
    deep = builder.conv(first, 32, groups=32)
    pooled = builder.pool("max_pool", builder.elementwise("add", deep, first), (2, 2), 2)
    mean = builder.view(builder.pool("average_pool", pooled, (12, 12)), batch, 32)
    return builder.build(builder.softmax(builder.matmul(mean, builder.normal(32, 10))))


def traffic_of(graph: Graph, constants: Constants, chip: Chip, target: PlanTarget, level: str) -> Traffic:
    ctx = PlanContext(graph, constants, chip, target)
    plan = make_plan(ctx, planner_of(level))
    return plan_traffic(plan, lay_out(plan, ctx), ctx)


def cycles(floors: tuple[Floor, ...]) -> dict[str, float]:
    return {floor.name: floor.cycles for floor in floors}


def test_floors_of_one_convolution_by_hand() -> None:
    graph, _ = convolution()
    found = cycles(network_floors(graph, stcp920()))
    # 64 tiles of 64 pixels, two of 32 channels for 40, 9 x 16 steps each, over eight cores.
    assert found["matrix"] == 64 * 2 * 144 / 8
    assert found["vector"] == 64 * 64 * 40 / (64 * 8)
    weights, bias = 9 * 16 * 40 * 2, 40 * 2
    assert compulsory_bytes(graph) == (64 * 64 * 16 * 2 + weights + bias, 64 * 64 * 40 * 2)
    assert found["DDR"] == pytest.approx(sum(compulsory_bytes(graph)) / 27.0)


def test_without_a_matrix_engine_products_are_the_vector_engines() -> None:
    graph, _ = convolution()
    chip = stcp920()
    engines = tuple(engine for engine in chip.engines if engine.kind != "matrix")
    found = cycles(network_floors(graph, chip.model_copy(update={"engines": engines})))
    macs = 64 * 64 * 40 * 144
    assert "matrix" not in found
    assert found["vector"] == (macs + 64 * 64 * 40) / (64 * 8)


def test_a_depthwise_convolution_is_no_floor_of_the_matrix_engine() -> None:
    builder = GraphBuilder("depthwise")
    graph, _ = builder.build(builder.conv(builder.input("x", 1, 16, 16, 32), 32, groups=32))
    assert "matrix" not in cycles(network_floors(graph, stcp920()))


def test_the_largest_floor_binds_and_gives_the_rate() -> None:
    graph, _ = convolution()
    chip = stcp920()
    binding = binding_floor(network_floors(graph, chip))
    assert binding.name == "DDR"
    assert items_per_second(chip, binding.cycles, 2) == pytest.approx(2 * 4 * 1e9 / binding.cycles)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("target", [TARGET, GenericTarget("other")], ids=["neuralscale", "generic"])
@pytest.mark.commit
def test_no_plan_goes_below_the_floors_of_its_network(level: str, target: PlanTarget) -> None:
    for chip in (stcp920(), small_chip(4, 48 << 10, 24 << 10, 24 << 10, 160 << 10)):
        for graph, constants in (convolution(), network()):
            plan = cycles(plan_floors(traffic_of(graph, constants, chip, target, level), chip))
            for floor in network_floors(graph, chip):
                assert plan[floor.name] >= floor.cycles * (1 - 1e-9), floor


def test_floors_of_parts_add_up_to_those_of_the_plan() -> None:
    graph, constants = network()
    chip = stcp920()
    traffic = traffic_of(graph, constants, chip, TARGET, "O0")
    whole = cycles(plan_floors(traffic, chip))
    parts = [cycles(plan_floors(traffic, chip, [part])) for part in traffic.parts]
    for name in whole:
        assert sum(part.get(name, 0.0) for part in parts) == pytest.approx(whole[name])


def test_floors_are_those_of_the_dtype_that_is_computed_in() -> None:
    """The same network in 8-bit integers runs at the rates that the chip file gives for these, and moves half the
    bytes; where an engine has no such type, at those of its fastest."""
    graph, _ = convolution()
    chip = stcp920()
    narrow = replace(graph, tensors=tuple(replace(tensor, dtype="int8") for tensor in graph.tensors))
    halves, bytes_ = cycles(network_floors(graph, chip)), cycles(network_floors(narrow, chip))
    cell = chip.matrix.array_pixels * chip.matrix.array_channels
    assert chip.matrix.macs_per_cycle("int8") != chip.matrix.macs_per_cycle("float16")
    assert bytes_["matrix"] == 64 * 2 * (144 * cell // chip.matrix.macs_per_cycle("int8")) / 8
    assert bytes_["vector"] == 64 * 64 * 40 / (chip.vector.elements_per_cycle("int8") * 8)
    assert bytes_["DDR"] == halves["DDR"] / 2
    wide = replace(graph, tensors=tuple(replace(tensor, dtype="int64") for tensor in graph.tensors))
    fastest = max(chip.vector.elements_per_cycle(rate.dtype) for rate in chip.vector.rates)
    assert cycles(network_floors(wide, chip))["vector"] == 64 * 64 * 40 / (fastest * 8)
