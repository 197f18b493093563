"""Operators that divide by a norm of their input, kept within the range of fp16.

    LayerNormalization  -->  c = ReduceNearest(x), s = ReducePower(x - c)    e = (x - c) * s    d = e - ReduceMean(e)
                             d / Sqrt(ReduceMean(d * d) + epsilon * s * s) * scale + bias

Squares of fp16 numbers beyond 256 leave the range, and those below 2^-12 vanish. So every line is first multiplied by
the power of two s that takes its largest magnitude to 64: exact, the same bits for all scalings of x by powers of two,
squares of at most 2^14. It cancels in the quotient; epsilon is scaled with it, s being held so that epsilon * s * s
stays in the range. Before the mean is subtracted, the value of the line's span that is nearest to zero is: neither a
span of twice the range nor a mean much larger than the deviations costs anything, and a line of equal values is zero.

Where a target has a kernel for it, everything except scale and bias is one operator, whose range is the target's
concern:

    LayerNormalization  -->  Normalise(x) * scale + bias
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import ceil, floor, frexp, log2, prod, sqrt

from dsa_sched.frontend.network.chain import Chain, Rule, Shape
from dsa_sched.frontend.network.network import NEAREST, NORMALISE, POWER, Network, Node

LARGEST_POWER = 15
"""Largest exponent of the power of two that ReducePower gives."""

MOST_TERMS = 512
"""Largest number of magnitudes of 64 whose sum is in the range."""

SMALLEST_NORM = 2.0**-10
"""Lower bound of a norm where a norm of zero gives zero: that of any other line is larger once it is scaled."""


def reduced_axes(network: Network, node: Node) -> Shape | None:
    """The axes of a reduction, from the front and in order; None where they are computed, or none is reduced."""
    rank, given = len(network.shape(node.inputs[0])), node.input(1)
    constant = network.constants.get(given)
    if given and constant is None:
        return None
    listed = node.integers("axes", ()) if constant is None else tuple(int(axis) for axis in constant.reshape(-1))
    if not listed and node.integer("noop_with_empty_axes", 0):
        return None
    return tuple(sorted({axis % rank for axis in listed} if rank else ())) or tuple(range(rank))


def average(chain: Chain, x: str, axes: Shape, output: str = "") -> str:
    """The mean over `axes`, which stay with one element."""
    return chain.reduced("ReduceMean", x, axes, output=output)


def scaled(chain: Chain, x: str, axes: Shape, epsilon: float, *, centred: bool) -> tuple[str, str]:
    """x (less its value nearest to zero, if `centred`) times a power of two for each line, and that power."""
    kept = tuple(1 if axis in axes else extent for axis, extent in enumerate(chain.shape(x)))
    factor = chain.add(POWER, x, shape=kept, settings=(("axes", axes), ("centred", int(centred))))
    highest = floor(log2(2**7 / sqrt(epsilon))) if epsilon > 0 else LARGEST_POWER
    if highest < LARGEST_POWER:
        factor = chain.add("Min", factor, chain.number(2.0**highest))
    if centred:
        x = chain.add("Sub", x, chain.add(NEAREST, x, shape=kept, settings=(("axes", axes),)))
    return chain.add("Mul", x, factor), factor


def centred_and_scaled(chain: Chain, x: str, axes: Shape, epsilon: float) -> tuple[str, str]:
    """x less its mean times a power of two for each line, and that power."""
    spread, factor = scaled(chain, x, axes, epsilon, centred=True)
    return chain.add("Sub", spread, average(chain, spread, axes)), factor


def root_mean_square(chain: Chain, x: str, factor: str, axes: Shape, epsilon: float) -> str:
    """sqrt(mean(x * x) + epsilon * factor * factor): of values that were multiplied by `factor`. `epsilon` is in range
    (`epsilon_in_range`)."""
    power = average(chain, chain.add("Mul", x, x), axes)
    if epsilon > 0:
        # The root has half the exponent; its fraction and power of two are apart: it may be no normal fp16 number.
        # It is not zero, which would make NaN of rows of zeros; next to any other row, the smallest does not count.
        fraction, exponent = frexp(max(sqrt(epsilon), chain.network.rounding.smallest))
        root = chain.add("Mul", chain.add("Mul", factor, chain.number(fraction)), chain.number(2.0**exponent))
        power = chain.add("Add", power, chain.add("Mul", root, root))
    return chain.add("Sqrt", power)


def _write_norm(
    chain: Chain,
    x: str,
    axes: Shape,
    epsilon: float,
    vectors: tuple[str, str],
    *,
    centred: bool = True,
    lines: bool = False,
    deviation: str = "",
) -> None:
    """Write (x - mean) / sqrt(variance + epsilon), without the mean unless `centred`, times scale plus bias: along
    `lines` as one operator; else with 1 over that root under the name `deviation` where one is given.
    """
    if lines:
        settings = (("axes", axes), ("centred", int(centred)), ("epsilon", epsilon))
        result = chain.add(NORMALISE, x, settings=settings)
    else:
        spread, factor = (
            centred_and_scaled(chain, x, axes, epsilon) if centred else scaled(chain, x, axes, epsilon, centred=False)
        )
        inverse = chain.add("Reciprocal", root_mean_square(chain, spread, factor, axes, epsilon))
        if deviation:
            chain.add("Mul", inverse, factor, output=deviation)
        result = chain.add("Mul", spread, inverse)
    _affine(chain, result, *vectors)


def _affine(chain: Chain, x: str, scale: str, bias: str) -> None:
    """Numbers that change nothing are left out."""
    result = x if _all(chain, scale, 1.0) else chain.add("Mul", x, scale)
    if bias and not _all(chain, bias, 0.0):
        chain.add("Add", result, bias)


def _all(chain: Chain, name: str, number: float) -> bool:
    constant = chain.constants.get(name, chain.network.constants.get(name))
    return constant is not None and constant.shape != () and bool((constant == number).all())


def _epsilon(node: Node) -> float:
    return node.number("epsilon", 1e-5)


def epsilon_in_range(network: Network, epsilon: float) -> bool:
    """Whether norms can scale it with the line, as NaN and infinities cannot be: its root, and the power of two that
    keeps its square in the range, are numbers of the type."""
    return 0 <= epsilon < network.rounding.largest_power**2


def _trailing_axes(chain: Chain, node: Node) -> Shape:
    rank = len(chain.shape(node.inputs[0]))
    return tuple(range(node.integer("axis", -1) % rank, rank)) if rank else ()


def _layer_norm(chain: Chain, node: Node, *, lines: bool = False) -> bool:
    """Mean and inverse deviation are outputs too, where the node names them; then it is no operator over `lines`."""
    x, axes = node.inputs[0], _trailing_axes(chain, node)
    if not epsilon_in_range(chain.network, _epsilon(node)):
        return False
    mean, deviation, *_ = (*node.outputs[1:], "", "")
    if mean:
        average(chain, x, axes, mean)
    vectors, lines = (node.inputs[1], node.input(2)), lines and bool(axes) and not deviation
    _write_norm(chain, x, axes, _epsilon(node), vectors, lines=lines, deviation=deviation)
    return bool(axes)


def _rms_norm(chain: Chain, node: Node, *, lines: bool = False) -> bool:
    x, axes, vectors = node.inputs[0], _trailing_axes(chain, node), (node.inputs[1], "")
    if not epsilon_in_range(chain.network, _epsilon(node)):
        return False
    _write_norm(chain, x, axes, _epsilon(node), vectors, centred=False, lines=lines and bool(axes))
    return bool(axes)


def _by_channel(chain: Chain, vector: str, rank: int) -> str:
    """The vector with one element per channel, on axis 1."""
    spread = (chain.shape(vector)[0], *(1,) * (rank - 2))
    known = chain.traced(vector)
    return chain.add("Flatten", vector, shape=spread) if known is None else chain.store(known.reshape(*spread))


def _instance_norm(chain: Chain, node: Node, *, lines: bool = False) -> bool:
    """Normalise each channel of each image by itself. Exporters write a group norm as one whose channels are groups."""
    rank = len(chain.shape(node.inputs[0]))
    if rank < 3 or not epsilon_in_range(chain.network, _epsilon(node)):
        return False
    scale, bias = (_by_channel(chain, name, rank) for name in node.inputs[1:3])
    _write_norm(chain, node.inputs[0], tuple(range(2, rank)), _epsilon(node), (scale, bias), lines=lines)
    return True


def _batch_norm(chain: Chain, node: Node) -> bool:
    """Normalise with the statistics of the data at hand, each channel over all images; other batch norms fold into an
    affine map. Running statistics are not computed.
    """
    rank = len(chain.shape(node.inputs[0]))
    read = any(name in chain.network.readers or name in chain.network.outputs for name in node.outputs[1:] if name)
    if not node.integer("training_mode", 0) or read or rank < 2 or not epsilon_in_range(chain.network, _epsilon(node)):
        return False
    scale, bias = (_by_channel(chain, name, rank) for name in node.inputs[1:3])
    _write_norm(chain, node.inputs[0], (0, *range(2, rank)), _epsilon(node), (scale, bias))
    return True


def _lp_normalization(chain: Chain, node: Node) -> bool:
    """x over the sum of magnitudes, or over the root of the sum of squares, along one axis; a line of zeros stays."""
    x, p = node.inputs[0], node.integer("p", 2)
    rank = len(chain.shape(x))
    if p not in (1, 2) or not rank:
        return False
    axes = (node.integer("axis", -1) % rank,)
    length = chain.shape(x)[axes[0]]
    x, _ = scaled(chain, x, axes, 0.0, centred=False)
    mean = average(chain, chain.add("Mul", x, x) if p == 2 else chain.add("Abs", x), axes)
    terms = length ** (1 / p)
    excess = max(0, ceil(log2(terms / MOST_TERMS)))  # powers of two that both sides of the quotient lose
    norm = chain.add("Mul", chain.add("Sqrt", mean) if p == 2 else mean, chain.number(terms * 2.0**-excess))
    x = chain.add("Mul", x, chain.number(2.0**-excess)) if excess else x
    chain.add("Mul", x, chain.add("Reciprocal", chain.add("Max", norm, chain.number(SMALLEST_NORM))))
    return True


def _reduce_l2(chain: Chain, node: Node) -> bool:
    """sqrt(sum(x * x)) as sqrt(mean of squares * elements), unscaled at the end."""
    x, axes = node.inputs[0], reduced_axes(chain.network, node)
    if not axes:
        return False
    count = prod(chain.shape(x)[axis] for axis in axes)
    x, factor = scaled(chain, x, axes, 0.0, centred=False)
    root = chain.add("Mul", root_mean_square(chain, x, factor, axes, 0.0), chain.number(sqrt(count)))
    result, shape = chain.add("Div", root, factor), chain.shape(node.outputs[0])
    if chain.shape(result) != shape:
        chain.add("Flatten", result, shape=shape)
    return True


NORMS: Mapping[str, Rule] = {
    "LayerNormalization": _layer_norm,
    "RMSNormalization": _rms_norm,
    "InstanceNormalization": _instance_norm,
    "BatchNormalization": _batch_norm,
    "LpNormalization": _lp_normalization,
    "ReduceL2": _reduce_l2,
}
"""Rules of norms; where one returns False, the node is refused by its own name."""

NORMS_OF_LINES: Mapping[str, Rule] = {
    "LayerNormalization": partial(_layer_norm, lines=True),
    "RMSNormalization": partial(_rms_norm, lines=True),
    "InstanceNormalization": partial(_instance_norm, lines=True),
}
"""Rules of norms along lines, where a target has a kernel for these."""
