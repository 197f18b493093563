"""Which spelled-out norms are recognised, and which are left as the file has them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dsa_sched.frontend import load_model

node = helper.make_node
ROOT = [
    node("Mul", ["x", "x"], ["q"]),
    node("ReduceMean", ["q", "last"], ["m"]),
    node("Add", ["m", "eps"], ["a"]),
    node("Sqrt", ["a"], ["r"]),
]


def kinds(folder: Path, nodes: list[onnx.NodeProto], *outputs: str) -> Counter[str]:
    graph = helper.make_graph(
        nodes,
        "norm",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, (4, 32)) for name in ("x", "z")],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [
            numpy_helper.from_array(np.array(1e-5, np.float32), "eps"),
            numpy_helper.from_array(np.array([-1], np.int64), "last"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    del model.graph.output[:]
    known = {item.name: item for item in (*inferred.graph.output, *inferred.graph.value_info)}
    model.graph.output.extend(known[name] for name in outputs)
    path = folder / "model.onnx"
    onnx.save(model, path)
    return Counter(op.kind for op in load_model(path).graph.ops)


@pytest.mark.parametrize(
    "ending",
    [
        [node("Div", ["x", "r"], ["y"])],
        [node("Reciprocal", ["r"], ["i"]), node("Mul", ["x", "i"], ["y"])],
        [node("Reciprocal", ["r"], ["i"]), node("Mul", ["i", "x"], ["y"])],
    ],
)
def test_x_over_its_root_divides_by_no_root_of_its_own(ending: list[onnx.NodeProto], tmp_path: Path) -> None:
    found = kinds(tmp_path, [*ROOT, *ending], "y")
    assert found["reduce_power"] == 1
    assert found["div"] == 0


def test_the_root_and_its_reciprocal_serve_others_too(tmp_path: Path) -> None:
    others = [node("Div", ["z", "r"], ["w"]), node("Reciprocal", ["r"], ["i"]), node("Mul", ["z", "i"], ["y"])]
    found = kinds(tmp_path, [*ROOT, *others], "w", "y", "r", "i")
    assert found["reduce_power"] == 1
    assert found["div"] == 2, "the root from the scaled one, and z over it"


def test_a_quotient_the_other_way_round_is_none(tmp_path: Path) -> None:
    found = kinds(tmp_path, [*ROOT, node("Div", ["r", "x"], ["y"])], "y")
    assert found["div"] == 2


@pytest.mark.parametrize("kept", ["q", "m", "a", "r"])
def test_the_norm_is_scaled_whatever_else_is_an_output(kept: str, tmp_path: Path) -> None:
    found = kinds(tmp_path, [*ROOT, node("Div", ["x", "r"], ["y"])], "y", kept)
    assert found["reduce_power"] == 1


def test_products_of_two_values_are_no_squares(tmp_path: Path) -> None:
    other = [node("Mul", ["x", "z"], ["q"]), *ROOT[1:]]
    assert kinds(tmp_path, [*other, node("Div", ["x", "r"], ["y"])], "y")["reduce_power"] == 0


def test_a_mean_subtracted_before_belongs_to_the_norm(tmp_path: Path) -> None:
    before = [node("ReduceMean", ["z", "last"], ["mu"]), node("Sub", ["z", "mu"], ["x_"])]
    nodes = [*before, node("Mul", ["x_", "x_"], ["q"]), *ROOT[1:], node("Div", ["x_", "r"], ["y"])]
    assert kinds(tmp_path, nodes, "y")["reduce_nearest"] == 1
