"""A network that the test trains on handwritten digits: in floating point, by exact integers, and on the chip."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits  # type: ignore[import-untyped]
from sklearn.neural_network import MLPClassifier  # type: ignore[import-untyped]

import dsa_sched
from dsa_sched.verification.onnx_reference import OnnxReference

TRAINED, CALIBRATED = 900, 100
MOST_LOST_BY_INT8, MOST_LOST_BY_THE_CHIP = 0.01, 0.003


@pytest.mark.commit
def test_digits_are_read_in_int8_as_in_float(tmp_path: Path) -> None:
    images, labels = load_digits(return_X_y=True)
    x = (images / 16.0).astype(np.float32)
    trained = MLPClassifier((48, 32), max_iter=400, random_state=0, tol=1e-3).fit(x[:TRAINED], labels[:TRAINED])
    rest, right = x[TRAINED:], labels[TRAINED:]
    rest, right = rest[: len(rest) // 2 * 2], right[: len(rest) // 2 * 2]
    plain = tmp_path / "digits.onnx"
    onnx.save(network_of(trained, len(rest)), plain)
    calibration = np.resize(x[:CALIBRATED], rest.shape)
    np.savez(tmp_path / "calibration.npz", x=calibration)
    quantised = dsa_sched.quantize(plain, calibrate=tmp_path / "calibration.npz")
    small = tmp_path / "small.onnx"
    quantised.save(small)
    on_chip = dsa_sched.compile(small, chip="stcp920", level="O3").run({"x": rest})["y"]
    exact = OnnxReference(onnx.load(small)).values({"x": rest})["y"]
    in_float = OnnxReference(onnx.load(plain)).values({"x": rest})["y"]
    accuracies = [float(np.mean(np.argmax(scores, 1) == right)) for scores in (in_float, exact, on_chip)]
    assert accuracies[0] > 0.9
    assert accuracies[0] - accuracies[2] <= MOST_LOST_BY_INT8
    assert abs(accuracies[1] - accuracies[2]) <= MOST_LOST_BY_THE_CHIP


def network_of(trained: MLPClassifier, images: int) -> onnx.ModelProto:
    """The trained layers as Gemm and Relu."""
    nodes, stored, name = [], [], "x"
    layers = list(zip(trained.coefs_, trained.intercepts_, strict=True))
    for number, (weights, bias) in enumerate(layers):
        stored += [numpy_helper.from_array(weights.astype(np.float32), f"w{number}")]
        stored += [numpy_helper.from_array(bias.astype(np.float32), f"b{number}")]
        last = number == len(layers) - 1
        made = "y" if last else f"sum{number}"
        nodes.append(helper.make_node("Gemm", [name, f"w{number}", f"b{number}"], [made], name=f"layer{number}"))
        if not last:
            name = f"relu{number}"
            nodes.append(helper.make_node("Relu", [made], [name], name=name))
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (images, 64)),
            helper.make_tensor_value_info("y", TensorProto.FLOAT, (images, 10))]  # fmt: skip
    graph = helper.make_graph(nodes, "digits", ends[:1], ends[1:], stored)
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model
