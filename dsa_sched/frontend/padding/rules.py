"""The rule for each operator of a file: what of its results rows of padding do not change."""

from __future__ import annotations

from collections.abc import Mapping

from dsa_sched.frontend.padding import attention, moves, products, whole_axes
from dsa_sched.frontend.padding.case import Case, Rule, has_trait
from dsa_sched.frontend.padding.elementwise import elementwise
from dsa_sched.frontend.padding.values import Meets, Padded
from partitioner.ir.operators import Trait, onnx_names

RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), moves.reshape),
    "Transpose": moves.transpose,
    "Concat": moves.concat,
    "Slice": moves.sliced,
    "Split": moves.split,
    "Expand": moves.expand,
    "Tile": moves.tile,
    "Pad": moves.pad,
    "Gather": moves.gather,
    "Trilu": moves.trilu,
    "MatMul": products.matmul,
    "Gemm": products.gemm,
    "Einsum": products.einsum,
    **dict.fromkeys(("Softmax", "LogSoftmax"), whole_axes.softmax),
    **dict.fromkeys(
        sorted(name for name in onnx_names(Trait.REDUCES) if name.startswith(("Reduce", "Arg"))), whole_axes.reduce
    ),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), whole_axes.normalised),
    **dict.fromkeys(("InstanceNormalization", "GroupNormalization", "LRN"), whole_axes.over_features),
    "BatchNormalization": whole_axes.batch_norm,
    "CumSum": whole_axes.running_sum,
    "TopK": whole_axes.chosen,
    **dict.fromkeys(("Conv", "ConvTranspose", "MaxPool", "AveragePool"), whole_axes.windows),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), whole_axes.recurrent),
    **dict.fromkeys(
        ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool", "Resize", "Upsample", "DepthToSpace", "SpaceToDepth"),
        whole_axes.items_alone,
    ),
    "Attention": attention.attention,
    "RotaryEmbedding": attention.rotary,
    "TensorScatter": attention.scattered,
    "ScatterND": attention.assigned,
}
"""Operators with a rule of their own."""


def judged(case: Case) -> tuple[Padded, ...]:
    """What is known of the results of a node. Raises Meets where a real row would read rows of padding, and where that
    is not known."""
    op_type = case.node.op_type
    if op_type in RULES:
        return RULES[op_type](case)
    if op_type == "Dropout" or has_trait(op_type, Trait.ELEMENTWISE):
        return elementwise(case)
    if op_type in ("QuantizeLinear", "DequantizeLinear"):
        return quantised(case)
    for position in range(case.count):
        if case.has(position):
            case.plain(position)
    few, many = zip(*(case.result(number) for number, name in enumerate(case.node.outputs) if name), strict=True)
    if few != many:
        raise Meets("what it does to rows of padding is not known")
    return (Padded(),) * len(case.node.outputs)


def quantised(case: Case) -> tuple[Padded, ...]:
    """Numbers as integers and back, by one scale or one for each index of a dimension without rows. Raises Meets for a
    scale for each row."""
    value = case.read(0)
    for position in range(1, case.count):
        if case.has(position):
            case.plain(position)
            if len(case.shape(position)) == 1 and case.axis(1) in value.extents and case.shape(position)[0] > 1:
                raise Meets("it has a scale for each row")
    return (Padded(value.extents, stale=value.stale),)
