"""Functions of a model file take the place of their calls, and a file cannot be made to explode by them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dsa_sched.frontend import load_model
from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.verification.verify import VerifyOptions, verify_model
from hw_models.errors import ModelError
from tests.small_models import save

DOMAIN = "com.example"


def function(name: str, nodes: Sequence[onnx.NodeProto], opset: int = 18) -> onnx.FunctionProto:
    """One operand a, one result b."""
    domains = [helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_function(DOMAIN, name, ["a"], ["b"], nodes, domains)


def call(name: str, x: str, y: str) -> onnx.NodeProto:
    return helper.make_node(name, [x], [y], domain=DOMAIN, name=f"call_{y}")


def model(functions: Sequence[onnx.FunctionProto], nodes: Sequence[onnx.NodeProto], folder: Path) -> Path:
    graph = helper.make_graph(
        nodes,
        "calls",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.linspace(-1, 1, 6, dtype=np.float32), "t")],
    )
    domains = [helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, 1)]
    made = helper.make_model(graph, functions=functions, opset_imports=domains, ir_version=8)
    return save(made, folder / "calls.onnx")


TWICE = function(
    "Twice", [helper.make_node("Relu", ["a"], ["t"], name="r"), helper.make_node("Add", ["t", "a"], ["b"], name="s")]
)
NESTED = function("Nested", [call("Twice", "a", "t"), helper.make_node("Neg", ["t"], ["b"])])


def test_functions_that_call_functions_are_right(tmp_path: Path) -> None:
    """Names inside a function are its own, also where the graph has a constant of that name."""
    nodes = [call("Nested", "x", "u"), call("Twice", "u", "v"), helper.make_node("Add", ["v", "t"], ["y"])]
    path = model([TWICE, NESTED], nodes, tmp_path)
    loaded = load_model(path)
    assert [op.kind for op in loaded.graph.ops] == ["relu", "add", "neg", "relu", "add", "add"]
    assert not loaded.source.functions
    report = verify_model(path, "stcp920", CompileOptions(), VerifyOptions(samples=64))
    assert report.failures == ()


def test_attributes_of_a_call_reach_the_nodes(tmp_path: Path) -> None:
    slope = onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    leaky = helper.make_node("LeakyRelu", ["a"], ["b"])
    leaky.attribute.append(slope)
    domains = [helper.make_opsetid("", 18)]
    made = helper.make_function(DOMAIN, "Leaky", ["a"], ["b"], [leaky], domains, attributes=["slope"])
    node = helper.make_node("Leaky", ["x"], ["y"], domain=DOMAIN, slope=0.25)
    (op,) = load_model(model([made], [node], tmp_path)).graph.ops
    assert op.number("alpha") == 0.25


def refused(functions: Sequence[onnx.FunctionProto], name: str, folder: Path) -> str:
    with pytest.raises(ModelError) as error:
        load_model(model(functions, [call(name, "x", "y")], folder))
    return str(error.value)


def test_functions_that_call_themselves_are_refused(tmp_path: Path) -> None:
    first = function("First", [call("Second", "a", "b")])
    second = function("Second", [call("First", "a", "b")])
    assert "calls First -> Second -> First" in refused([first, second], "First", tmp_path)


def test_a_small_file_does_not_become_a_million_nodes(tmp_path: Path) -> None:
    functions = [function("F0", [helper.make_node("Relu", ["a"], ["b"])])]
    for number in range(1, 40):
        body = [call(f"F{number - 1}", "a", "t"), call(f"F{number - 1}", "t", "b")]
        functions.append(function(f"F{number}", body))
    said = refused(functions, "F39", tmp_path)
    assert "needs at most 1048576 nodes; has 549755813888 once its functions are in their places" in said


def test_functions_of_another_operator_set_are_refused(tmp_path: Path) -> None:
    said = refused([function("Old", [helper.make_node("Relu", ["a"], ["b"])], 13)], "Old", tmp_path)
    assert "needs functions for the operator set that the graph is written in; has com.example.Old" in said
