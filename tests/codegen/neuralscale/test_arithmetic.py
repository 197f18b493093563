"""Sizes and costs of tiles follow the types of what they read: what int8 operands with int32 sums would take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from codegen.neuralscale.instructions import arithmetic
from codegen.neuralscale.instructions.arithmetic import FP16, Arithmetic, arithmetic_of
from codegen.neuralscale.kernels.dispatch import template_of
from hw_models import cost
from partitioner.ir.graph import Graph, Tensor
from partitioner.ir.layers import Layer
from partitioner.ir.regions import full_box
from partitioner.ir.target import TileWork
from tests.chip_runs import stcp920
from tests.small_graphs import GraphBuilder

CHIP = stcp920()
INT8 = Arithmetic("float16", operands="int8", accumulate="int32")


@pytest.fixture(autouse=True)
def _both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arithmetic, "ARITHMETICS", {"float16": FP16, "int8": INT8})


def convolution() -> Graph:
    b = GraphBuilder("conv")
    graph, _ = b.build(b.conv(b.input("x", 1, 8, 8, 64), 32, bias=False))
    return graph


def product() -> Graph:
    b = GraphBuilder("product")
    graph, _ = b.build(b.matmul(b.input("a", 16, 64), b.normal(64, 32), bias=False))
    return graph


def in_integers(graph: Graph) -> Graph:
    """With operands of int8, whose sums times a scale per channel give fp16."""
    (op,) = graph.ops
    scale = Tensor("scale", (graph.by_name[op.outputs[0]].shape[-1],), "float16", (0,), "float32", "of scales")
    tensors = (replace(tensor, dtype="int8") if tensor.name in op.inputs else tensor for tensor in graph.tensors)
    return replace(graph, ops=(replace(op, inputs=(*op.inputs, "scale")),), tensors=(*tensors, scale))


def work_of(graph: Graph) -> TileWork:
    (op,) = graph.ops
    layer = Layer(op.name, (op.name,), op.outputs[0])
    box = full_box(graph.by_name[layer.output].shape)
    return template_of(graph, op).work(graph, layer, box, CHIP)


def sizes(work: TileWork) -> Mapping[str, int]:
    return {buffer.name: buffer.size_bytes for buffer in work.buffers}


@pytest.mark.parametrize("graph", [convolution(), product()], ids=lambda graph: graph.name)
def test_a_tile_of_integers_has_operands_of_one_byte_and_sums_of_four(graph: Graph) -> None:
    halves, integers = sizes(work_of(graph)), sizes(work_of(in_integers(graph)))
    operands = {load.buffer for step in work_of(graph).passes for load in step.loads}
    for name, size_bytes in halves.items():
        factor = 0.5 if name in operands else 2 if name == "sum" else 1
        assert integers[name] == factor * size_bytes, name


@pytest.mark.parametrize("graph", [convolution(), product()], ids=lambda graph: graph.name)
def test_the_matrix_engine_has_the_rate_of_its_operands(graph: Graph) -> None:
    before, after = (dict(work_of(each).engine_cycles) for each in (graph, in_integers(graph)))
    assert after["matrix"] < before["matrix"]
    assert after["vector"] == before["vector"]


def test_each_operator_of_a_network_has_its_own_arithmetic() -> None:
    graph = convolution()
    assert arithmetic_of(graph, graph.ops[0]) is FP16
    assert arithmetic_of(in_integers(graph), graph.ops[0]) is INT8


def test_bytes_and_cycles_are_those_of_the_types() -> None:
    assert (INT8.item_bytes, INT8.operand_bytes, INT8.sum_bytes) == (2, 1, 4)
    assert INT8.matrix_cycles(CHIP, 64, 32, 576) == cost.matrix_cycles(CHIP, 64, 32, 576, "int8")
    assert INT8.vector_cycles(CHIP, 64, 3) == FP16.vector_cycles(CHIP, 64, 3)
