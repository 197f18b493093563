"""Layer and root-mean-square norms that a file spells out, found again as the operators that they are.

    d = x - ReduceMean(x)      d / Sqrt(ReduceMean(d * d) + epsilon) * scale + bias  -->  LayerNormalization(x)
                               x / Sqrt(ReduceMean(x * x) + epsilon) * scale         -->  RMSNormalization(x)

Over all axes from one on to the last. The quotient may be a product with a reciprocal, or a power; without a scale it
is one. What lies between serves nothing else: norms whose root is read too are left to `norm_patterns.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dsa_sched.frontend.decomposition.norms import epsilon_in_range, reduced_axes
from dsa_sched.frontend.network.chain import Chain, Shape
from dsa_sched.frontend.network.network import Network, Node
from dsa_sched.frontend.network.terms import number
from dsa_sched.frontend.patterns.pattern_search import Match, made_for, number_of, reader_of, shape_of

__all__ = ["norm_matches"]


def norm_matches(network: Network) -> Iterator[Match]:
    for node in network.nodes:
        if node.op_type == "ReduceMean" and (found := _norm(network, node)) is not None:
            yield found


def _norm(network: Network, mean: Node) -> Match | None:
    """The norm around a mean of squares."""
    d = _squared(network, mean.inputs[0])
    axes = _last_axes(network, mean)
    if not d or axes is None or shape_of(network, d) != shape_of(network, mean.inputs[0]):
        return None
    root = _root(network, mean)
    if root is None:
        return None
    inverse, epsilon, inverted = root
    quotient = _inverted_quotient(network, inverse) if inverted else _quotient(network, inverse)
    if quotient is None:
        return None
    end, dividend = quotient
    if not _same(network, dividend, d) or shape_of(network, end.outputs[0]) != shape_of(network, d):
        return None
    x, average = _centred(network, d, axes)
    results = {d, dividend, mean.inputs[0], end.outputs[0]}
    if x and not _serve_only(network, {d, dividend, average}, results):
        return None
    return _with_affine(network, end, x or d, axes, epsilon, centred=bool(x))


def _squared(network: Network, name: str) -> str:
    """d of a d * d or d ^ 2 that one node reads."""
    node = made_for(network, name, "Mul", "Pow")
    if node is None:
        return ""
    square = node.inputs[0] == node.inputs[1] if node.op_type == "Mul" else number_of(network, node.inputs[1]) == 2.0
    return node.inputs[0] if square and node.inputs[0] not in network.constants else ""


def _last_axes(network: Network, mean: Node) -> Shape | None:
    """The axes of a mean, if they are all from one on to the last and stay with one element."""
    shape = shape_of(network, mean.inputs[0])
    axes = reduced_axes(network, mean) if shape else None
    if not shape or axes is None or not mean.integer("keepdims", 1):
        return None
    return axes if axes == tuple(range(len(shape) - len(axes), len(shape))) else None


def _root(network: Network, mean: Node) -> tuple[str, float, bool] | None:
    """The value of sqrt(mean + epsilon), or one over it; epsilon; whether it is one over it."""
    name, epsilon = mean.outputs[0], 0.0
    added = reader_of(network, name, "Add")
    if added is not None:
        other = added.inputs[1] if added.inputs[0] == name else added.inputs[0]
        value = number_of(network, other)
        if value is None or shape_of(network, added.outputs[0]) != shape_of(network, name):
            return None
        name, epsilon = added.outputs[0], value
    if not epsilon_in_range(epsilon):
        return None
    root = reader_of(network, name, "Sqrt", "Pow")
    if root is None or root.inputs[0] != name:
        return None
    exponent = 0.5 if root.op_type == "Sqrt" else number_of(network, root.inputs[1])
    if exponent not in (0.5, -0.5) or shape_of(network, root.outputs[0]) != shape_of(network, name):
        return None
    return root.outputs[0], epsilon, exponent < 0


def _quotient(network: Network, root: str) -> tuple[Node, str] | None:
    """The node that divides by a root, or multiplies by its reciprocal, and what it divides."""
    node = reader_of(network, root, "Div", "Reciprocal")
    if node is None:
        return None
    if node.op_type == "Div" and node.inputs[1] == root and number_of(network, node.inputs[0]) != 1.0:
        return (node, node.inputs[0]) if node.inputs[0] != root else None
    if node.op_type == "Div" and node.inputs[0] == root:
        return None
    return _inverted_quotient(network, node.outputs[0])


def _inverted_quotient(network: Network, inverse: str) -> tuple[Node, str] | None:
    node = reader_of(network, inverse, "Mul")
    if node is None or node.inputs[0] == node.inputs[1]:
        return None
    return node, node.inputs[1] if node.inputs[0] == inverse else node.inputs[0]


def _same(network: Network, a: str, b: str) -> bool:
    """One value, or differences of the same two: exporters write them twice."""
    first, second = network.producer.get(a), network.producer.get(b)
    return a == b or (
        first is not None and second is not None and first.op_type == second.op_type == "Sub"
        and first.inputs == second.inputs
    )  # fmt: skip


def _centred(network: Network, d: str, axes: Shape) -> tuple[str, str]:
    """The x of which d is x - mean(x) over the same axes, and that mean; empty where it is no such difference."""
    node = network.producer.get(d)
    mean = network.producer.get(node.inputs[1]) if node is not None and node.op_type == "Sub" else None
    if node is None or mean is None or mean.op_type != "ReduceMean" or mean.inputs[0] != node.inputs[0]:
        return "", ""
    return (node.inputs[0], node.inputs[1]) if _last_axes(network, mean) == axes else ("", "")


def _serve_only(network: Network, names: set[str], results: set[str]) -> bool:
    """Whether nothing but what makes `results` reads these values."""
    readers = (reader for name in names for reader in network.readers[name])
    return not names & set(network.outputs) and all(results & set(reader.outputs) for reader in readers)


def _with_affine(network: Network, end: Node, x: str, axes: Shape, epsilon: float, *, centred: bool) -> Match:
    """The norm with the scale behind it, and the bias behind that."""
    shape = network.shape(x)
    wide, scale, bias = shape[axes[0] :], "", ""
    if (found := _vector(network, end.outputs[0], "Mul", wide)) is not None:
        end, scale = found
        if centred and (found := _vector(network, end.outputs[0], "Add", wide)) is not None:
            end, bias = found

    def write(chain: Chain) -> None:
        ones = scale or chain.array(np.ones(wide, np.float32), number(1).broadcast(*wide))
        settings = (("axis", axes[0] - len(shape)), ("epsilon", epsilon))
        inputs = (x, ones, *filter(None, (bias,)))
        chain.add("LayerNormalization" if centred else "RMSNormalization", *inputs, shape=shape, settings=settings)

    return Match(end, write)


def _vector(network: Network, name: str, op_type: str, wide: Shape) -> tuple[Node, str] | None:
    """The only reader of a value, which adds it to or multiplies it by a number for each place along the axes of the
    norm, and these numbers."""
    node = reader_of(network, name, op_type)
    if node is None or node.inputs[0] == node.inputs[1]:
        return None
    other = node.inputs[1] if node.inputs[0] == name else node.inputs[0]
    return (node, other) if shape_of(network, other) == wide else None
