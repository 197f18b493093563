"""Operators put together from others: what they become, and what is left to be refused by name.

That the values are right is shown by ONNX's node tests (`tests/onnx_backend`), which run every one of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dsa_sched.frontend import load_model
from dsa_sched.frontend.decomposition.decompose import TAKEN_APART
from hw_models.errors import ModelError
from tests.onnx_backend.table import read_table

SHAPE = (1, 8, 4, 6)


def kinds(
    folder: Path, op_type: str, constants: dict[str, Any], shape: tuple[int, ...], **attributes: Any
) -> list[str]:
    """Our operators of a model of one node that reads x and constants."""
    graph = helper.make_graph(
        [helper.make_node(op_type, ["x", *constants], ["y"], name="the_node", **attributes)],
        "decomposed",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=8), path)
    return [op.kind for op in load_model(path).graph.ops]


@pytest.mark.parametrize(
    ("exponent", "expected"),
    [(2.0, ["mul"]), (3.0, ["mul", "mul"]), (0.5, ["sqrt"]), (-0.5, ["sqrt", "reciprocal"]), (-1.0, ["reciprocal"])],
)
def test_powers(exponent: float, expected: list[str], tmp_path: Path) -> None:
    assert kinds(tmp_path, "Pow", {"e": np.float32(exponent)}, SHAPE) == expected


def test_other_powers_by_one_number_stay_whole(tmp_path: Path) -> None:
    assert kinds(tmp_path, "Pow", {"e": np.float32(1.7)}, SHAPE) == ["power"]


def test_powers_by_several_numbers_are_refused_by_their_name(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"Pow the_node.*the exponent must be constant, one number for all elements"):
        kinds(tmp_path, "Pow", {"e": np.full(SHAPE[-1], 1.7, np.float32)}, SHAPE)


def test_gelu_by_the_error_function_and_by_its_approximation(tmp_path: Path) -> None:
    assert kinds(tmp_path, "Gelu", {}, SHAPE) == ["mul", "erf", "add", "mul", "mul"]
    assert "tanh" in kinds(tmp_path, "Gelu", {}, SHAPE, approximate="tanh")


def test_one_slope_for_all_is_a_leaky_relu(tmp_path: Path) -> None:
    assert kinds(tmp_path, "PRelu", {"s": np.array([0.25], np.float32)}, SHAPE) == ["leaky_relu"]


def test_pixels_are_shuffled_by_views_and_a_transpose(tmp_path: Path) -> None:
    assert kinds(tmp_path, "DepthToSpace", {}, (1, 2, 8, 12), blocksize=2).count("transpose") >= 1
    assert kinds(tmp_path, "SpaceToDepth", {}, (1, 32, 2, 3), blocksize=2).count("transpose") >= 1


def test_the_minimum_is_a_maximum_of_what_is_negated(tmp_path: Path) -> None:
    axes = {"a": np.array([1], np.int64)}
    assert kinds(tmp_path, "ReduceMin", axes, (1, 1, 4, 6)) == ["neg", "reduce_max", "neg"]


CASES = {
    "BatchNormalization": "batchnorm",
    "CastLike": "relu_expanded_ver18",
    "InstanceNormalization": "instancenorm",
    "LayerNormalization": "layer_normalization",
    "LpNormalization": "l2normalization",
    "RMSNormalization": "rms_normalization",
    "ReduceL1": "reduce_l1",
    "ReduceL2": "reduce_l2",
    "ReduceLogSum": "reduce_log_sum",
    "ReduceLogSumExp": "reduce_log_sum_exp",
    "ReduceMin": "reduce_min",
    "ReduceSumSquare": "reduce_sum_square",
    "RotaryEmbedding": "rotary_embedding",
}
"""How the node tests that hold an operator begin, where that is not its name in small letters."""


def test_every_one_of_them_runs_in_onnx_s_own_tests() -> None:
    """A case of each operator passes, so that none is believed without having run."""
    passing = [name for name, outcome in read_table().items() if outcome.status == "pass"]
    begins = {op_type: f"test_{CASES.get(op_type, op_type.lower())}" for op_type in sorted(TAKEN_APART)}
    assert [o for o, begin in begins.items() if not any(name.startswith(begin) for name in passing)] == []
