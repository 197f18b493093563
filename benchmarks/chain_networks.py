"""Networks of any length, for growth of compile time: chains of convolutions, plain and with shortcuts.

number of operators  -->  ONNX model; values of one shape, weights shared (their content does not change a plan)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["CHAINS", "chain", "residual_chain"]

OPSET = 18
BLOCK = ("Conv", "Relu", "Conv", "Add", "Relu")


def chain(operators: int, shape: tuple[int, int, int, int]) -> onnx.ModelProto:
    """Convolution, ReLU, convolution, ReLU, ...; `shape` is [N, C, H, W] of every value."""
    return _model("chain", shape, ["Relu" if number % 2 else "Conv" for number in range(operators)])


def residual_chain(operators: int, shape: tuple[int, int, int, int]) -> onnx.ModelProto:
    """Blocks of convolution, ReLU, convolution, addition, ReLU; the last block may be cut off."""
    return _model("residual chain", shape, [BLOCK[number % len(BLOCK)] for number in range(operators)])


def _model(name: str, shape: tuple[int, int, int, int], operators: list[str]) -> onnx.ModelProto:
    """One operator after the other; an addition reads the value that the block before left, too."""
    channels = shape[1]
    random = np.random.default_rng(0)
    weights = random.normal(0, (9 * channels) ** -0.5, (channels, channels, 3, 3)).astype(np.float32)
    value = shortcut = "x"
    nodes = []
    for number, operator in enumerate(operators):
        output = f"v{number}"
        reads = {"Conv": [value, "w"], "Add": [value, shortcut]}.get(operator, [value])
        settings: dict[str, Any] = {"pads": [1] * 4} if operator == "Conv" else {}
        nodes.append(helper.make_node(operator, reads, [output], name=f"n{number}", **settings))
        value = output
        if (number + 1) % len(BLOCK) == 0:
            shortcut = value
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)


CHAINS: Mapping[str, Callable[[int, tuple[int, int, int, int]], onnx.ModelProto]] = MappingProxyType(
    {"chain": chain, "residual chain": residual_chain}
)
