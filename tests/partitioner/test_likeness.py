"""Layers that differ in names only are alike; those that differ in anything that costs are not."""

from __future__ import annotations

from codegen.neuralscale.target import TARGET
from partitioner.context.plan_context import PlanContext
from partitioner.ir.layers import group_layers
from partitioner.ir.regions import full_box
from partitioner.ir.steps import RunStep
from partitioner.ir.structural_key import likeness
from partitioner.planners.registry import make_plan
from partitioner.tiling.core_partition import bind
from tests.chip_runs import stcp920
from tests.small_graphs import GraphBuilder


def test_only_names_may_differ() -> None:
    b = GraphBuilder("alike")
    x, y = b.input("x", 1, 8, 8, 16), b.input("y", 1, 8, 8, 16)
    values = [
        b.conv(x, 16),
        b.conv(y, 16),
        b.conv(x, 16, stride=2),
        b.conv(x, 16, (1, 1), pads=(0, 0, 0, 0)),
        b.conv(x, 8),
        b.conv(x, 16, bias=False),
        b.elementwise("add", x, y),
        b.elementwise("add", x, x),
    ]
    graph, _ = b.build(*values)
    layers, _ = group_layers(graph)
    keys = [likeness(graph, layer)[0] for layer in layers]
    assert keys[0] == keys[1]
    assert len(set(keys)) == len(keys) - 1


def test_a_plan_binds_alike_layers_as_it_would_bind_each() -> None:
    b = GraphBuilder("repeated")
    x = b.conv(b.input("x", 2, 14, 14, 16), 32)
    for _ in range(3):
        x = b.elementwise("add", b.conv(b.elementwise("relu", b.conv(x, 16)), 32), x)
    graph, constants = b.build(b.pool("max_pool", x, (2, 2), 2))
    for step in make_plan(PlanContext(graph, constants, stcp920(), TARGET)).steps:
        assert isinstance(step, RunStep)
        layer = next(layer for layer in group_layers(graph, TARGET.can_fuse_epilogue)[0] if layer.name == step.group)
        box = full_box(graph.by_name[layer.output].shape)
        assert step.binding == bind(PlanContext(graph, {}, stcp920(), TARGET), layer, box)[0]
