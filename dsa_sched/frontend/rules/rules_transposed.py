"""Rule of ConvTranspose: one convolution that makes all phases of the result at once, and their interleaving.

    y[q * s + p] = sum over j of x[q - j] * w[j * s + p]
    x [n, c, l] --conv--> [n, f * s, q] --view, transpose--> [n, f, q * s] --slice--> [n, f, extent]

The kernel of a phase has every s-th tap, so that no product with an inserted zero is computed where s divides the
taps; where it does not, the last tap of some phases is zero. Rules raise Refusal for nodes that cannot be compiled.
"""

from __future__ import annotations

from math import prod

from dsa_sched.frontend.network.network import Node
from dsa_sched.frontend.network.operation import Refusal, Writer
from dsa_sched.frontend.network.traced import TracedArray
from dsa_sched.frontend.rules.image_windows import ImageWindow, OperationSteps
from dsa_sched.frontend.rules.long_windows import long_conv, spread_bias
from dsa_sched.frontend.rules.rules_window import constant_weights

Shape = tuple[int, ...]


def conv_transpose(writer: Writer, node: Node) -> None:
    weights = constant_weights(writer, node)
    shape, groups = writer.shape(node.inputs[0]), node.integer("group", 1)
    if shape[1] != weights.shape[0] or shape[1] % groups:
        raise Refusal(f"{shape[1]} channels for weights of {weights.shape[0]} in {groups} groups")
    rank = weights.ndim - 2
    strides, dilations = node.integers("strides", (1,) * rank), node.integers("dilations", (1,) * rank)
    extents, kernel = writer.shape(node.outputs[0])[2:], tuple(weights.shape[2:])
    firsts = _begins(node, shape[2:], extents, kernel, strides, dilations)
    steps = OperationSteps(writer, node)
    phased, taps = _phase_weights(writer.traced(node.inputs[1]), groups, strides, dilations)
    filters, phases = weights.shape[1] * groups, prod(strides)
    names = [steps.constant(node.inputs[1], "phases", phased)]
    if node.input(2):
        names.append(spread_bias(steps, node.inputs[2], phases))
    counts = tuple(
        max(extent, -(-(first + wanted) // stride))
        for extent, first, wanted, stride in zip(shape[2:], firsts, extents, strides, strict=True)
    )
    window = ImageWindow(
        taps,
        (1,) * rank,
        (1,) * rank,
        tuple(tap - 1 for tap in taps),
        tuple(count - extent for count, extent in zip(counts, shape[2:], strict=True)),
    )
    y = _convolution(steps, names, window, groups, (shape[0], filters * phases, *counts))
    y = _interleaved(steps, y, filters, strides)
    steps.finish(steps.part(y, (0, 0, *firsts), (shape[0], filters, *extents)))


def _begins(node: Node, shape: Shape, extents: Shape, kernel: Shape, strides: Shape, dilations: Shape) -> Shape:
    """Number of elements cut off at the front, by ONNX's definition: pads, or shared out if the extents are given."""
    rank = len(kernel)
    mode, more = node.text("auto_pad", "NOTSET") or "NOTSET", node.integers("output_padding", (0,) * rank)
    if mode == "VALID" or (mode == "NOTSET" and not node.setting("output_shape", ())):
        return (0,) * rank if mode == "VALID" else node.integers("pads", (0,) * (2 * rank))[:rank]
    along = zip(shape, extents, kernel, strides, dilations, more, strict=True)
    totals = tuple(max(0, s * (n - 1) + m + (k - 1) * d + 1 - wanted) for n, wanted, k, s, d, m in along)
    return tuple(total // 2 if mode == "SAME_UPPER" else total - total // 2 for total in totals)


def _phase_weights(weights: TracedArray, groups: int, strides: Shape, dilations: Shape) -> tuple[TracedArray, Shape]:
    """[c, f / g, kernel...] as [f * phases, c / g, taps...]: the phases of a filter in sequence, the last axis
    fastest, every phase with its taps from the last to the first; and the number of taps.
    """
    inputs, outputs, *kernel = weights.shape
    rank = len(kernel)
    for axis, dilation in enumerate(dilations, 2):
        weights = weights.spread(axis, dilation)
    reach = weights.shape[2:]
    taps = tuple(-(-size // stride) for size, stride in zip(reach, strides, strict=True))
    more = (tap * stride - size for tap, stride, size in zip(taps, strides, reach, strict=True))
    split = (groups, inputs // groups, outputs, *(n for pair in zip(taps, strides, strict=True) for n in pair))
    order = (*(3 + 2 * axis for axis in range(rank)), 0, 2, *(4 + 2 * axis for axis in range(rank)), 1)
    weights = weights.pad(0, 0, *more).reshape(*split).transpose(*order)
    for _ in range(rank):  # each of the axes of taps comes to the front once, and then goes after the others
        backwards = range(weights.shape[0] - 1, -1, -1)
        weights = weights.take(backwards).transpose(*range(1, rank), 0, *range(rank, len(weights.shape)))
    last = (*range(rank, len(weights.shape)), *range(rank))
    shape = (groups * outputs * prod(strides), inputs // groups, *taps)
    return weights.transpose(*last).reshape(*shape), taps


def _convolution(steps: OperationSteps, names: list[str], window: ImageWindow, groups: int, shape: Shape) -> str:
    x, (weights, *bias) = steps.node.inputs[0], names
    if steps.writer.wants.windows == "images":
        return long_conv(steps, x, weights, tuple(bias), window, groups)
    return steps.add("conv", shape, {**window.attributes(), "groups": groups}, x, weights, *bias)


def _interleaved(steps: OperationSteps, y: str, filters: int, strides: Shape) -> str:
    """[n, f * phases, q...] -> [n, f, q * s...]."""
    if prod(strides) == 1:
        return y
    n, _, *counts = steps.writer.shape(y)
    rank = len(strides)
    y = steps.view(y, n, filters, *strides, *counts)
    y = steps.transpose(y, 0, 1, *(axis for i in range(rank) for axis in (2 + rank + i, 2 + i)))
    return steps.view(y, n, filters, *(count * stride for count, stride in zip(counts, strides, strict=True)))
