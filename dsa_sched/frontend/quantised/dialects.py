"""Operators on quantised operands, as ONNX and onnxruntime have them, spelled out: dequantise, compute, quantise.

    QLinearConv(x, xs, xz, w, ws, wz, ys, yz, b)  -->  DQ(x), DQ(w), DQ(b) -> Conv -> Q(y)
    com.microsoft: QLinearAdd(a, as, az, b, bs, bz, ys, yz)  -->  DQ(a), DQ(b) -> Add -> Q(y)

Both are the same by the definitions of these operators; everything after reads one spelling. What quantises with scales
that it computes (DynamicQuantizeLinear) quantises only for the runtime's sake: it is left out, and the product of its
integers becomes one of its numbers with dequantised weights, which is nearer to the network that was quantised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from dsa_sched.frontend.network.network import opset_of, replace_nodes

Attributes = dict[str, Any]

MICROSOFT = "com.microsoft"
ALONG_AXES = 13
"""First operator set whose DequantizeLinear has scales along an axis."""


@dataclass
class _Spelling:
    """The nodes that replace one; new names begin with the node's."""

    model: onnx.ModelProto
    node: onnx.NodeProto
    constants: Mapping[str, onnx.TensorProto]
    taken: set[str]
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    stored: list[onnx.TensorProto] = field(default_factory=list)

    def fresh(self, suffix: str) -> str:
        name, count = f"{self.node.name}_{suffix}", 1
        while name in self.taken:
            count += 1
            name = f"{self.node.name}_{suffix}{count}"
        self.taken.add(name)
        return name

    def input(self, position: int) -> str:
        return self.node.input[position] if position < len(self.node.input) else ""

    def attributes(self, *dropped: str) -> Attributes:
        return {a.name: helper.get_attribute_value(a) for a in self.node.attribute if a.name not in dropped}

    def array(self, name: str) -> npt.NDArray[np.generic] | None:
        return numpy_helper.to_array(self.constants[name]) if name in self.constants else None

    def constant(self, array: npt.NDArray[np.generic], suffix: str) -> str:
        name = self.fresh(suffix)
        self.stored.append(numpy_helper.from_array(array, name))
        return name

    def add(self, op_type: str, inputs: Sequence[str], attributes: Attributes | None = None, output: str = "") -> str:
        output = output or self.fresh(op_type.lower())
        name = self.node.name if op_type not in ("DequantizeLinear", "QuantizeLinear") else self.fresh("node")
        self.nodes.append(helper.make_node(op_type, list(inputs), [output], name=name, **(attributes or {})))
        return output

    def numbers(self, position: int, axis: int | None = None) -> str:
        """The dequantised operand of three inputs from a position on: integers, scale and zero point."""
        x, scale, zero = (self.input(position + offset) for offset in range(3))
        held = self.constants.get(scale)
        along = {"axis": axis} if axis is not None and held is not None and int(np.prod(held.dims)) > 1 else {}
        return self.add("DequantizeLinear", [x, scale, *([zero] if zero else [])], along)

    def quantised(self, x: str, position: int) -> None:
        """The result, with scale and zero point from a position on."""
        grid = [name for name in (self.input(position), self.input(position + 1)) if name]
        self.add("QuantizeLinear", [x, *grid], output=self.node.output[0])

    def bias(self, name: str, *scales: str) -> str | None:
        """int32 sums that are added, in the product of the operands' scales; None where these are computed."""
        arrays = [self.array(scale) for scale in scales]
        if any(array is None for array in arrays):
            return None
        vectors = [array.reshape(-1).astype(np.float64) for array in arrays if array is not None]
        scale = np.prod(np.broadcast_arrays(*vectors), axis=0)
        scale = scale.astype(np.float32)
        stored = self.constant(scale if scale.size > 1 else scale.reshape(()), "bias_scale")
        return self.add("DequantizeLinear", [name, stored], {"axis": 0} if scale.size > 1 else {})


def _conv(s: _Spelling) -> bool:
    operands = [s.numbers(0), s.numbers(3, axis=0)]
    if s.input(8):
        bias = s.bias(s.input(8), s.input(1), s.input(4))
        if bias is None:
            return False
        operands.append(bias)
    s.quantised(s.add("Conv", operands, s.attributes()), 6)
    return True


def _matmul(s: _Spelling) -> bool:
    s.quantised(s.add("MatMul", [s.numbers(0), s.numbers(3, axis=-1)]), 6)
    return True


def _gemm(s: _Spelling) -> bool:
    across = bool(s.attributes().get("transB", 0))
    operands = [s.numbers(0), s.numbers(3, axis=0 if across else 1)]
    if s.input(6):
        bias = s.bias(s.input(6), s.input(1), s.input(4))
        if bias is None or s.attributes().get("alpha", 1.0) != 1.0:
            return False
        operands.append(bias)
    if s.input(7):
        s.quantised(s.add("Gemm", operands, s.attributes()), 7)
    else:
        s.add("Gemm", operands, s.attributes(), s.node.output[0])
    return True


