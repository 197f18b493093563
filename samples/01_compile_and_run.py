"""Compile a small network of your own, run its machine code on the simulator, compare with onnxruntime.

python samples/01_compile_and_run.py
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import dsa_sched


def network() -> bytes:
    """conv 3x3 -> relu -> global average pool: an ONNX model as bytes."""
    weights = np.random.default_rng(0).normal(0, 0.1, (32, 16, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["image", "w"], ["features"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["features"], ["active"], name="relu"),
        helper.make_node("GlobalAveragePool", ["active"], ["mean"], name="pool"),
    ]
    graph = helper.make_graph(
        nodes,
        "sample",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 16, 28, 28])],
        [helper.make_tensor_value_info("mean", TensorProto.FLOAT, [1, 32, 1, 1])],
        [numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def main() -> None:
    model = network()
    image = np.random.default_rng(1).normal(size=(1, 16, 28, 28)).astype(np.float32)
    with TemporaryDirectory() as folder:
        file = Path(folder, "sample.onnx")
        file.write_bytes(model)
        dsa_sched.compile(file, chip="stcp920").save(Path(folder, "sample.out"))
        ours = dsa_sched.load(Path(folder, "sample.out")).run({"image": image})["mean"]
    reference = np.asarray(onnxruntime.InferenceSession(model).run(["mean"], {"image": image})[0])
    error = np.linalg.norm(ours - reference) / np.linalg.norm(reference)
    print(f"relative error against onnxruntime: {error:.1e}")


if __name__ == "__main__":
    main()
