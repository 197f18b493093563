"""ONNX operators as ours: one small rule for each, which normalises its attributes or says why it cannot.

    Node(Gemm, transB=1)  -->  Operation(matmul, [x, w transposed, bias])

Axes are still ONNX's. A rule may make constants and intermediate values; a refusal is a sentence that the user reads,
and all refusals of a model are reported together. `OPERATORS` is the list of what the frontend takes by itself; rules
of other packages are entry points of the group `dsa_sched.operators`, whose name is the ONNX operator type.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import cast

import onnx

from dsa_sched.frontend import rules_axes, rules_elementwise, rules_product, rules_resize, rules_window
from dsa_sched.frontend.decompose import DECOMPOSED
from dsa_sched.frontend.network import SCALE_SHIFT, Network, Node, Value
from dsa_sched.frontend.operation import Operations, Refusal, Rule, Writer
from dsa_sched.frontend.shapes import known_values, shape_text
from dsa_sched.frontend.simplify import FLOATING
from hw_models.errors import ModelError

__all__ = ["OPERATORS", "operations_of", "operator_names", "require_known", "rule_of"]

ENTRY_POINT_GROUP = "dsa_sched.operators"


def rule_of(op_type: str) -> Rule | None:
    """The rule for an ONNX operator, ours before those of other packages; None when there is none.

    Raises ModelError for a package whose rule cannot be loaded.
    """
    if op_type in OPERATORS:
        return OPERATORS[op_type]
    for point in entry_points(group=ENTRY_POINT_GROUP, name=op_type):
        return _loaded(point)
    return None


def operator_names() -> tuple[str, ...]:
    """ONNX operators that have a rule."""
    return tuple(sorted({*OPERATORS, *(point.name for point in entry_points(group=ENTRY_POINT_GROUP))}))


def _loaded(point: EntryPoint) -> Rule:
    try:
        return cast(Rule, point.load())
    except (ImportError, AttributeError) as error:
        raise ModelError(
            f"operator {point.name}", needs=f"the rule {point.value} of another package", has=str(error)
        ) from error


def operations_of(network: Network) -> Operations:
    """Every node through its rule. Raises ModelError listing all refusals."""
    values = dict(network.values)
    for name, array in network.constants.items():
        values[name] = Value(tuple(array.shape), onnx.helper.np_dtype_to_tensor_dtype(array.dtype))
    writer = Writer(network, dict(network.constants), values)
    refusals = []
    for node in network.nodes:
        try:
            rule = rule_of(node.op_type)
            if rule is None:
                raise Refusal("no rule for this operator")
            _require_computable(writer, node)
            rule(writer, node)
        except Refusal as refusal:
            refusals.append(_line(node, writer.values, str(refusal)))
    if refusals:
        raise _unsupported(network.name, refusals)
    return Operations(tuple(writer.operations), writer.constants, writer.values)


def _require_computable(writer: Writer, node: Node) -> None:
    if all(name in writer.constants for name in node.inputs if name):
        raise Refusal("all operands are constant, but onnxruntime could not compute it")
    for name in (*node.inputs, *node.outputs):
        if name and name not in writer.values:
            raise Refusal(f"the shape of {name} is not static; give every input's shape with --shape")
        # Constants may be: a list of no axes, or the factors of a Resize that has extents.
        if name and name not in writer.constants and 0 in writer.values[name].shape:
            raise Refusal(f"{name} is empty ({shape_text(writer.values[name].shape)})")
    for name in node.outputs:
        if name and writer.values[name].dtype not in FLOATING:
            raise Refusal(f"{name} is {_type_name(writer.values[name].dtype)}; only floating-point values are computed")
    data = node.input(0)
    if data and writer.values[data].dtype not in FLOATING and node.op_type != "Gather":
        raise Refusal(f"{data} is {_type_name(writer.values[data].dtype)}; only floating-point values are computed")


def _type_name(dtype: int) -> str:
    return str(onnx.TensorProto.DataType.Name(dtype)).lower()


def _line(node: Node, values: dict[str, Value], reason: str) -> str:
    shapes = [shape_text(values[name].shape) if name in values else "?" for name in node.inputs if name]
    return f"{node.op_type} {node.name} ({', '.join(shapes)}): {reason}"


def _unsupported(model: str, lines: list[str]) -> ModelError:
    noun = "operator" if len(lines) == 1 else "operators"
    listed = "\n".join(f"  {line}" for line in lines)
    return ModelError(f"{model}: {len(lines)} unsupported {noun}\n{listed}")


def require_known(model: onnx.ModelProto, who: str, *, any_standard: bool = False) -> None:
    """Before any work: every operator type that can never be compiled, all at once, with names and shapes.

    Nodes that depend on no input of the model may be of any standard type: they become constants. With `any_standard`,
    all others may be too, as for programs that leave computing to onnxruntime.
    """
    values = known_values(model)
    constants = {tensor.name for tensor in model.graph.initializer}
    varying = {item.name for item in model.graph.input} - constants
    lines = []
    for proto in model.graph.node:
        foreign = proto.domain not in ("", "ai.onnx")
        nested = any(a.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) for a in proto.attribute)
        known = onnx.defs.has(proto.op_type) and not foreign
        live = any(name in varying for name in proto.input) and proto.op_type not in SHAPE_ONLY
        if live:
            varying.update(proto.output)
        node = Node(proto.name, proto.op_type, tuple(proto.input), tuple(proto.output))
        if foreign:
            lines.append(_line(node, values, f"domain {proto.domain} is not standard ONNX"))
        elif not known:
            lines.append(_line(node, values, "no such operator in standard ONNX"))
        elif nested:
            lines.append(_line(node, values, "control flow with nested graphs"))
        elif live and not (any_standard or proto.op_type in SIMPLIFIED_AWAY or rule_of(proto.op_type) is not None):
            lines.append(_line(node, values, "no rule for this operator"))
    if lines:
        raise _unsupported(who, lines)


SIMPLIFIED_AWAY = frozenset(["Identity", "Dropout", "Cast", "Sum", "Flatten", "Squeeze", "Unsqueeze", *DECOMPOSED])
SHAPE_ONLY = frozenset(["Shape", "Size"])
"""Their results are constants once shapes are static, so that nothing behind them varies."""


OPERATORS: dict[str, Rule] = {
    "Conv": rules_window.conv,
    "MaxPool": rules_window.pool,
    "AveragePool": rules_window.pool,
    "GlobalAveragePool": rules_window.global_pool,
    "GlobalMaxPool": rules_window.global_pool,
    "LRN": rules_window.lrn,
    "Gemm": rules_product.gemm,
    "MatMul": rules_product.matmul,
    **dict.fromkeys(rules_elementwise.UNARY_KINDS, rules_elementwise.unary),
    **dict.fromkeys(rules_elementwise.BINARY_KINDS, rules_elementwise.binary),
    "LeakyRelu": rules_elementwise.leaky_relu,
    "HardSigmoid": rules_elementwise.hard_sigmoid,
    "Clip": rules_elementwise.clip,
    SCALE_SHIFT: rules_elementwise.scale_shift,
    "BatchNormalization": rules_elementwise.batch_norm,
    **dict.fromkeys(("Dropout", "Cast"), rules_elementwise.left_over),
    "Softmax": rules_axes.softmax,
    "Concat": rules_axes.concat,
    "Transpose": rules_axes.transpose,
    "Reshape": rules_axes.reshape,
    "Slice": rules_axes.slice_,
    "Split": rules_axes.split,
    "Pad": rules_axes.pad,
    "ReduceMean": rules_axes.reduce,
    "ReduceSum": rules_axes.reduce,
    "ReduceMax": rules_axes.reduce,
    "Gather": rules_axes.gather,
    "Resize": rules_resize.resize,
    "Upsample": rules_resize.resize,
}
