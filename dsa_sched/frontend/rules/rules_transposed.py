"""Rule of ConvTranspose: one convolution that makes all phases of the result at once, and their interleaving.

    y[q * s + p] = sum over j of x[q - j] * w[j * s + p]
    x [n, c, l] --conv--> [n, f * s, q] --view, transpose--> [n, f, q * s] --slice--> [n, f, extent]

The kernel of a phase has every s-th tap, so that no product with an inserted zero is computed where s divides the
taps; where it does not, the last tap of some phases is zero. Rules raise Refusal for nodes that cannot be compiled.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

import numpy as np

from dsa_sched.frontend.network.network import Array, Node
from dsa_sched.frontend.network.operation import Refusal, Writer
from dsa_sched.frontend.network.terms import Term
from dsa_sched.frontend.rules.image_windows import ImageWindow, OperationSteps
from dsa_sched.frontend.rules.long_windows import long_conv, spread_bias

Shape = tuple[int, ...]


def conv_transpose(writer: Writer, node: Node) -> None:
    weights = writer.constants.get(node.input(1))
    if weights is None or (node.input(2) and node.input(2) not in writer.constants):
        raise Refusal("weights and bias must be constant")
    if weights.ndim < 3:
        raise Refusal(f"weights of {weights.ndim} axes")
    shape, groups = writer.shape(node.inputs[0]), node.integer("group", 1)
    if shape[1] != weights.shape[0] or shape[1] % groups:
        raise Refusal(f"{shape[1]} channels for weights of {weights.shape[0]} in {groups} groups")
    rank = weights.ndim - 2
    strides, dilations = node.integers("strides", (1,) * rank), node.integers("dilations", (1,) * rank)
    extents, kernel = writer.shape(node.outputs[0])[2:], tuple(weights.shape[2:])
    firsts = _begins(node, shape[2:], extents, kernel, strides, dilations)
    steps = OperationSteps(writer, node)
    phased, term, taps = _phase_weights(weights, writer.term(node.inputs[1]), groups, strides, dilations)
    filters, phases = weights.shape[1] * groups, prod(strides)
    names = [steps.constant(node.inputs[1], "phases", phased, term)]
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


def _phase_weights(
    weights: Array, term: Term, groups: int, strides: Shape, dilations: Shape
) -> tuple[Array, Term, Shape]:
    """[c, f / g, kernel...] as [f * phases, c / g, taps...]: the phases of a filter in sequence, the last axis
    fastest, every phase with its taps from the last to the first; and the number of taps.
    """
    inputs, outputs, *kernel = weights.shape
    rank = len(kernel)
    for axis, dilation in enumerate(dilations, 2):
        weights, term = _spread_taps(weights, term, axis, dilation)
    reach = weights.shape[2:]
    taps = tuple(-(-size // stride) for size, stride in zip(reach, strides, strict=True))
    more = tuple(tap * stride - size for tap, stride, size in zip(taps, strides, reach, strict=True))
    weights, term = _behind(weights, term, (0, 0, *more))
    split = (groups, inputs // groups, outputs, *(n for pair in zip(taps, strides, strict=True) for n in pair))
    order = (*(3 + 2 * axis for axis in range(rank)), 0, 2, *(4 + 2 * axis for axis in range(rank)), 1)
    weights, term = weights.reshape(split).transpose(order), term.reshape(*split).transpose(*order)
    for _ in range(rank):  # each of the axes of taps comes to the front once, and then goes after the others
        count = weights.shape[0]
        turn = (*range(1, rank), 0, *range(rank, weights.ndim))
        rows = tuple(range(count - 1, -1, -1))
        weights, term = weights[::-1].transpose(turn), term.take(rows).transpose(*turn)
    last = (*range(rank, weights.ndim), *range(rank))
    shape = (groups * outputs * prod(strides), inputs // groups, *taps)
    return weights.transpose(last).reshape(shape), term.transpose(*last).reshape(*shape), taps


def _spread_taps(weights: Array, term: Term, axis: int, dilation: int) -> tuple[Array, Term]:
    """Weights with zeros between the taps of one axis."""
    if dilation == 1:
        return weights, term
    shape = weights.shape
    apart = (*shape[: axis + 1], 1, *shape[axis + 1 :])
    pads = [0] * len(apart)
    pads[axis + 1] = dilation - 1
    weights, term = _behind(weights.reshape(apart), term.reshape(*apart), pads)
    joined = (*shape[:axis], shape[axis] * dilation, *shape[axis + 1 :])
    return weights.reshape(joined), term.reshape(*joined)


def _behind(weights: Array, term: Term, counts: Iterable[int]) -> tuple[Array, Term]:
    """Weights with zeros after the elements of each axis."""
    counts = tuple(counts)
    if not any(counts):
        return weights, term
    return np.pad(weights, [(0, count) for count in counts]), term.pad(*counts)


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
