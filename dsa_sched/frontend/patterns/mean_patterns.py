"""Means and variances that a file spells out by sums and squares, in the form that loses nothing in a narrow type.

    ReduceSum(x) / n, ReduceSum(x) * (1 / n)              -->  ReduceMean(x)
    ReduceSum(x) / m                                      -->  ReduceMean(x) * (n / m)
    ReduceMean(x * x) - ReduceMean(x)^2, at least zero    -->  ReduceMean(d * d), d = x - ReduceMean(x)

A sum leaves the range of fp16 where the mean does not. The difference of two nearly equal means loses all digits of the
variance where the mean is larger than the deviation; the mean of the squared differences loses none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from dsa_sched.frontend.decomposition.norms import average, reduced_axes
from dsa_sched.frontend.network.chain import Chain, Shape
from dsa_sched.frontend.network.network import FLOATING, Network, Node
from dsa_sched.frontend.patterns.pattern_search import Match, factor_of, is_computed, number_of, reader_of, shape_of

__all__ = ["mean_matches", "square_of", "variance_matches"]

EXACT = 2.0**-20
"""Relative distance from 1 of a factor that is 1 but for the rounding of fp32."""


@dataclass(frozen=True, slots=True)
class _Mean:
    """The mean of x over `axes`; where `kept`, they stay with one element."""

    x: str
    axes: Shape
    kept: bool


def mean_matches(network: Network) -> Iterator[Match]:
    """Sums that are divided by a number larger than one."""
    for node in network.nodes:
        scaled = factor_of(network, node)
        total = network.producer.get(scaled[0]) if scaled is not None else None
        if scaled is None or total is None or total.op_type != "ReduceSum" or abs(scaled[1]) >= 1:
            continue
        shape = shape_of(network, total.inputs[0])
        axes = reduced_axes(network, total) if shape else None
        if shape and axes and network.values[total.outputs[0]].dtype in FLOATING:
            yield _mean(network, node, total, axes, prod(shape[axis] for axis in axes) * scaled[1])


def _mean(network: Network, end: Node, total: Node, axes: Shape, factor: float) -> Match:
    settings = (("axes", axes), ("keepdims", total.integer("keepdims", 1)))

    def write(chain: Chain) -> None:
        mean = chain.add(
            "ReduceMean", total.inputs[0], shape=network.shape(total.outputs[0]), settings=settings, suffix="mean"
        )
        if abs(factor - 1) > EXACT:
            chain.add("Mul", mean, chain.number(factor), shape=network.shape(end.outputs[0]))

    return Match(end, write)


def variance_matches(network: Network) -> Iterator[Match]:
    """Means of squares less the square of the mean."""
    for node in network.nodes:
        if node.op_type != "Sub":
            continue
        squares, mean = _mean_of(network, node.inputs[0]), _mean_of(network, square_of(network, node.inputs[1]))
        if squares is None or mean is None or square_of(network, squares.x) != mean.x:
            continue
        if (squares.axes, squares.kept) == (mean.axes, mean.kept):
            yield _variance(network, node, mean, square_of(network, node.inputs[1]))


def _variance(network: Network, difference: Node, mean: _Mean, name: str) -> Match:
    shape = network.shape(difference.outputs[0])

    def write(chain: Chain) -> None:
        middle = name if mean.kept else average(chain, mean.x, mean.axes)
        d = chain.add("Sub", mean.x, middle)
        settings = (("axes", mean.axes), ("keepdims", int(mean.kept)))
        chain.add("ReduceMean", chain.add("Mul", d, d), shape=shape, settings=settings)

    return Match(_at_least_zero(network, difference), write)


def _at_least_zero(network: Network, node: Node) -> Node:
    """The node that holds a variance at or above zero, if that is all that reads it; else what computes it."""
    reader = reader_of(network, node.outputs[0], "Max", "Relu", "Clip")
    if reader is None or shape_of(network, reader.outputs[0]) != shape_of(network, node.outputs[0]):
        return node
    match reader.op_type:
        case "Relu":
            return reader
        case "Max" if len(reader.inputs) == 2:
            other = reader.inputs[1] if reader.inputs[0] == node.outputs[0] else reader.inputs[0]
            return reader if number_of(network, other) == 0.0 else node
        case "Clip" if reader.inputs[0] == node.outputs[0] and not reader.input(2) and not reader.settings:
            return reader if number_of(network, reader.input(1)) == 0.0 else node
    return node


def _mean_of(network: Network, name: str) -> _Mean | None:
    """What the value is the mean of, along which axes."""
    node = network.producer.get(name)
    shape = shape_of(network, node.inputs[0]) if node is not None else None
    if node is None or not shape or not is_computed(network, node.inputs[0]):
        return None
    if node.op_type == "GlobalAveragePool":
        return _Mean(node.inputs[0], tuple(range(2, len(shape))), True)
    axes = reduced_axes(network, node) if node.op_type == "ReduceMean" else None
    return _Mean(node.inputs[0], axes, bool(node.integer("keepdims", 1))) if axes else None


def square_of(network: Network, name: str) -> str:
    """x of a value that is x * x or x ^ 2, of its own shape; empty where it is no square."""
    node = network.producer.get(name)
    if node is None or node.op_type not in ("Mul", "Pow") or shape_of(network, node.inputs[0]) is None:
        return ""
    square = node.inputs[0] == node.inputs[1] if node.op_type == "Mul" else number_of(network, node.inputs[1]) == 2.0
    same = shape_of(network, node.inputs[0]) == shape_of(network, name)
    return node.inputs[0] if square and same and is_computed(network, node.inputs[0]) else ""
