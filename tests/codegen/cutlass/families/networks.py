"""Small ONNX networks written in a few lines, and their judgement on a GPU's executor.

net = Network([("x", (2, 3, 9, 9))]);  y = net.conv("x", 16, 3, pads=1);  net.add("Relu", y);  judged(net.model(), ...)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.verification.verdict import VerifyReport
from dsa_sched.verification.verify import VerifyOptions, verify_model
from partitioner.planners.levels import planner_or_auto
from tests.small_models import save

__all__ = ["Network", "judged"]


class Network:
    """A graph in the making: each call adds a node and gives the name of its result."""

    def __init__(self, inputs: list[tuple[str, tuple[int, ...]]], seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        self.inputs = inputs
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[TensorProto] = []
        self.channels = {name: shape[1] for name, shape in inputs}

    def constant(self, array: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array, np.float32), name))
        return name

    def constant_ints(self, values: list[int]) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values, np.int64), name))
        return name

    def drawn(self, *shape: int, scale: float = 1.0) -> str:
        return self.constant(self.random.standard_normal(shape) * scale)

    def add(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        name = f"{op_type.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, list(inputs), [f"{name}_out"], name=name, **attributes))
        self.channels[f"{name}_out"] = self.channels.get(inputs[0], 0)
        return f"{name}_out"

    def conv(self, x: str, filters: int, kernel: int | tuple[int, ...], *, bias: bool = True, **attributes: Any) -> str:
        """Weights such that results are about as large as the input's elements."""
        taps = (kernel, kernel) if isinstance(kernel, int) else kernel
        group = int(attributes.get("group", 1))
        each = self.channels[x] // group
        weights = self.drawn(filters, each, *taps, scale=float(each * np.prod(taps)) ** -0.5)
        extra = (self.drawn(filters),) if bias else ()
        y = self.add("Conv", x, weights, *extra, **attributes)
        self.channels[y] = filters
        return y

    def relu6(self, x: str) -> str:
        return self.add("Clip", x, self.constant(0), self.constant(6))

    def model(self, *outputs: str) -> onnx.ModelProto:
        """The outputs, or else the last result; shapes are inferred."""
        names = outputs or (self.nodes[-1].output[0],)
        graph = helper.make_graph(
            self.nodes,
            "network",
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in self.inputs],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names],
            self.constants,
        )
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
        return onnx.shape_inference.infer_shapes(made, strict_mode=True)


def judged(
    model: onnx.ModelProto, folder: Path, chip: str = "a100", level: str = "O0", samples: int = 512
) -> VerifyReport:
    """Compiled, executed and compared with onnxruntime; every layer is judged by the target's bound."""
    return verify_model(
        save(model, folder / "net.onnx"), chip, CompileOptions(planner_or_auto(level)), VerifyOptions(samples=samples)
    )
