"""Compile a network for a GPU and run its kernels without one: what is launched, and how far the result is off.

python samples/04_gpu.py
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import dsa_sched


def network() -> bytes:
    """A convolution with a ReLU, a pool, a product and a softmax: an ONNX model as bytes."""
    random = np.random.default_rng(0)
    weights = {"w": random.normal(0, 0.1, (32, 16, 3, 3)), "m": random.normal(0, 0.2, (32, 10))}
    nodes = [
        helper.make_node("Conv", ["image", "w"], ["features"], name="conv", pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["features"], ["active"], name="relu"),
        helper.make_node("GlobalAveragePool", ["active"], ["mean"], name="pool"),
        helper.make_node("Flatten", ["mean"], ["flat"], name="flatten"),
        helper.make_node("MatMul", ["flat", "m"], ["scores"], name="classify"),
        helper.make_node("Softmax", ["scores"], ["classes"], name="softmax"),
    ]
    graph = helper.make_graph(
        nodes,
        "sample",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [2, 16, 28, 28])],
        [helper.make_tensor_value_info("classes", TensorProto.FLOAT, [2, 10])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def main() -> None:
    model = network()
    image = np.random.default_rng(1).normal(size=(2, 16, 28, 28)).astype(np.float32)
    with TemporaryDirectory() as folder:
        file = Path(folder, "sample.onnx")
        file.write_bytes(model)
        dsa_sched.compile(file, chip="a100").save(Path(folder, "sample.out"))
        listed = json.loads(Path(folder, "sample.out", "cluster0", "launches.json").read_text())
        ours = dsa_sched.load(Path(folder, "sample.out")).run({"image": image})["classes"]
    for launch in listed["launches"]:
        print(f"{launch['layer']:10} {launch['kernel']:28} {launch['grid']} blocks of {launch['block']} threads")
    reference = np.asarray(onnxruntime.InferenceSession(model).run(["classes"], {"image": image})[0])
    error = np.linalg.norm(ours - reference) / np.linalg.norm(reference)
    print(f"relative error against onnxruntime: {error:.1e}")


if __name__ == "__main__":
    main()
