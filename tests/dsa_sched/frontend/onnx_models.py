"""Small ONNX models for tests, built value by value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

Attribute = int | float | str | Sequence[int] | Sequence[float] | Sequence[str] | onnx.TensorProto


class ModelBuilder:
    """Every method returns the name of the value it made; `model()` closes the graph."""

    def __init__(self, seed: int = 0, opset: int = 18) -> None:
        self.random = np.random.default_rng(seed)
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.domains: set[str] = set()

    def input(self, *shape: int | str | None, name: str = "", dtype: int = TensorProto.FLOAT) -> str:
        name = name or f"x{len(self.inputs)}"
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def constant(self, array: npt.ArrayLike, name: str = "", dtype: type[np.generic] = np.float32) -> str:
        name = name or f"c{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.asarray(array, dtype), name))
        return name

    def integers(self, *values: int) -> str:
        return self.constant(values, dtype=np.int64)

    def weights(self, *shape: int, scale: float = 0.5) -> str:
        return self.constant(self.random.standard_normal(shape) * scale)

    def node(
        self,
        op_type: str,
        *inputs: str,
        name: str | None = None,
        outputs: Sequence[str] = (),
        domain: str = "",
        attributes: Mapping[str, Attribute] | None = None,
        **more: Attribute,
    ) -> str:
        """The first output's name."""
        outputs = list(outputs) or [f"v{len(self.nodes)}"]
        self.domains.add(domain)
        title = f"{op_type.lower()}{len(self.nodes)}" if name is None else name
        node = helper.make_node(op_type, inputs, outputs, name=title, domain=domain)
        node.attribute.extend(
            helper.make_attribute(key, value) for key, value in {**(attributes or {}), **more}.items()
        )
        self.nodes.append(node)
        return outputs[0]

    def model(self, *outputs: str, dtype: int = TensorProto.FLOAT) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "small",
            self.inputs,
            [helper.make_tensor_value_info(name, dtype, None) for name in outputs],
            self.initializers,
        )
        opsets = [helper.make_opsetid(domain, 1 if domain else self.opset) for domain in sorted(self.domains | {""})]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)

    def save(self, folder: Path, *outputs: str) -> Path:
        path = folder / "small.onnx"
        path.write_bytes(self.model(*outputs).SerializeToString())
        return path
