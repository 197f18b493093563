"""Scales and shifts of norms go into the products after them.

    Normalise -> Mul(g) -> Add(t) -> MatMul(W, b)   -->   Normalise -> MatMul(g W, b + t W)

This is done where only products by constant matrices read them, and saves two passes of the vector engine per norm. The
scale multiplies the rows of the matrix, and the bias takes the product of the shift and the matrix. The norm's result
is no longer a value of the user's file: it has an origin.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from dsa_sched.frontend.network.network import NORMALISE, Array, Network, Node, Origin, Value
from dsa_sched.frontend.network.terms import Term, number

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Gain:
    """Effect of `nodes` on a norm's result `x` on the way to `result`: x * scale + shift along the last axis. `terms`
    say how both follow from the file.
    """

    x: str
    result: str
    nodes: tuple[Node, ...]
    scale: Floats
    shift: Floats
    terms: tuple[Term, Term]


@dataclass
class _Draft:
    """The changes: nodes by name, and the constants and values that they bring."""

    nodes: dict[str, tuple[Node, ...]] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    values: dict[str, Value] = field(default_factory=dict)
    origins: dict[str, Origin] = field(default_factory=dict)
    terms: dict[str, Term] = field(default_factory=dict)

    def constant(self, name: str, array: Floats, term: Term) -> str:
        self.constants[name], self.terms[name] = array, term
        return name


def move_norm_gains(network: Network) -> Network:
    """Move all scales and shifts of norms that can go into products."""
    draft = _Draft()
    for node in network.nodes:
        gain = _gain(network, node) if node.op_type == NORMALISE else None
        products = () if gain is None else network.readers.get(gain.result, ())
        if gain is not None and products and all(_takes(network, product, gain) for product in products):
            _move(network, draft, gain, products)
    return replace(
        network,
        nodes=tuple(new for node in network.nodes for new in draft.nodes.get(node.name, (node,))),
        constants={**network.constants, **draft.constants},
        values={**network.values, **draft.values},
        origins={**network.origins, **draft.origins},
        terms={**network.terms, **draft.terms},
    )


def _gain(network: Network, norm: Node) -> _Gain | None:
    """The scale after a norm, and the shift after that, each the only reader of the value before it."""
    x = result = norm.outputs[0]
    nodes: list[Node] = []
    width = network.shape(x)[-1]
    scale, shift, terms = np.ones(width), np.zeros(width), (number(1).broadcast(width), number(0).broadcast(width))
    for op_type in ("Mul", "Add"):
        readers = network.readers.get(result, ())
        vector = _vector(network, readers[0], result) if len(readers) == 1 and result not in network.outputs else ""
        if not vector or readers[0].op_type != op_type:
            continue
        given, term = network.constants[vector].astype(np.float64), network.term(vector).reshape(-1)
        if op_type == "Mul":
            scale, terms = np.broadcast_to(given.reshape(-1), width), (term.broadcast(width), terms[1])
        else:
            shift, terms = np.broadcast_to(given.reshape(-1), width), (terms[0], term.broadcast(width))
        nodes.append(readers[0])
        result = readers[0].outputs[0]
    if not nodes or result in network.outputs or not np.all(scale):
        return None
    return _Gain(x, result, tuple(nodes), scale, shift, terms)


def _vector(network: Network, node: Node, value: str) -> str:
    """The constant operand of a node next to the value: one number, or one for each index of the last axis."""
    others = [name for name in node.inputs if name != value]
    if len(others) != 1 or others[0] not in network.constants:
        return ""
    shape = network.constants[others[0]].shape
    alone = all(extent == 1 for extent in shape[:-1]) and len(shape) <= len(network.shape(value))
    return others[0] if alone and (not shape or shape[-1] in (1, network.shape(value)[-1])) else ""


def _takes(network: Network, node: Node, gain: _Gain) -> bool:
    """Whether a node is a product of the value by a constant matrix, each column of which is as exact with the scales
    as without, and whose bias has room for the product of the shift and the matrix.
    """
    matrix = network.constants.get(node.input(1))
    plain = node.op_type == "MatMul" and node.inputs[0] == gain.result and node.input(1) != gain.result
    if not plain or matrix is None or matrix.ndim != 2 or (node.input(2) and node.input(2) not in network.constants):
        return False
    weights = matrix.astype(np.float64)
    with np.errstate(invalid="ignore"):  # with an infinite scale nothing is exact
        errors = np.linalg.norm(
            network.rounding.rounded(weights * gain.scale[:, None]) / gain.scale[:, None] - weights, axis=0
        )
    exact = np.all(errors <= network.rounding.unit * np.linalg.norm(weights, axis=0))
    return bool(exact and np.all(np.isfinite(network.rounding.rounded(_bias(network, node, gain, weights)))))


def _bias(network: Network, node: Node, gain: _Gain, weights: Floats) -> Floats:
    own = network.constants[node.input(2)].astype(np.float64).reshape(-1) if node.input(2) else np.zeros(1)
    return np.asarray(own + gain.shift @ weights)


def _move(network: Network, draft: _Draft, gain: _Gain, products: tuple[Node, ...]) -> None:
    known = network.origins.get(gain.result)
    name, part = (known.name, known.part) if known else (gain.result, None)
    draft.origins[gain.x] = Origin(name, gain.scale, gain.shift, part, axis=-1)
    draft.nodes |= {node.name: () for node in gain.nodes}
    (scale, shift), width = gain.terms, len(gain.scale)
    for node in products:
        weights, term = network.constants[node.inputs[1]].astype(np.float64), network.term(node.inputs[1])
        scaled = draft.constant(f"{node.name}::gained", weights * gain.scale[:, None], term * scale.reshape(width, 1))
        own = network.term(node.input(2)).reshape(-1) if node.input(2) else number(0)
        made = shift.reshape(1, width).product(term).reshape(-1)
        bias = draft.constant(f"{node.name}::shifted", _bias(network, node, gain, weights), own + made)
        draft.nodes[node.name] = (replace(node, inputs=(gain.x, scaled, bias)),)
