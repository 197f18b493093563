"""Exact arithmetic of quantised networks for the reference: what quantises reads numbers of float64, ties go to even.

    DQ(x), DQ(w), DQ(b) -> Conv -> Relu -> Q(y)    next to it, in float64:
    x - zero, w - zero -> Conv -> * scales -> + bias -> Relu -> / scale -> Round -> + zero -> Clip   in place of Q

Runtimes fuse quantised operators, each in its own way, and add scaled numbers of float32: results near the middle of
two integers go either way. Here sums of integers are added as integers: float32 holds them up to 2^24, and a sum beyond
that is off by one in its last bits. All that follows, up to the next integers, is in float64 as far as onnxruntime has
the operator in it; other operators are computed in float32, and their results quantised in float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from dsa_sched.frontend.network.network import opset_of, replace_nodes
from dsa_sched.frontend.quantised.grids import GRID_TYPES
from partitioner.ir.operators import Trait, onnx_names

Array = npt.NDArray[np.generic]
Floats = npt.NDArray[np.float64]

KEPT_WIDE = onnx_names(Trait.VIEW, Trait.MOVES) | {"Relu", "Add", "Sub", "Mul"}
"""Operators that onnxruntime has in float64, if all that they read is: their result is, too."""


def with_exact_integers(source: onnx.ModelProto) -> onnx.ModelProto:
    """A model whose integers are exact, with all values of `source` by their names; itself where nothing quantises."""
    if not any(node.op_type == "QuantizeLinear" for node in source.graph.node):
        return source
    model = onnx.ModelProto()
    model.CopyFrom(source)
    nodes = _Exact(source).nodes()
    replace_nodes(model, nodes[0])
    model.graph.initializer.extend(nodes[1])
    return model


class _Exact:
    def __init__(self, source: onnx.ModelProto) -> None:
        self.graph = source.graph
        self.opset = opset_of(source)
        self.constants: dict[str, Array] = {t.name: numpy_helper.to_array(t) for t in self.graph.initializer}
        self.types = {
            item.name: item.type.tensor_type.elem_type for item in (*self.graph.input, *self.graph.value_info)
        }
        self.made = {name: node for node in self.graph.node for name in node.output}
        self.wide: dict[str, str] = {}
        """Value of the file -> the same in float64."""
        self.written: list[onnx.NodeProto] = []
        self.stored: list[onnx.TensorProto] = []

    def nodes(self) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
        for node in self.graph.node:
            if node.op_type == "Constant":
                for attribute in node.attribute:
                    if attribute.name == "value":
                        self.constants[node.output[0]] = numpy_helper.to_array(attribute.t)
            if node.op_type == "QuantizeLinear" and self.quantise(node):
                continue
            if node.op_type == "DequantizeLinear" and self.dequantise(node):
                continue
            self.written.append(node)
            if node.op_type in ("Conv", "Gemm", "MatMul"):
                self.product(node)
            elif node.op_type in KEPT_WIDE:
                self.keep(node)
            elif node.op_type == "Clip" and node.input[0] in self.wide:
                self.clip(node)
        return self.written, self.stored

    # Writing

    def op(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        name = f"exact::{len(self.written)}"
        self.written.append(helper.make_node(op_type, list(inputs), [name], name=name, **attributes))
        return name

    def constant(self, array: Array, dtype: str = "float64") -> str:
        name = f"exact::constant{len(self.stored)}"
        self.stored.append(numpy_helper.from_array(np.asarray(array).astype(dtype), name))
        return name

    # Reading

    def grid(self, node: onnx.NodeProto, rank: int) -> tuple[Floats, Floats] | None:
        """Scale and zero point of a node as they broadcast to a value of this rank; None where they are computed."""
        scale = self.constants.get(node.input[1])
        zero = self.constants.get(node.input[2]) if len(node.input) > 2 and node.input[2] else np.zeros(1)
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if scale is None or zero is None or attributes.get("block_size", 0):
            return None
        if scale.size == 1:
            return scale.astype(np.float64).reshape(()), zero.astype(np.float64).reshape(-1)[0].reshape(())
        shape = [1] * rank
        shape[attributes.get("axis", 1)] = -1
        zeros = np.broadcast_to(zero.astype(np.float64).reshape(-1), scale.shape)
        return scale.astype(np.float64).reshape(shape), zeros.reshape(shape)

    def uniform(self, name: str) -> tuple[onnx.NodeProto, Floats, Floats] | None:
        """The node that dequantises a value by one scale, with scale and zero point."""
        node = self.made.get(name)
        if (
            node is None
            or node.op_type != "DequantizeLinear"
            or self.constants.get(node.input[1], np.zeros(2)).size != 1
        ):
            return None
        found = self.grid(node, 0)
        return None if found is None else (node, *found)

    # Nodes

    def quantise(self, node: onnx.NodeProto) -> bool:
        scale = self.constants.get(node.input[1])
        said = {a.name: int(a.i) for a in node.attribute}.get("output_dtype", 0)
        zero: Array | None = np.zeros(1, helper.tensor_dtype_to_np_dtype(said or TensorProto.UINT8))
        if len(node.input) > 2 and node.input[2]:
            zero = self.constants.get(node.input[2])
        if scale is None or zero is None or scale.size != 1 or zero.size != 1 or self.opset < 12:
            return False
        kind = int(helper.np_dtype_to_tensor_dtype(zero.dtype))
        if kind not in GRID_TYPES:
            return False
        x = self.wide.get(node.input[0]) or self.op("Cast", node.input[0], to=TensorProto.DOUBLE)
        low, high = (self.constant(np.array(bound)) for bound in GRID_TYPES[kind])
        rounded = self.op("Round", self.op("Div", x, self.constant(scale.reshape(()))))
        shifted = self.op("Add", rounded, self.constant(zero.reshape(())))
        held = self.op("Clip", shifted, low, high)
        self.written.append(helper.make_node("Cast", [held], [node.output[0]], name=node.name, to=kind))
        return True

    def dequantise(self, node: onnx.NodeProto) -> bool:
        """Both nodes are exchanged: an optimiser that finds one of them alone would write the other by itself."""
        found = self.uniform(node.output[0])
        if node.input[0] in self.constants or found is None:
            return False
        _, scale, zero = found
        integers = self.op("Cast", node.input[0], to=TensorProto.DOUBLE)
        less = self.op("Sub", integers, self.constant(zero))
        wide = self.wide[node.output[0]] = self.op("Mul", less, self.constant(scale))
        self.written.append(helper.make_node("Cast", [wide], [node.output[0]], name=node.name, to=TensorProto.FLOAT))
        return True

    def integers(self, name: str) -> tuple[str, Floats] | None:
        """A factor less its zero point in float32, and its scale, one or one per output channel."""
        node = self.made.get(name)
        if node is not None and node.op_type == "Transpose":
            return self.turned(node)
        if node is None or node.op_type != "DequantizeLinear":
            return None
        if node.input[0] in self.constants:
            array = self.constants[node.input[0]]
            found = self.grid(node, array.ndim)
            if found is None or array.dtype.itemsize != 1:
                return None
            scale, zero = found
            return self.constant(array.astype(np.float64) - zero, "float32"), scale
        uniform = self.uniform(name)
        if uniform is None:
            return None
        _, scale, zero = uniform
        read = self.op("Cast", node.input[0], to=TensorProto.FLOAT)
        return self.op("Sub", read, self.constant(zero, "float32")), scale

    def turned(self, node: onnx.NodeProto) -> tuple[str, Floats] | None:
        """Constant integers of a matrix after a Transpose; None for values, and for more axes."""
        made = self.made.get(node.input[0])
        integers = None if made is None else self.constants.get(made.input[0])
        if made is None or made.op_type != "DequantizeLinear" or integers is None or integers.ndim != 2:
            return None
        found, order = self.integers(node.input[0]), helper.get_node_attr_value(node, "perm") if node.attribute else ()
        return None if found is None or [*order] == [0, 1] else (self.op("Transpose", found[0]), found[1].T)

    def product(self, node: onnx.NodeProto) -> None:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if attributes.get("alpha", 1.0) != 1.0 or attributes.get("beta", 1.0) != 1.0:
            return
        factors = [self.integers(name) for name in node.input[:2]]
        if None in [factor and factor[0] for factor in factors]:
            return
        (x, by_x), (w, by_w) = (factor for factor in factors if factor is not None)
        of_outputs = 0 if node.op_type == "Conv" or attributes.get("transB", 0) else -1
        if by_x.size > 1 or (by_w.size > 1 and by_w.shape[of_outputs] != by_w.size):
            return  # scales along what is summed up
        scales = by_x.reshape(-1) * by_w.reshape(-1)
        inner = self.constants[self.made[node.input[1]].input[0]].ndim - 2 if node.op_type == "Conv" else 0
        along = (-1, *(1,) * inner) if scales.size > 1 else ()
        total = self.op("Cast", self.op(node.op_type, x, w, **attributes), to=TensorProto.DOUBLE)
        scaled = self.op("Mul", total, self.constant(scales.reshape(along)))
        if len(node.input) > 2 and node.input[2]:
            bias = self.numbers(node.input[2])
            if bias is None:
                return
            scaled = self.op("Add", scaled, self.constant(bias.reshape(-1, *(1,) * inner)))
        self.wide[node.output[0]] = scaled

    def numbers(self, name: str) -> Floats | None:
        """A constant as its file says it, in float64, which holds what overflows in float32; None for other values."""
        node, array = self.made.get(name), self.constants.get(name)
        if array is not None:
            return array.astype(np.float64) if array.dtype.kind == "f" else None
        if node is None or node.op_type != "DequantizeLinear" or node.input[0] not in self.constants:
            return None
        integers = self.constants[node.input[0]]
        found = self.grid(node, integers.ndim)
        return None if found is None else (integers.astype(np.float64) - found[1]) * found[0]

    def keep(self, node: onnx.NodeProto) -> None:
        operands = node.input if node.op_type in ("Add", "Sub", "Mul") else node.input[:1]
        if not any(name in self.wide for name in operands):
            return
        constants = {name: self.numbers(name) for name in operands if name not in self.wide}
        if any(array is None for array in constants.values()):
            return
        wide = self.wide | {name: self.constant(array) for name, array in constants.items() if array is not None}
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        self.wide[node.output[0]] = self.op(node.op_type, *(wide.get(name, name) for name in node.input), **attributes)

    def clip(self, node: onnx.NodeProto) -> None:
        bounds = [self.constants.get(name) for name in node.input[1:] if name]
        if self.opset < 12 or any(bound is None for bound in bounds):
            return
        names = [self.constant(self.constants[name].reshape(())) if name else "" for name in node.input[1:]]
        self.wide[node.output[0]] = self.op("Clip", self.wide[node.input[0]], *names)
