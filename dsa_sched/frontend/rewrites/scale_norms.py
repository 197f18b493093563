"""Norms that a file spells out, rewritten as `norms.py` computes them: squared only once they are scaled.

    Mul(x, x) -> ReduceMean -> Add(epsilon) -> Sqrt -> r    r  -->  root of the scaled x / s, s a power of two a line
    Div(x, r), or Mul(x, Reciprocal(r))                     -->  scaled x * (1 / that root)

Where x is itself y - ReduceMean(y), as in a layer norm of primitive operators, y is centred as `norms.py` centres it.
The squares, their mean and its sum with epsilon must serve nothing else; r and x may.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dsa_sched.frontend.decomposition.norms import (
    centred_and_scaled,
    epsilon_in_range,
    reduced_axes,
    root_mean_square,
    scaled,
)
from dsa_sched.frontend.network.chain import Chain, Shape
from dsa_sched.frontend.network.network import Network, Node

__all__ = ["scale_norms"]


@dataclass(frozen=True, slots=True)
class _Norm:
    """sqrt(mean(x * x) + epsilon), and y where x is y - mean(y), else an empty name."""

    x: str
    y: str
    axes: Shape
    epsilon: float


@dataclass(frozen=True, slots=True)
class _Scaled:
    """Names of: x * factor, 1 / (root * factor), factor."""

    x: str
    inverse: str
    factor: str


def scale_norms(network: Network) -> Network:
    """All norms of this form; nodes that nothing reads any more are left to be pruned."""
    nodes: list[Node] = []
    values, constants, terms = dict(network.values), dict(network.constants), dict(network.terms)
    roots: dict[str, tuple[_Norm, _Scaled]] = {}
    inverses: dict[str, tuple[_Norm, _Scaled]] = {}
    for node in network.nodes:
        norm = _norm(network, node) if node.op_type == "Sqrt" else None
        if norm is not None:
            chain = Chain(network, node)
            made = _write(chain, norm)
            roots[node.outputs[0]] = norm, made
            nodes += chain.finished()
            values |= chain.values
            constants |= chain.constants
            terms |= chain.terms
        elif node.op_type == "Reciprocal" and node.inputs[0] in roots:
            _, made = inverses[node.outputs[0]] = roots[node.inputs[0]]
            nodes.append(replace(node, op_type="Mul", inputs=(made.inverse, made.factor)))
        else:
            nodes.append(_quotient(node, roots, inverses))
    return replace(network, nodes=tuple(nodes), values=values, constants=constants, terms=terms)


def _write(chain: Chain, norm: _Norm) -> _Scaled:
    if norm.y:
        x, factor = centred_and_scaled(chain, norm.y, norm.axes, norm.epsilon)
    else:
        x, factor = scaled(chain, norm.x, norm.axes, norm.epsilon, centred=False)
    root = root_mean_square(chain, x, factor, norm.axes, norm.epsilon)
    inverse = chain.add("Reciprocal", root)
    chain.add("Div", root, factor)
    return _Scaled(x, inverse, factor)


def _quotient(node: Node, roots: dict[str, tuple[_Norm, _Scaled]], inverses: dict[str, tuple[_Norm, _Scaled]]) -> Node:
    """x over its own root, by what is scaled; other nodes as they are."""
    if len(node.inputs) != 2 or node.op_type not in ("Mul", "Div"):
        return node
    a, b = node.inputs
    found = roots if node.op_type == "Div" else inverses
    for x, divisor in ((a, b),) if node.op_type == "Div" else ((a, b), (b, a)):
        if divisor in found and found[divisor][0].x == x:
            made = found[divisor][1]
            return replace(node, op_type="Mul", inputs=(made.x, made.inverse))
    return node


def _norm(network: Network, root: Node) -> _Norm | None:
    """The norm whose root this node takes, or None."""
    added = _only_for(network, root.inputs[0], "Add")
    if added is None:
        return None
    for mean_name, constant in (added.inputs, added.inputs[::-1]):
        epsilon = network.constants.get(constant)
        mean = _only_for(network, mean_name, "ReduceMean")
        if epsilon is None or epsilon.size != 1 or mean is None or not mean.integer("keepdims", 1):
            continue
        value, axes = float(epsilon.reshape(-1)[0]), reduced_axes(network, mean)
        square = _only_for(network, mean.inputs[0], "Mul")
        if square is None or axes is None or not epsilon_in_range(value) or square.inputs[0] != square.inputs[1]:
            continue
        x = square.inputs[0]
        if network.shape(x) != network.shape(square.outputs[0]) or epsilon.ndim > len(network.shape(x)):
            continue
        return _Norm(x, next(_centred(network, x, axes), ""), axes, value)
    return None


def _centred(network: Network, x: str, axes: Shape) -> Iterator[str]:
    """The y of which x is y - mean(y) over the same axes."""
    difference = network.producer.get(x)
    if difference is None or difference.op_type != "Sub":
        return
    y, mean_name = difference.inputs
    mean = network.producer.get(mean_name)
    if mean is None or mean.op_type != "ReduceMean" or mean.inputs[0] != y:
        return
    if mean.integer("keepdims", 1) and reduced_axes(network, mean) == axes:
        yield y


def _only_for(network: Network, name: str, op_type: str) -> Node | None:
    """The node of this type that makes a value which one node reads, and which is no output."""
    made, readers = network.producer.get(name), network.readers.get(name, ())
    alone = len(readers) == 1 and name not in network.outputs
    return made if made is not None and made.op_type == op_type and alone else None
