"""Small ONNX files for tests of the whole way: written here, so that no test needs a network or another folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["classifier", "one_node", "save"]


def classifier(batch: int | str = 1) -> onnx.ModelProto:
    """Two convolutions, a difference, pooling, a product and a softmax: most templates in a dozen milliseconds."""
    random = np.random.default_rng(0)

    def weights(name: str, *shape: int) -> TensorProto:
        spread = float(np.prod(shape[1:])) ** -0.5
        return numpy_helper.from_array(random.normal(0, spread, shape).astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], name="conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"], name="relu1"),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], name="conv2", pads=[1, 1, 1, 1]),
        helper.make_node("Sub", ["c2", "r1"], ["s"], name="sub"),
        helper.make_node("MaxPool", ["s"], ["p"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["p"], ["g"], name="mean"),
        helper.make_node("Flatten", ["g"], ["f"], name="flatten"),
        helper.make_node("Gemm", ["f", "w3", "b3"], ["logits"], name="fc", transB=1),
        helper.make_node("Softmax", ["logits"], ["y"], name="softmax", axis=1),
    ]
    constants = [weights("w1", 8, 3, 3, 3), weights("w2", 8, 8, 3, 3), weights("w3", 10, 8)]
    constants += [weights("b1", 8), weights("b3", 10)]
    graph = helper.make_graph(
        nodes,
        "classifier",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, 12, 12])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 10])],
        constants,
    )
    return _model(graph)


def one_node(op_type: str, shape: tuple[int | str, ...] = (1, 3, 8, 8), domain: str = "") -> onnx.ModelProto:
    """x -> op -> y, of equal shapes; the operator need not exist."""
    graph = helper.make_graph(
        [helper.make_node(op_type, ["x"], ["y"], name=f"the_{op_type.lower()}", domain=domain)],
        "one_node",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
    )
    return _model(graph)


def save(model: onnx.ModelProto, path: Path) -> Path:
    path.write_bytes(model.SerializeToString())
    return path


def _model(graph: onnx.GraphProto) -> onnx.ModelProto:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
