"""Write the network of the tutorial: two convolutions and a residual addition, a pool, a classifier.

python samples/tutorial/network.py [FILE]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

SIDE, CHANNELS, CLASSES = 32, 32, 10


def network() -> bytes:
    """An ONNX model as bytes; its weights are drawn from a seed."""
    rng = np.random.default_rng(0)
    drawn = {
        "w0": rng.normal(0, 0.2, (CHANNELS, 3, 3, 3)),
        "w1": rng.normal(0, 0.08, (CHANNELS, CHANNELS, 3, 3)),
        "w2": rng.normal(0, 0.08, (CHANNELS, CHANNELS, 3, 3)),
        "w3": rng.normal(0, 0.2, (CHANNELS, CLASSES)),
    }
    nodes = [
        helper.make_node("Conv", ["image", "w0"], ["c0"], name="stem", pads=[1] * 4),
        helper.make_node("Relu", ["c0"], ["r0"], name="stem_relu"),
        helper.make_node("Conv", ["r0", "w1"], ["c1"], name="conv1", pads=[1] * 4),
        helper.make_node("Relu", ["c1"], ["r1"], name="relu1"),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], name="conv2", pads=[1] * 4),
        helper.make_node("Add", ["c2", "r0"], ["sum"], name="add"),
        helper.make_node("Relu", ["sum"], ["r2"], name="relu2"),
        helper.make_node("GlobalAveragePool", ["r2"], ["mean"], name="pool"),
        helper.make_node("Flatten", ["mean"], ["flat"], name="flatten"),
        helper.make_node("MatMul", ["flat", "w3"], ["scores"], name="classify"),
    ]
    graph = helper.make_graph(
        nodes,
        "tutorial",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, SIDE, SIDE])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, CLASSES])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in drawn.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


if __name__ == "__main__":
    Path(*(sys.argv[1:2] or ["blocks.onnx"])).write_bytes(network())
