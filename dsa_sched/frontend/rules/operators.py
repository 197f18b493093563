"""ONNX operators as ours: one small rule for each, which normalises its attributes or says why it cannot.

    Node(Gemm, transB=1)  -->  Operation(matmul, [x, w transposed, bias])

Axes are still ONNX's. A rule may make constants and intermediate values; a refusal is a sentence that the user reads,
and all refusals of a model are reported together. `OPERATORS` lists the operators that the frontend itself accepts;
rules of other packages are entry points of the group `dsa_sched.operators`, whose name is the ONNX operator type.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Literal, cast

import onnx

from dsa_sched.frontend.decomposition.decompose import LIMITS, TAKEN_APART
from dsa_sched.frontend.decomposition.einsum import refuse_einsum
from dsa_sched.frontend.decomposition.recurrent import RECURRENT, refuse_recurrent
from dsa_sched.frontend.integers.preparation import WORD_OPERATORS
from dsa_sched.frontend.integers.words import MOST_WORDS
from dsa_sched.frontend.network.network import (
    ADD_SCALED,
    ATTEND,
    FLOATING,
    FORMULA,
    INTEGER_CONV,
    INTEGER_MATMUL,
    NARROW,
    NEAREST,
    NORMALISE,
    OF_INTEGERS,
    OURS,
    POWER,
    SCALE_SHIFT,
    WIDEN,
    Network,
    Node,
    Value,
)
from dsa_sched.frontend.network.operation import Operations, Refusal, Rule, Writer, refusing
from dsa_sched.frontend.network.refusals import RefusedNode
from dsa_sched.frontend.network.shapes import known_values, shape_text
from dsa_sched.frontend.rewrites.masks import MASK_LIMITS
from dsa_sched.frontend.rules import (
    rules_axes,
    rules_elementwise,
    rules_product,
    rules_transposed,
    rules_window,
)
from dsa_sched.frontend.rules.scalars import give_axes
from dsa_sched.frontend.rules.whole import WHOLE
from dsa_sched.io.entry_point_groups import OPERATORS as ENTRY_POINT_GROUP
from hw_models.errors import ModelError, TargetError
from partitioner.ir.wants import Wants


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


def require_whole(names: frozenset[str]) -> frozenset[str]:
    """The names, of operators that can stay whole. Raises TargetError naming those that cannot."""
    possible = {*WHOLE, *OPERATORS} - {*OURS, *ONLY_REFUSED}
    if unknown := sorted(names - possible):
        needs = f"operators that can stay whole, which are {', '.join(sorted(possible))}"
        raise TargetError("a target's wants", needs=needs, has=", ".join(unknown))
    return names


def operations_of(network: Network, wants: Wants) -> Operations:
    """Operations of every node, by its rule. Raises RefusedNodes with all refusals."""
    values = dict(network.values)
    for name, array in network.constants.items():
        values[name] = Value(tuple(array.shape), onnx.helper.np_dtype_to_tensor_dtype(array.dtype))
    writer = Writer(network, dict(network.constants), values, wants, terms=dict(network.terms))
    reasons: dict[str, str] = {}
    lost: set[str] = set()  # results that refused nodes would have made
    for node in network.nodes:
        try:
            rule = (WHOLE.get(node.op_type) if node.op_type in wants.whole else None) or rule_of(node.op_type)
            if rule is None:
                raise Refusal(_unwritten(node.op_type))
            if node.op_type not in ONLY_REFUSED:  # whose operands may be truth values and integers
                _require_computable(writer, node, lost)
            first = len(writer.operations)
            rule(writer, node)
            give_axes(writer, first)
        except Refusal as refusal:
            reasons[node.name] = str(refusal)
            lost.update(node.outputs)
    if reasons:
        raise RefusedNodes(network, reasons, values)
    return Operations(tuple(writer.operations), writer.constants, writer.values, writer.terms)


def _unwritten(op_type: str) -> str:
    """Reason why a node is left that has no rule: nobody wrote one, or its replacement cannot express this one."""
    limits = {**ONLY_LAST, **ONLY_FOLDED, **MASK_LIMITS, **LIMITS}
    return limits.get(op_type) or "this operator is not supported"


class RefusedNodes(Exception):
    """Raised for nodes of a network without rules, or whose rules refuse, by name with the reason. Nodes whose operands
    have no known shape, because the nodes that make them are refused as well, have an empty reason.
    """

    def __init__(self, network: Network, reasons: Mapping[str, str], values: Mapping[str, Value]) -> None:
        super().__init__(", ".join(reasons))
        self.network = network
        self.reasons = reasons
        self.values = values


def _require_computable(writer: Writer, node: Node, lost: set[str]) -> None:
    if all(name in writer.constants for name in node.inputs if name):
        why = writer.network.unfolded.get(node.name)
        raise Refusal("all operands are constant, but onnxruntime could not compute it" + (f": {why}" if why else ""))
    if any(name and name not in writer.values for name in node.inputs):
        raise Refusal("")  # the node that makes the operand is refused for its shape
    for name in (*node.inputs, *node.outputs):
        if name and name not in writer.values:
            raise Refusal(f"the shape of {name} is not static; give every input's shape with --shape")
        # Constants may be: a list of no axes, or the factors of a Resize that has extents.
        if name and name not in writer.constants and 0 in writer.values[name].shape:
            raise Refusal(f"{name} is empty ({shape_text(writer.values[name].shape)})")
    moves = (*OF_INTEGERS, "Reshape", *writer.wants.int8_moves)
    integers = writer.network.numbers if node.op_type not in moves else {*node.inputs, *node.outputs}
    for name in node.outputs:
        if name and writer.values[name].dtype not in FLOATING and name not in integers:
            raise Refusal(f"{name} is {_type_name(writer.values[name].dtype)}; only floating-point values are computed")
    data = node.input(0)
    if data and writer.values[data].dtype not in FLOATING and node.op_type != "Gather" and data not in integers:
        if data in lost:
            raise Refusal("")  # its type is reported where it begins
        raise Refusal(f"{data} is {_type_name(writer.values[data].dtype)}; only floating-point values are computed")


def _type_name(dtype: int) -> str:
    return str(onnx.TensorProto.DataType.Name(dtype)).lower()


Known = Literal["compiled", "standard", "runtime"]
"""Operators of a file that are known: those that can be compiled; all of standard ONNX except graphs inside nodes, for
programs that leave computing to onnxruntime; or all that it runs, of other domains and with graphs inside.
"""


def unknown_nodes(model: onnx.ModelProto, known: Known = "compiled") -> tuple[RefusedNode, ...]:
    """Find, before any work, every node of a type that can never be compiled, with names and shapes.

    Nodes that depend on no input of the model may be of any standard type: they become constants.
    """
    if known == "runtime":
        return ()
    values = known_values(model)
    constants = {tensor.name for tensor in model.graph.initializer}
    varying = {item.name for item in model.graph.input} - constants
    found = []
    for proto in model.graph.node:
        foreign = proto.domain not in ("", "ai.onnx")
        nested = any(a.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) for a in proto.attribute)
        standard = onnx.defs.has(proto.op_type) and not foreign
        live = any(name in varying for name in proto.input) and proto.op_type not in SHAPE_ONLY
        if live:
            varying.update(proto.output)
        if foreign:
            reason = f"domain {proto.domain} is not standard ONNX"
        elif not standard:
            reason = "no such operator in standard ONNX"
        elif nested and proto.op_type != "If":
            reason = "control flow with nested graphs"
        elif live and known == "compiled" and proto.op_type not in SIMPLIFIED_AWAY and rule_of(proto.op_type) is None:
            reason = _unwritten(proto.op_type)
        else:
            continue
        shapes = [shape_text(values[name].shape) if name in values else "?" for name in proto.input if name]
        found.append(RefusedNode(proto.name, proto.op_type, tuple(shapes), reason, standard and not nested))
    return tuple(found)


SIMPLIFIED_AWAY = (
    frozenset(["Identity", "Dropout", "Cast", "Sum", "Flatten", "Squeeze", "Unsqueeze", *TAKEN_APART, *MASK_LIMITS])
    | WORD_OPERATORS
)
ONLY_FOLDED = {"ConstantOfShape": "its shape is computed at run time; it must be constant"}
"""Operators that can only be constants, and the reason where one is not."""
ONLY_LAST = dict.fromkeys(
    ("ArgMax", "ArgMin"),
    f"of computed numbers it is supported for outputs of the model only, of at most {MOST_WORDS:,} elements",
)
"""Operators whose results nothing in the network may read."""
SHAPE_ONLY = frozenset(["Shape", "Size"])
"""Operators whose results are constants once shapes are static, so that nothing after them varies."""


ONLY_REFUSED: dict[str, Rule] = {
    "Einsum": refuse_einsum,
    "CumSum": refusing("the axis is computed at run time; it must be constant"),
    **dict.fromkeys(
        ("QuantizeLinear", "DequantizeLinear"),
        refusing(
            "quantised values need kernels of int8, constant zero points and positive, finite scales, one or one per "
            "index of an axis, and int8 or uint8 integers"
        ),
    ),
    "TensorScatter": refusing(
        "it must write rows of the second last axis, at most as many as the cache has, and not go round its end"
    ),
    "ScatterND": refusing(
        "it must write whole rows of the first axis, at places that are constant or follow from integers"
    ),
    "If": refusing(
        "its condition is computed at run time; a branch is compiled where shapes or constants choose it (--bind makes "
        "an input a constant)"
    ),
}
"""Rules of operators that reach a rule only where they cannot be compiled: they give the reason."""

OPERATORS: dict[str, Rule] = {
    **ONLY_REFUSED,
    "Conv": rules_window.conv,
    "ConvTranspose": rules_transposed.conv_transpose,
    "MaxPool": rules_window.pool,
    "AveragePool": rules_window.pool,
    "GlobalAveragePool": rules_window.global_pool,
    "GlobalMaxPool": rules_window.global_pool,
    "LRN": rules_window.lrn,
    "Gemm": rules_product.gemm,
    "MatMul": rules_product.matmul,
    **dict.fromkeys(rules_elementwise.UNARY, rules_elementwise.unary),
    **dict.fromkeys(rules_elementwise.BINARY_KINDS, rules_elementwise.binary),
    "Pow": rules_elementwise.power,
    "Clip": rules_elementwise.clip,
    SCALE_SHIFT: rules_elementwise.scale_shift,
    WIDEN: rules_elementwise.widen,
    NARROW: rules_elementwise.narrow,
    ADD_SCALED: rules_elementwise.add_scaled,
    INTEGER_CONV: rules_window.integer_conv,
    INTEGER_MATMUL: rules_product.integer_matmul,
    FORMULA: rules_elementwise.formula,
    NEAREST: rules_axes.reduce_line,
    POWER: rules_axes.reduce_line,
    NORMALISE: rules_axes.normalise,
    ATTEND: rules_axes.attend,
    "BatchNormalization": refusing("training mode, and statistics that are computed at run time, are not supported"),
    **dict.fromkeys(("Dropout", "Cast"), refusing("only inference and floating-point types are supported")),
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
    "Expand": rules_axes.expand,
    "Tile": rules_axes.tile,
    **dict.fromkeys(RECURRENT, refuse_recurrent),
    **dict.fromkeys(("Resize", "Upsample"), rules_window.resize),
}
