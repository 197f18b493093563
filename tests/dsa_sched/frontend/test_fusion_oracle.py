"""Our grouping into layers against what TVM fuses: an independent count."""

from __future__ import annotations

import pytest

from benchmarks.lab.fusion_oracle import fused_kernels
from codegen.generic import NEUTRAL
from dsa_sched.frontend.graph.build import build_graph
from dsa_sched.frontend.load import load_network
from partitioner.ir.layers import group_layers


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("squeezenet", 39),
        *(pytest.param(*each, marks=pytest.mark.nightly) for each in (("shufflenet", 75), ("resnet50", 57))),
    ],
)
def test_as_many_layers_as_tvm_fuses_kernels(name: str, count: int) -> None:
    network = load_network(name)
    graph = build_graph(network, NEUTRAL).graph
    layers = [layer for layer in group_layers(graph)[0] if not layer.is_view(graph)]
    assert len(fused_kernels(network)) == count
    assert len(layers) == count
