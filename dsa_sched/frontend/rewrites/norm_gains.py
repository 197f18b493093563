"""Scales and shifts of norms go into the products after them.

    Normalise -> Mul(g) -> Add(t) -> MatMul(W, b)   -->   Normalise -> MatMul(g W, b + t W)

This is done where only products by constant matrices read them, and saves two passes of the vector engine per norm. The
scale multiplies the rows of the matrix, and the bias takes the product of the shift and the matrix. The norm's result
is no longer a value of the user's file: it has an origin.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dsa_sched.frontend.network.draft import Draft
from dsa_sched.frontend.network.network import NORMALISE, Network, Node, Origin
from dsa_sched.frontend.network.traced import TracedArray


@dataclass(frozen=True, slots=True)
class _Gain:
    """Effect of `nodes` on a norm's result `x` on the way to `result`: x * scale + shift along the last axis."""

    x: str
    result: str
    nodes: tuple[Node, ...]
    scale: TracedArray
    shift: TracedArray


def move_norm_gains(network: Network) -> Network:
    """Move all scales and shifts of norms that can go into products."""
    draft = Draft(network)
    for node in network.nodes:
        gain = _gain(network, node) if node.op_type == NORMALISE else None
        products = () if gain is None else network.readers.get(gain.result, ())
        if gain is not None and products and all(_takes(network, product, gain) for product in products):
            _move(network, draft, gain, products)
    return draft.finished()


def _gain(network: Network, norm: Node) -> _Gain | None:
    """The scale after a norm, and the shift after that, each the only reader of the value before it."""
    x = result = norm.outputs[0]
    nodes: list[Node] = []
    width = network.shape(x)[-1]
    scale, shift = (TracedArray.of(value).broadcast(width) for value in (1.0, 0.0))
    for op_type in ("Mul", "Add"):
        readers = network.readers.get(result, ())
        vector = _vector(network, readers[0], result) if len(readers) == 1 and result not in network.outputs else ""
        if not vector or readers[0].op_type != op_type:
            continue
        given = network.traced(vector).reshape(-1).broadcast(width)
        scale, shift = (given, shift) if op_type == "Mul" else (scale, given)
        nodes.append(readers[0])
        result = readers[0].outputs[0]
    if not nodes or result in network.outputs or not np.all(scale.array):
        return None
    return _Gain(x, result, tuple(nodes), scale, shift)


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
    weights, scale = matrix.astype(np.float64), gain.scale.float64[:, None]
    with np.errstate(invalid="ignore"):  # with an infinite scale nothing is exact
        errors = np.linalg.norm(network.rounding.rounded(weights * scale) / scale - weights, axis=0)
    exact = np.all(errors <= network.rounding.unit * np.linalg.norm(weights, axis=0))
    return bool(exact and np.all(np.isfinite(network.rounding.rounded(_bias(network, node, gain).float64))))


def _bias(network: Network, node: Node, gain: _Gain) -> TracedArray:
    own = network.traced(node.input(2)).reshape(-1) if node.input(2) else TracedArray.of(0.0)
    product = gain.shift.reshape(1, -1).product(network.traced(node.inputs[1]))
    return own + product.reshape(-1)


def _move(network: Network, draft: Draft, gain: _Gain, products: tuple[Node, ...]) -> None:
    known = network.origins.get(gain.result)
    name, part = (known.name, known.part) if known else (gain.result, None)
    draft.value(gain.x, network.values[gain.x], Origin(name, gain.scale.float64, gain.shift.float64, part, axis=-1))
    for node in gain.nodes:
        draft.exchange(node)
    for node in products:
        scaled = draft.store(f"{node.name}::gained", network.traced(node.inputs[1]) * gain.scale.reshape(-1, 1))
        bias = draft.store(f"{node.name}::shifted", _bias(network, node, gain))
        draft.exchange(node, replace(node, inputs=(gain.x, scaled, bias)))