def _pair(op_type: str) -> Callable[[_Spelling], bool]:
    def rule(s: _Spelling) -> bool:
        s.quantised(s.add(op_type, [s.numbers(0), s.numbers(3)]), 6)
        return True

    return rule


def _single(op_type: str, *dropped: str) -> Callable[[_Spelling], bool]:
    def rule(s: _Spelling) -> bool:
        if s.attributes().get("channels_last", 0):
            return False
        s.quantised(s.add(op_type, [s.numbers(0)], s.attributes("channels_last", *dropped)), 3)
        return True

    return rule


def _concat(s: _Spelling) -> bool:
    operands = [s.numbers(position) for position in range(2, len(s.node.input), 3)]
    s.quantised(s.add("Concat", operands, s.attributes()), 0)
    return True


def _softmax(s: _Spelling) -> bool:
    if s.attributes().get("opset", 13) < ALONG_AXES:
        return False
    s.quantised(s.add("Softmax", [s.numbers(0)], s.attributes("opset")), 3)
    return True


def _reduce_mean(s: _Spelling) -> bool:
    x, attributes = s.numbers(0), s.attributes("axes")
    axes = s.attributes().get("axes")
    if opset_of(s.model) < 18:
        result = s.add("ReduceMean", [x], s.attributes())
    else:
        listed = [s.constant(np.array(axes, np.int64), "axes")] if axes is not None else []
        result = s.add("ReduceMean", [x, *listed], attributes)
    s.quantised(result, 3)
    return True


def _plain(op_type: str) -> Callable[[_Spelling], bool]:
    """onnxruntime's own operator of the name and meaning of a standard one."""

    def rule(s: _Spelling) -> bool:
        s.add(op_type, s.node.input, s.attributes(), s.node.output[0])
        return True

    return rule


STANDARD: Mapping[str, Callable[[_Spelling], bool]] = {"QLinearConv": _conv, "QLinearMatMul": _matmul}
"""Operators of standard ONNX, and what writes them."""

OF_ONNXRUNTIME: Mapping[str, Callable[[_Spelling], bool]] = {
    "QGemm": _gemm,
    "QLinearAdd": _pair("Add"),
    "QLinearMul": _pair("Mul"),
    "QLinearConcat": _concat,
    "QLinearGlobalAveragePool": _single("GlobalAveragePool"),
    "QLinearAveragePool": _single("AveragePool"),
    "QLinearLeakyRelu": _single("LeakyRelu"),
    "QLinearSigmoid": _single("Sigmoid"),
    "QLinearSoftmax": _softmax,
    "QLinearReduceMean": _reduce_mean,
    "QuantizeLinear": _plain("QuantizeLinear"),
    "DequantizeLinear": _plain("DequantizeLinear"),
}
"""Operators of onnxruntime's domain."""


def spell_out_quantised(model: onnx.ModelProto) -> None:
    """Exchange the operators above in `model`, whose nodes have names, wherever their scales allow it."""
    without_dynamic_grids(model)
    rules = [_rule(node) for node in model.graph.node]
    if not any(rules):
        return
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    constants |= {node.output[0]: a.t for node in model.graph.node if node.op_type == "Constant"
                  for a in node.attribute if a.name == "value"}  # fmt: skip
    taken = {node.name for node in model.graph.node} | {name for node in model.graph.node for name in node.output}
    taken |= {item.name for item in (*model.graph.input, *model.graph.initializer)}
    nodes: list[onnx.NodeProto] = []
    for node, rule in zip(model.graph.node, rules, strict=True):
        spelling = _Spelling(model, node, constants, taken)
        if rule is not None and _is_complete(node) and _sets_allow(model, node, constants) and rule(spelling):
            nodes += spelling.nodes
            model.graph.initializer.extend(spelling.stored)
        else:
            nodes.append(node)
    replace_nodes(model, nodes)
    _drop_unread_domain(model)


LEAST_INPUTS = {"QLinearConv": 8, "QLinearMatMul": 8, "QGemm": 6, "QLinearAdd": 7, "QLinearMul": 7, "QLinearConcat": 5,
                "QuantizeLinear": 2, "DequantizeLinear": 2}  # fmt: skip
"""Operands that an operator cannot do without; the others need four."""


def _is_complete(node: onnx.NodeProto) -> bool:
    """Whether a node has a result and the operands that it needs; others are left to be refused."""
    return bool(node.output and node.output[0]) and len(node.input) >= LEAST_INPUTS.get(node.op_type, 4)


