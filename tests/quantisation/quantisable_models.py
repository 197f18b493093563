"""Small networks in floating point with everything that the quantiser treats in a way of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

SHAPE = (1, 4, 8, 8)


def residual(opset: int = 17) -> onnx.ModelProto:
    """Convolutions with norms, Clip and Relu, a residual sum, a pool, branches that are joined, a mean, a Gemm."""
    random = np.random.default_rng(0)
    constants: list[TensorProto] = []

    def constant(name: str, array: npt.NDArray[np.floating[Any]]) -> str:
        constants.append(numpy_helper.from_array(array.astype(np.float32), name))
        return name

    def weights(name: str, *shape: int) -> str:
        return constant(name, random.normal(0, float(np.prod(shape[1:])) ** -0.5, shape))

    def norm(name: str, operand: str, result: str) -> onnx.NodeProto:
        arrays = {"gain": random.uniform(0.5, 1.5, 4), "shift": random.normal(size=4), "mean": random.normal(size=4),
                  "variance": random.uniform(0.5, 1.5, 4)}  # fmt: skip
        operands = [constant(f"{name}.{part}", array) for part, array in arrays.items()]
        return helper.make_node("BatchNormalization", [operand, *operands], [result], name=name)

    around: dict[str, Any] = {"pads": [1, 1, 1, 1]}
    bounds = [constant("low", np.zeros(())), constant("high", np.full((), 6))]
    nodes = [
        helper.make_node("Conv", ["x", weights("w1", 4, 4, 3, 3), weights("b1", 4)], ["c1"], name="conv1", **around),
        norm("norm1", "c1", "n1"),
        helper.make_node("Clip", ["n1", *bounds], ["r1"], name="clip1"),
        helper.make_node("Conv", ["r1", weights("w2", 4, 4, 3, 3)], ["c2"], name="conv2", **around),
        norm("norm2", "c2", "n2"),
        helper.make_node("Sum" if opset < 13 else "Add", ["n2", "r1"], ["s"], name="sum"),
        helper.make_node("Relu", ["s"], ["r2"], name="relu2"),
        helper.make_node("MaxPool", ["r2"], ["p"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p", weights("w3", 4, 4, 1, 1)], ["c3"], name="conv3"),
        helper.make_node("Relu", ["c3"], ["r3"], name="relu3"),
        helper.make_node("Conv", ["p", weights("w4", 4, 4, 3, 3)], ["c4"], name="conv4", **around),
        helper.make_node("Relu", ["c4"], ["r4"], name="relu4"),
        helper.make_node("Concat", ["r3", "r4"], ["j"], name="join", axis=1),
        helper.make_node("Dropout", ["j"], ["d", "mask"], name="dropout"),
        helper.make_node("GlobalAveragePool", ["d"], ["g"], name="mean"),
        helper.make_node("Flatten", ["g"], ["f"], name="flatten"),
        helper.make_node("Gemm", ["f", weights("w5", 6, 8), weights("b5", 6)], ["y"], name="fc", transB=1),
    ]  # fmt: skip
    return _model("residual", nodes, constants, SHAPE, (1, 6), opset)


def convolution() -> onnx.ModelProto:
    """A convolution, a Relu, a mean and a Gemm."""
    random = np.random.default_rng(2)
    constants = [
        numpy_helper.from_array(random.normal(0, 0.3, (4, 4, 3, 3)).astype(np.float32), "w"),
        numpy_helper.from_array(random.normal(0, 0.5, (4, 6)).astype(np.float32), "v"),
        numpy_helper.from_array(np.linspace(-1, 1, 6, dtype=np.float32), "b"),
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["g"], name="mean"),
        helper.make_node("Flatten", ["g"], ["f"], name="flatten"),
        helper.make_node("Gemm", ["f", "v", "b"], ["y"], name="fc"),
    ]
    return _model("convolution", nodes, constants, SHAPE, (1, 6), 17)


def attention() -> onnx.ModelProto:
    """A product with a softmax, both factors of which are computed, after a norm that a sum reads, too."""
    random = np.random.default_rng(1)
    constants = [
        numpy_helper.from_array(random.normal(0, 0.4, (8, 8)).astype(np.float32), f"w{name}") for name in "qkv"
    ]
    constants.append(numpy_helper.from_array(np.ones(8, np.float32), "gain"))
    constants.append(numpy_helper.from_array(np.array([6, 8], np.int64), "rows"))
    nodes = [
        helper.make_node("LayerNormalization", ["x", "gain"], ["n"], name="norm"),
        helper.make_node("MatMul", ["n", "wq"], ["q"], name="query"),
        helper.make_node("MatMul", ["n", "wk"], ["k"], name="key"),
        helper.make_node("MatMul", ["n", "wv"], ["v"], name="value"),
        helper.make_node("Transpose", ["k"], ["t"], name="turn", perm=[1, 0]),
        helper.make_node("MatMul", ["q", "t"], ["scores"], name="scores"),
        helper.make_node("Softmax", ["scores"], ["shares"], name="softmax", axis=1),
        helper.make_node("MatMul", ["shares", "v"], ["mixed"], name="mix"),
        helper.make_node("Add", ["mixed", "n"], ["a"], name="add"),
        helper.make_node("Reshape", ["a", "rows"], ["y"], name="reshape"),
    ]
    return _model("attention", nodes, constants, (6, 8), (6, 8), 17)


def tied() -> onnx.ModelProto:
    """One square of weights that a Gemm reads as it is, two others turned, and a Mul as numbers."""
    random = np.random.default_rng(3)
    constants = [numpy_helper.from_array(random.normal(0, 0.4, (8, 8)).astype(np.float32), "w")]
    constants += [numpy_helper.from_array(random.normal(size=(1, 8)).astype(np.float32), name) for name in "bc"]
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["g"], name="plain"),
        helper.make_node("Gemm", ["g", "w", "c"], ["h"], name="turned", transB=1),
        helper.make_node("Gemm", ["h", "w"], ["i"], name="kept", transB=1),
        helper.make_node("Mul", ["i", "w"], ["y"], name="gate"),
    ]
    return _model("tied", nodes, constants, (8, 8), (8, 8), 17)


def lookup() -> onnx.ModelProto:
    """A table whose rows integers select, five rows further than they say, which is further than there are rows."""
    nodes = [
        helper.make_node("Add", ["x", "five"], ["further"], name="further"),
        helper.make_node("Gather", ["table", "further"], ["row"], name="row"),
        helper.make_node("MatMul", ["row", "w"], ["y"], name="product"),
    ]
    constants = [numpy_helper.from_array(np.array(5, np.int64), "five")]
    constants += [numpy_helper.from_array(np.ones((4, 4), np.float32), name) for name in ("table", "w")]
    graph = helper.make_graph(
        nodes,
        "lookup",
        [helper.make_tensor_value_info("x", TensorProto.INT64, (2,))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, 4))],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _model(
    name: str, nodes: list[onnx.NodeProto], constants: list[TensorProto], inputs: tuple[int, ...],
    outputs: tuple[int, ...], opset: int,
) -> onnx.ModelProto:  # fmt: skip
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, inputs)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, outputs)],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
