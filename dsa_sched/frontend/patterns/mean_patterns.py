"""Means and variances that a file spells out by sums and squares, in the form that loses nothing in a narrow type.

    ReduceSum(x) / n, ReduceSum(x) * (1 / n)              -->  ReduceMean(x)
    ReduceSum(x) / m                                      -->  ReduceMean(x) * (n / m)
    ReduceMean(x * x) - ReduceMean(x)^2, at least zero    -->  ReduceMean(d * d), d = x - ReduceMean(x)
    (ReduceSum(x * x) - ReduceSum(x)^2 / n) / m           -->  ReduceMean(d * d) * (n / m)

A sum leaves the range of fp16 where the mean does not. The difference of two nearly equal means loses all digits of the
variance where the mean is larger than the deviation; the mean of the squared differences loses none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from dsa_sched.frontend.decomposition.norms import average, reduced_axes
from dsa_sched.frontend.network.chain import Chain, Shape
from dsa_sched.frontend.network.matching import Captured, Match, PatternRule, either, number, op, value
from dsa_sched.frontend.network.network import FLOATING, Network, Node
from dsa_sched.frontend.network.queries import (
    exponent_of,
    factor_of,
    is_alike,
    is_computed,
    number_of,
)

EXACT = 2.0**-20
"""Relative tolerance of a factor that is 1 except for the rounding of fp32."""

LARGEST_SHARE = 4.0
"""Largest quotient of a sum, in multiples of the mean: in a larger one, the mean may have lost more digits."""


def mean_matches(network: Network) -> Iterator[Match]:
    """Sums that are divided by a number larger than one, perhaps in several steps."""
    for node in network.nodes:
        if factor_of(network, node) is None:
            continue
        factor, name = _unscaled(network, node.outputs[0])
        total = network.producer.get(name)
        if total is None or total.op_type != "ReduceSum":
            continue
        shape = network.known_shape(total.inputs[0])
        axes = reduced_axes(network, total) if shape else None
        if not shape or not axes or network.values[total.outputs[0]].dtype not in FLOATING:
            continue
        share = prod(shape[axis] for axis in axes) * factor
        if factor < 1 and share <= LARGEST_SHARE:
            yield _mean(network, node, total, axes, share)


def _mean(network: Network, end: Node, total: Node, axes: Shape, factor: float) -> Match:
    settings = (("axes", axes), ("keepdims", total.integer("keepdims", 1)))

    def write(chain: Chain) -> None:
        mean = chain.add(
            "ReduceMean", total.inputs[0], shape=network.shape(total.outputs[0]), settings=settings, suffix="mean"
        )
        if abs(factor - 1) > EXACT:
            chain.add("Mul", mean, chain.number(factor), shape=network.shape(end.outputs[0]))

    return Match(end, write)


@dataclass(frozen=True, slots=True)
class _Sum:
    """factor * (sum of x over `axes`, `count` elements), or its square; where `kept`, the axes stay with one element.
    `mean` is a value that is the mean itself, with its axes, if there is one."""

    x: str
    axes: Shape
    kept: bool
    count: int
    factor: float
    mean: str = ""


DIFFERENCE = op("Sub", value("mean of squares"), value("square of mean"), name="difference")
VARIANCE = either(op("Max", DIFFERENCE, number(0.0)), op("Relu|Clip", DIFFERENCE), DIFFERENCE)
"""A difference that may be clamped at zero."""


def _write_variance(chain: Chain, found: Captured) -> None:
    """Write the variance where sums of squares less the square of the sum are both scaled so that one is left."""
    network, end = chain.network, chain.node
    clamps = not end.input(2) and not end.settings and number_of(network, end.input(1)) == 0.0
    if (end.op_type == "Clip" and not clamps) or not found.is_closed(network):
        return
    factor, squares = _unscaled(network, found.values["mean of squares"])
    first = _sum_of(network, squares)
    total = _square_of_sum(network, found.values["square of mean"])
    if first is None or total is None or not is_alike(network, square_of(network, first.x), total.x):
        return
    factor *= first.factor
    alike = abs(total.factor * total.count - factor) <= EXACT * factor
    if not alike or (first.axes, first.kept) != (total.axes, total.kept):
        return
    d = chain.add("Sub", total.x, total.mean or average(chain, total.x, total.axes))
    settings, shape = (("axes", total.axes), ("keepdims", int(total.kept))), chain.shape(found.values["difference"])
    variance = chain.add("ReduceMean", chain.add("Mul", d, d), shape=shape, settings=settings)
    if abs(factor * total.count - 1) > EXACT:
        chain.add("Mul", variance, chain.number(factor * total.count))


VARIANCES = (PatternRule(VARIANCE, _write_variance),)


def _unscaled(network: Network, name: str) -> tuple[float, str]:
    """c and v of a value that is c * v, through multiplications and divisions by positive numbers."""
    factor = 1.0
    while (found := factor_of(network, network.producer.get(name))) is not None and found[1] > 0:
        name, factor = found[0], factor * found[1]
    return factor, name


def _sum_of(network: Network, name: str) -> _Sum | None:
    """The sum or mean that the value is, and along which axes."""
    node = network.producer.get(name)
    shape = network.known_shape(node.inputs[0]) if node is not None else None
    if node is None or not shape or not is_computed(network, node.inputs[0]):
        return None
    if node.op_type == "GlobalAveragePool":
        axes: Shape | None = tuple(range(2, len(shape)))
    else:
        axes = reduced_axes(network, node) if node.op_type in ("ReduceMean", "ReduceSum") else None
    if not axes:
        return None
    kept = node.op_type == "GlobalAveragePool" or bool(node.integer("keepdims", 1))
    count = prod(shape[axis] for axis in axes)
    if node.op_type == "ReduceSum":
        return _Sum(node.inputs[0], axes, kept, count, 1.0)
    return _Sum(node.inputs[0], axes, kept, count, 1 / count, name if kept else "")


def _square_of_sum(network: Network, name: str) -> _Sum | None:
    """The sum whose square the value is, scaled in any way."""
    outer, squared = _unscaled(network, name)
    node = network.producer.get(squared)
    root = square_of(network, squared)
    if not root and node is not None and node.op_type == "Mul" and is_alike(network, node.inputs[0], node.inputs[1]):
        root = node.inputs[0]
    inner, total = _unscaled(network, root)
    found = _sum_of(network, total)
    return replace(found, factor=outer * (inner * found.factor) ** 2) if found is not None else None


def square_of(network: Network, name: str) -> str:
    """x of a value that is x * x or x ^ 2, of its own shape; empty where it is no square."""
    node = network.producer.get(name)
    if node is None or node.op_type not in ("Mul", "Pow") or network.known_shape(node.inputs[0]) is None:
        return ""
    square = node.inputs[0] == node.inputs[1] if node.op_type == "Mul" else exponent_of(network, node) == 2.0
    same = network.known_shape(node.inputs[0]) == network.known_shape(name)
    return node.inputs[0] if square and same and is_computed(network, node.inputs[0]) else ""