def _rule(node: onnx.NodeProto) -> Callable[[_Spelling], bool] | None:
    if node.domain == MICROSOFT:
        return OF_ONNXRUNTIME.get(node.op_type)
    return STANDARD.get(node.op_type) if node.domain in ("", "ai.onnx") else None


def _sets_allow(model: onnx.ModelProto, node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> bool:
    """Whether the model's operator set has what the spelling needs: scales along an axis came late."""
    along = any(len(constants[name].dims) == 1 and constants[name].dims[0] > 1 for name in node.input
                if name in constants and constants[name].data_type == onnx.TensorProto.FLOAT)  # fmt: skip
    return opset_of(model) >= (ALONG_AXES if along else 10)


def _drop_unread_domain(model: onnx.ModelProto) -> None:
    """A model without operators of onnxruntime's does not import their domain."""
    if all(node.domain != MICROSOFT for node in model.graph.node):
        kept = [item for item in model.opset_import if item.domain != MICROSOFT]
        imports = [helper.make_opsetid(item.domain, item.version) for item in kept]
        del model.opset_import[:]
        model.opset_import.extend(imports)


def without_dynamic_grids(model: onnx.ModelProto) -> None:
    """Products of integers that were quantised by computed scales, as products of the numbers.

    DynamicQuantizeLinear(x) -> MatMulInteger, ConvInteger -> Cast -> Mul(scales)  -->  MatMul, Conv of x and DQ(w)
    """
    nodes = list(model.graph.node)
    made = {name: node for node in nodes for name in node.output if name}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in nodes:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    constants = {tensor.name for tensor in model.graph.initializer}
    exchanged: dict[str, list[onnx.NodeProto]] = {}
    gone: set[str] = set()
    for node in nodes:
        found = _dynamic_product(node, made, readers, constants) if node.op_type in INTEGER_PRODUCTS else None
        if found is None:
            continue
        x, scale, cast, last = found
        weights = f"{node.name}_weights"
        grid = [node.input[1], scale, *([node.input[3]] if len(node.input) > 3 and node.input[3] else [])]
        axis: Attributes = {"axis": 0 if node.op_type == "ConvInteger" else 1} if _count(model, scale) > 1 else {}
        kept = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        exchanged[last.name] = [
            helper.make_node("DequantizeLinear", grid, [weights], name=f"{node.name}_dequantised", **axis),
            helper.make_node(INTEGER_PRODUCTS[node.op_type], [x, weights], [last.output[0]], name=node.name, **kept),
        ]
        gone |= {node.name, cast.name}
    if not exchanged:
        return
    result = [new for node in nodes if node.name not in gone for new in exchanged.get(node.name, [node])]
    replace_nodes(model, _read(result, model))


INTEGER_PRODUCTS = {"MatMulInteger": "MatMul", "ConvInteger": "Conv"}


def _dynamic_product(
    node: onnx.NodeProto,
    made: Mapping[str, onnx.NodeProto],
    readers: Mapping[str, list[onnx.NodeProto]],
    constants: set[str],
) -> tuple[str, str, onnx.NodeProto, onnx.NodeProto] | None:
    """(x, scale of the weights, the Cast, the Mul that ends it) of a product of dynamically quantised numbers."""
    if len(node.input) < 3 or not node.output:
        return None
    grid = made.get(node.input[0])
    if grid is None or grid.op_type != "DynamicQuantizeLinear" or node.input[1] not in constants:
        return None
    if len(grid.output) < 3 or not grid.input or node.input[2] != grid.output[2]:
        return None
    cast = _only_reader(node.output[0], readers, "Cast")
    last = _only_reader(cast.output[0], readers, "Mul") if cast is not None else None
    if cast is None or last is None:
        return None
    factor = made.get(next((name for name in last.input if name != cast.output[0]), ""))
    if factor is None or factor.op_type != "Mul" or grid.output[1] not in factor.input:
        return None
    scale = next((name for name in factor.input if name != grid.output[1]), "")
    return (grid.input[0], scale, cast, last) if scale in constants else None


def _only_reader(name: str, readers: Mapping[str, list[onnx.NodeProto]], op_type: str) -> onnx.NodeProto | None:
    found = readers.get(name, [])
    return found[0] if len(found) == 1 and found[0].op_type == op_type else None


def _count(model: onnx.ModelProto, name: str) -> int:
    return next((int(np.prod(t.dims)) for t in model.graph.initializer if t.name == name), 0)


def _read(nodes: Sequence[onnx.NodeProto], model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """The nodes whose results something reads."""
    needed, kept = {item.name for item in model.graph.output}, []
    for node in reversed(nodes):
        if needed.intersection(node.output):
            needed.update(node.input)
            kept.append(node)
    return kept[::-1]
