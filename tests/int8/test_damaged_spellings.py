"""Operators on quantised operands without all of their operands or results: refused in words, whatever is missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dsa_sched
from dsa_sched.frontend.network.spelling import MICROSOFT
from dsa_sched.frontend.quantised.dialects import QUANTISED
from hw_models.errors import ModelError


def model_of(nodes: Sequence[onnx.NodeProto]) -> onnx.ModelProto:
    stored = [numpy_helper.from_array(np.ones((4, 4), np.int8), "w")]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 4, 4, 4)) for name in ("x", "y")]
    graph = helper.make_graph(list(nodes), "damaged", ends[:1], ends[1:], stored)
    sets = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=8)


@pytest.mark.parametrize(("domain", "op_type"), QUANTISED)
@pytest.mark.parametrize(("inputs", "outputs"), [(0, 0), (1, 0), (1, 1), (3, 1), (9, 0)])
def test_missing_operands_and_results_are_refused(domain: str, op_type: str, inputs: int, outputs: int) -> None:
    node = helper.make_node(op_type, ["x"] * inputs, ["y"] * outputs, domain=domain)
    with pytest.raises(ModelError):
        dsa_sched.compile(model_of([node]), chip="stcp920", level="O0")


@pytest.mark.parametrize(
    ("weights", "scales", "zeros", "axis"),
    [
        ((16, 8), 7, 7, 1),  # fewer than the axis has indices
        ((16, 8), 8, 3, 1),
        ((16, 8), 0, 0, 1),
        ((16, 8), 8, 8, 5),  # an axis that the value does not have
        ((16, 8), 8, 8, -3),
        ((16, 8), 16, 16, 1),  # those of the other axis
    ],
)
@pytest.mark.parametrize("chip", ["stcp920", "h100"])
def test_scales_that_do_not_fit_their_weights_are_refused(
    weights: tuple[int, int], scales: int, zeros: int, axis: int, chip: str
) -> None:
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["numbers"], axis=axis),
        helper.make_node("MatMul", ["x", "numbers"], ["y"]),
    ]
    stored: dict[str, np.ndarray[Any, Any]] = {
        "q": np.ones(weights, np.int8),
        "s": np.ones(scales, np.float32),
        "z": np.zeros(zeros, np.int8),
    }
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (4, size)) for name, size in (("x", 16), ("y", 8))]
    constants = [numpy_helper.from_array(array, name) for name, array in stored.items()]
    graph = helper.make_graph(nodes, "damaged", ends[:1], ends[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(ModelError, match="one per index of an axis"):
        dsa_sched.compile(model, chip=chip, level="O0")


@pytest.mark.parametrize("op_type", ["MatMulInteger", "ConvInteger"])
@pytest.mark.parametrize("inputs", [["q"], ["q", "w"], ["q", "w", "z"], ["q", "w", "z", "z"]])
@pytest.mark.parametrize("made", [["q"], ["q", "s"], ["q", "s", "z"]])
def test_products_of_damaged_dynamic_grids_are_refused(op_type: str, inputs: list[str], made: list[str]) -> None:
    nodes = [helper.make_node("DynamicQuantizeLinear", ["x"], made), helper.make_node(op_type, inputs, ["y"])]
    with pytest.raises(ModelError):
        dsa_sched.compile(model_of(nodes), chip="stcp920", level="O0")
