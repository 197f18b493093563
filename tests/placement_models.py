"""Small models for tests of placement on devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["draw", "model_of", "two_towers"]


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, ...]],
    outputs: Sequence[str],
    **constants: npt.ArrayLike,
) -> onnx.ModelProto:
    """Float inputs, outputs of unknown shape."""
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def draw(*shape: int) -> npt.NDArray[np.float32]:
    return (0.3 * np.random.default_rng(sum(shape)).standard_normal(shape)).astype(np.float32)


def two_towers() -> onnx.ModelProto:
    """A stem, two branches of two convolutions, and a head that adds them."""
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], "stem", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], "stem.relu"),
    ]
    for side in ("left", "right"):
        for number, (source, target) in enumerate((("b", f"{side}0"), (f"{side}0.relu", f"{side}1"))):
            names = [f"{side}{number}", f"{side}{number}.relu"]
            nodes.append(helper.make_node("Conv", [source, "w1"], [target], names[0], pads=[1, 1, 1, 1]))
            nodes.append(helper.make_node("Relu", [target], [f"{target}.relu"], names[1]))
    nodes.append(helper.make_node("Concat", ["left1.relu", "right1.relu"], ["c"], "join", axis=1))
    nodes.append(helper.make_node("Conv", ["c", "w2"], ["y"], "head"))
    constants: dict[str, npt.ArrayLike] = {"w0": draw(8, 3, 3, 3), "w1": draw(8, 8, 3, 3), "w2": draw(4, 16, 1, 1)}
    return model_of(nodes, {"x": (1, 3, 12, 12)}, ["y"], **constants)
