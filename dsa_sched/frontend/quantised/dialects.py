"""Operators on quantised operands, as ONNX and onnxruntime have them, spelled out: dequantise, compute, quantise.

    QLinearConv(x, xs, xz, w, ws, wz, ys, yz, b)  -->  DQ(x), DQ(w), DQ(b) -> Conv -> Q(y)
    com.microsoft: QLinearAdd(a, as, az, b, bs, bz, ys, yz)  -->  DQ(a), DQ(b) -> Add -> Q(y)

Both are the same by the definitions of these operators; everything after reads one spelling. What quantises with scales
that it computes (DynamicQuantizeLinear) quantises only for the runtime's sake: it is left out, and the product of its
integers becomes one of its numbers with dequantised weights, which is nearer to the network that was quantised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
from onnx import helper

from dsa_sched.frontend.network.network import opset_of, replace_nodes
from dsa_sched.frontend.network.spelling import MICROSOFT, Attributes, Rules, Spelled, Spelling

ALONG_AXES = 13
"""First operator set whose DequantizeLinear has scales along an axis."""


def _numbers(s: Spelling, position: int, axis: int | None = None) -> str:
    """The dequantised operand of three inputs from a position on: integers, scale and zero point."""
    x, scale, zero = (s.input(position + offset) for offset in range(3))
    held = s.constants.get(scale)
    along = {"axis": axis} if axis is not None and held is not None and int(np.prod(held.dims)) > 1 else {}
    return s.add("DequantizeLinear", [x, scale, *([zero] if zero else [])], along)


def _quantise(s: Spelling, x: str, position: int) -> None:
    """The result, with scale and zero point from a position on."""
    grid = [name for name in (s.input(position), s.input(position + 1)) if name]
    s.add("QuantizeLinear", [x, *grid], output=s.node.output[0])


def _bias(s: Spelling, name: str, *scales: str) -> str | None:
    """int32 sums that are added, in the product of the operands' scales; None where these are computed."""
    arrays = [s.array(scale) for scale in scales]
    if any(array is None for array in arrays):
        return None
    vectors = [array.reshape(-1).astype(np.float64) for array in arrays if array is not None]
    scale = np.prod(np.broadcast_arrays(*vectors), axis=0)
    scale = scale.astype(np.float32)
    stored = s.constant(scale if scale.size > 1 else scale.reshape(()), "bias_scale")
    return s.add("DequantizeLinear", [name, stored], {"axis": 0} if scale.size > 1 else {})


def _conv(s: Spelling) -> bool:
    operands = [_numbers(s, 0), _numbers(s, 3, axis=0)]
    if s.input(8):
        bias = _bias(s, s.input(8), s.input(1), s.input(4))
        if bias is None:
            return False
        operands.append(bias)
    _quantise(s, s.add("Conv", operands, s.attributes(), own=True), 6)
    return True


def _matmul(s: Spelling) -> bool:
    _quantise(s, s.add("MatMul", [_numbers(s, 0), _numbers(s, 3, axis=-1)], own=True), 6)
    return True


def _gemm(s: Spelling) -> bool:
    across = bool(s.attributes().get("transB", 0))
    operands = [_numbers(s, 0), _numbers(s, 3, axis=0 if across else 1)]
    if s.input(6):
        bias = _bias(s, s.input(6), s.input(1), s.input(4))
        if bias is None or s.attributes().get("alpha", 1.0) != 1.0:
            return False
        operands.append(bias)
    if s.input(7):
        _quantise(s, s.add("Gemm", operands, s.attributes(), own=True), 7)
    else:
        s.add("Gemm", operands, s.attributes(), s.node.output[0], own=True)
    return True


def _pair(op_type: str) -> Callable[[Spelling], bool]:
    def rule(s: Spelling) -> bool:
        _quantise(s, s.add(op_type, [_numbers(s, 0), _numbers(s, 3)], own=True), 6)
        return True

    return rule


def _single(op_type: str, *dropped: str) -> Callable[[Spelling], bool]:
    def rule(s: Spelling) -> bool:
        if s.attributes().get("channels_last", 0):
            return False
        _quantise(s, s.add(op_type, [_numbers(s, 0)], s.attributes("channels_last", *dropped), own=True), 3)
        return True

    return rule


def _concat(s: Spelling) -> bool:
    operands = [_numbers(s, position) for position in range(2, len(s.node.input), 3)]
    _quantise(s, s.add("Concat", operands, s.attributes(), own=True), 0)
    return True


def _softmax(s: Spelling) -> bool:
    if s.attributes().get("opset", 13) < ALONG_AXES:
        return False
    _quantise(s, s.add("Softmax", [_numbers(s, 0)], s.attributes("opset"), own=True), 3)
    return True


def _reduce_mean(s: Spelling) -> bool:
    x, attributes = _numbers(s, 0), s.attributes("axes")
    axes = s.attributes().get("axes")
    if opset_of(s.model) < 18:
        result = s.add("ReduceMean", [x], s.attributes(), own=True)
    else:
        listed = [s.constant(np.array(axes, np.int64), "axes")] if axes is not None else []
        result = s.add("ReduceMean", [x, *listed], attributes, own=True)
    _quantise(s, result, 3)
    return True


def _plain(op_type: str) -> Callable[[Spelling], bool]:
    """onnxruntime's own operator of the name and meaning of a standard one."""

    def rule(s: Spelling) -> bool:
        s.add(op_type, s.node.input, s.attributes(), s.node.output[0])
        return True

    return rule


LEAST_INPUTS = {"QLinearConv": 8, "QLinearMatMul": 8, "QGemm": 6, "QLinearAdd": 7, "QLinearMul": 7, "QLinearConcat": 5,
                "QuantizeLinear": 2, "DequantizeLinear": 2}  # fmt: skip
"""Operands that an operator cannot do without; the others need four."""

_STANDARD = {"QLinearConv": _conv, "QLinearMatMul": _matmul}

_OF_ONNXRUNTIME = {
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


def _where_sets_allow(write: Callable[[Spelling], bool]) -> Callable[[Spelling], bool]:
    """The rule where the model's operator set has what it writes: scales along an axis came late."""

    def rule(s: Spelling) -> bool:
        held = [s.constants[name] for name in s.node.input if name in s.constants]
        along = any(
            len(each.dims) == 1 and each.dims[0] > 1 for each in held if each.data_type == onnx.TensorProto.FLOAT
        )
        return opset_of(s.model) >= (ALONG_AXES if along else 10) and write(s)

    return rule


QUANTISED: Rules = {
    (domain, op_type): Spelled(_where_sets_allow(write), LEAST_INPUTS.get(op_type, 4))
    for domain, rules in (("", _STANDARD), (MICROSOFT, _OF_ONNXRUNTIME))
    for op_type, write in rules.items()
}
"""Operators on quantised operands, of standard ONNX and of onnxruntime's domain."""


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
