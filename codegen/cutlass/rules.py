"""Rules of the GPU back end, per operator: the refusals that a user reads, and the operators that fuse."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

from codegen.cutlass.families.lines.line_operators import LINE_RULES
from codegen.cutlass.families.maps.gather import INDEX_TYPES
from codegen.cutlass.families.matrix.tensor_epilogues import refusal
from codegen.cutlass.families.registry import FAMILIES, offered
from codegen.cutlass.kernel.expressions import BINARY, UNARY
from codegen.cutlass.kernel.family import KernelWork
from hw_models.chip import Chip
from partitioner.ir.graph import Constants, Graph, Op
from partitioner.ir.layers import Layer

MOST_AXES = 6
MOST_ELEMENTS = 1 << 30
"""Largest number of elements, so that the number of a thread beyond the last element is an int32, too."""
MOST_OPERANDS = 64
"""Largest number of operands: each takes 32 of the 4,096 bytes that a kernel's parameters may have."""
MOST_STEPS = 1 << 30
"""Largest number of positions along an axis that windows may reach: sums of two of them are int32."""

OPERATORS: Mapping[str, str] = {
    "conv": "One to four spatial axes, any groups, strides, dilations and paddings. Those of one and two run on the "
    "tensor cores, several groups in a launch each where that takes no longer; the others, depthwise ones among them, "
    "on the CUDA cores in one launch, as those of one filter, of an odd number of channels in several groups and of "
    "more than 32 taps in a row or column do. Sums are fp32.",
    "max_pool": "One to four spatial axes, any window, dilated ones too. NaN stays NaN.",
    "average_pool": "One to four spatial axes, any window, with or without its padding counted. Sums are fp32.",
    "lrn": "Any odd number of channels; squares, sums and the power are fp32.",
    "concat": "Any axis and any number of inputs, 16 of them in a launch.",
    "slice": "Any starts and steps, negative ones too.",
    "pad": "By a constant, on any axis; negative paddings cut off.",
    "take": "Constant indices along any axis.",
    "gather": "Rows of a table, or slices along any axis, by inputs of int32 or int64; negative ones count from the "
    "end.",
    "transpose": "Any order of at most 6 axes; where the last axis moves, by tiles in shared memory.",
    "resize": "Nearest or linear along any axes but that of the channels, all coordinates that the frontend takes. "
    "Places are computed in fp32 as the network is compiled.",
    **LINE_RULES,
    "matmul": "Any extents, leading axes broadcast, a bias along the columns. Sums are fp32. On the tensor cores where "
    "the matrices of a batch lie equally far apart, odd extents padded with zeros; else, or where that takes longer, "
    "on the CUDA cores.",
    "attend": "Attention, heads side by side or apart, of at most 128 elements each; several of q may share one of k "
    "and v, and all three may be columns of one value. Masks are added, or hide later keys by their places. Sums and "
    "powers are fp32, weights are rounded to fp16 before they meet v; no score is stored.",
    **dict.fromkeys(sorted(UNARY), "Computed in fp32, also in the epilogue of any other kernel."),
    **dict.fromkeys(
        sorted((*BINARY, "scale_shift")),
        "Operands are broadcast; computed in fp32, also in the epilogue of any other kernel; that of a convolution "
        "or matrix product adds at most one map and computes nothing else of two operands.",
    ),
}
"""Kinds of operators, each with its rules for a reader."""


def accepts(graph: Graph, op: Op, constants: Constants, chip: Chip) -> str | None:
    """None where some family has a kernel for the operator by itself, else why not."""
    del constants  # no kernel depends on them
    if op.is_view:
        return None
    for name in (*op.inputs, *op.outputs):
        tensor = graph.by_name[name]
        if name in op.inputs[1:] and op.kind == "gather" and tensor.dtype in INDEX_TYPES:
            continue
        if tensor.dtype != "float16":
            return f"{name} is {tensor.dtype}; kernels of this back end compute float16"
        if len(tensor.shape) > MOST_AXES:
            return f"{name} has {len(tensor.shape)} axes, at most {MOST_AXES} are indexed"
        if prod(tensor.shape) > MOST_ELEMENTS:
            return f"{name} has {prod(tensor.shape)} elements, at most {MOST_ELEMENTS} are indexed"
    if op.kind in REFUSALS and (refused := REFUSALS[op.kind](graph, op)):
        return refused
    work = KernelWork(graph, (Layer(op.name, (op.name,), op.outputs[0]),), chip)
    if offered(work):
        return None
    computed = any(family.offers(work) for family in FAMILIES.values())
    return f"no kernel computes this {op.kind}{f' with what a block of {chip.name} may occupy' if computed else ''}"


def can_fuse_epilogue(graph: Graph, layer: tuple[Op, ...], op: Op, operand: str) -> str | None:
    """None, or why `op` does not fuse. Matrix kernels take the epilogues of `tensor_epilogues`, all other kernels any
    element-wise operator."""
    if graph.by_name[operand].shape != graph.by_name[op.outputs[0]].shape:
        return f"{operand} is broadcast by {op.name}"
    if layer[0].kind in ("conv", "matmul"):
        return refusal(graph, layer[1:], op, operand)
    read = sum(len(each.inputs) for each in (*layer, op))
    return f"a kernel with {read} operands, at most {MOST_OPERANDS} are possible" if read > MOST_OPERANDS else None


def _window(graph: Graph, op: Op) -> str | None:
    """Refuse windows that cannot be counted in int32."""
    numbers = {name: max(op.ints(name)) for name in ("kernel", "strides", "dilations")}
    spatial = len(op.ints("kernel"))
    begins, ends = op.ints("pads")[:spatial], op.ints("pads")[spatial:]
    extents = graph.by_name[op.inputs[0]].shape[1:-1]
    numbers["padded extent"] = max(sum(along) for along in zip(extents, begins, ends, strict=True))
    for name, number in numbers.items():
        if number > MOST_STEPS:
            return f"{name} of {number} along an axis, windows of at most {MOST_STEPS} positions are counted"
    if (size := prod(op.ints("kernel"))) > MOST_STEPS:
        return f"a window of {size} elements, at most {MOST_STEPS} are counted"
    return None


def _resize(graph: Graph, op: Op) -> str | None:
    shapes = [graph.by_name[name].shape for name in (op.inputs[0], op.outputs[0])]
    if op.attribute("mode") == "linear" and shapes[0][-1] != shapes[1][-1]:
        return "linear resizing of the axis that runs fastest, which holds channels"
    return None


REFUSALS: Mapping[str, Callable[[Graph, Op], str | None]] = {
    **dict.fromkeys(("conv", "max_pool", "average_pool"), _window),
    "resize": _resize,
}
"""Functions that say why no kernel of the kind computes an operator, by kind."""
