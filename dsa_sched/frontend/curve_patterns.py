"""Activations that a file spells out, found again as the operators that they are, for targets that want these whole.

    x * 0.5 * (1 + Erf(x / 1.4142))                      -->  Gelu(x)
    0.5 * x * (1 + Tanh(0.7979 * (x + 0.0447 * x^3)))    -->  Gelu(x, approximate=tanh)
    x * Tanh(Softplus(x))                                -->  Mish(x)
    x * Sigmoid(x)                                       -->  Swish(x)

Sums, products and powers around the curve are read as a polynomial in x and in the curve's value, so that it does not
matter how a file orders or groups them. Values in between that something else reads stay beside the new operator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import pi, sqrt

import numpy as np

from dsa_sched.frontend.network import Network, Node, Setting

__all__ = ["find_curves"]

Powers = tuple[int, int]
"""Exponents of x and of the curve's value."""
Polynomial = Mapping[Powers, float]

TOLERANCE = 1e-3
"""Of a coefficient: files have them in half precision, too."""
MOST_DEGREES = 4
MOST_NODES = 12
"""Of a polynomial; and between a curve and the end of its operator."""

HALF_OF_BOTH: Polynomial = {(1, 0): 0.5, (1, 1): 0.5}
PRODUCT: Polynomial = {(1, 1): 1.0}


@dataclass(frozen=True, slots=True)
class Form:
    """An operator as `whole`(x, curve(inner(x)))."""

    op_type: str
    settings: tuple[tuple[str, Setting], ...]
    curve: str
    inner: Polynomial
    whole: Polynomial


FORMS = (
    Form("Gelu", (("approximate", "none"),), "Erf", {(1, 0): sqrt(0.5)}, HALF_OF_BOTH),
    Form(
        "Gelu",
        (("approximate", "tanh"),),
        "Tanh",
        {(1, 0): sqrt(2 / pi), (3, 0): 0.044715 * sqrt(2 / pi)},
        HALF_OF_BOTH,
    ),
    Form("Swish", (), "Sigmoid", {(1, 0): 1.0}, PRODUCT),
)
MISH = "Mish"


def find_curves(network: Network, whole: frozenset[str]) -> Network:
    """The network with every activation of `whole` that it spells out as one node; what nothing reads is left."""
    found: dict[str, Node] = {}
    for node in network.nodes:
        for end, op_type, x, settings in _ends(network, node, whole):
            found[end.name] = replace(end, op_type=op_type, inputs=(x,), settings=settings)
            break
    return replace(network, nodes=tuple(found.get(node.name, node) for node in network.nodes)) if found else network


def _ends(
    network: Network, curve: Node, whole: frozenset[str]
) -> Iterator[tuple[Node, str, str, tuple[tuple[str, Setting], ...]]]:
    """The last node of an operator around a curve, its type, what it reads and its settings."""
    for form in FORMS:
        if form.op_type in whole and curve.op_type == form.curve:
            x = _variable(network, curve.inputs[0])
            if x and _alike(_polynomial(network, curve.inputs[0], {x: (1, 0)}), form.inner):
                for end in _climbed(network, curve, x, form.whole):
                    yield end, form.op_type, x, form.settings
    inner = network.producer.get(curve.inputs[0]) if curve.inputs else None
    if MISH in whole and curve.op_type == "Tanh" and inner is not None and inner.op_type == "Softplus":
        for end in _climbed(network, curve, inner.inputs[0], PRODUCT):
            yield end, MISH, inner.inputs[0], ()


def _climbed(network: Network, curve: Node, x: str, wanted: Polynomial) -> Iterator[Node]:
    """The node behind a curve whose value is the wanted polynomial in x and the curve's value."""
    node, seen = curve, {x: (1, 0), curve.outputs[0]: (0, 1)}
    for _ in range(MOST_NODES):
        readers = network.readers.get(node.outputs[0], ())
        if len(readers) != 1 or node.outputs[0] in network.outputs:
            return
        node = readers[0]
        polynomial = _polynomial(network, node.outputs[0], seen)
        if polynomial is None:
            return
        if _alike(polynomial, wanted) and _shape(network, node.outputs[0]) == _shape(network, x):
            yield node
            return


def _shape(network: Network, name: str) -> tuple[int, ...] | None:
    return network.values[name].shape if name in network.values else None


def _variable(network: Network, name: str) -> str:
    """The one value that an expression of constants depends on, where it has several elements at most of them; empty
    where there is none or are several."""
    waiting, found, steps = [name], dict[str, None](), 0
    while waiting:
        steps += 1
        current = waiting.pop()
        node = network.producer.get(current)
        if current in network.constants:
            continue
        if steps > MOST_NODES or node is None or node.op_type not in ARITHMETIC:
            found[current] = None
            continue
        waiting += node.inputs
    return next(iter(found)) if len(found) == 1 else ""


def _alike(polynomial: Polynomial | None, wanted: Polynomial) -> bool:
    return (
        polynomial is not None
        and polynomial.keys() == wanted.keys()
        and all(abs(polynomial[powers] - value) <= TOLERANCE * abs(value) for powers, value in wanted.items())
    )


ARITHMETIC = frozenset(["Add", "Sub", "Mul", "Div", "Neg", "Pow", "Identity", "Cast", "Dropout"])


def _polynomial(network: Network, name: str, known: Mapping[str, Powers], depth: int = 0) -> Polynomial | None:
    """The value as a polynomial of known values; None where it is none, or one of too many terms."""
    if name in known:
        return {known[name]: 1.0}
    if name in network.constants:
        array = network.constants[name]
        return {(0, 0): float(array.reshape(-1)[0])} if array.size == 1 and np.isfinite(array).all() else None
    node = network.producer.get(name)
    if node is None or node.op_type not in ARITHMETIC or depth > MOST_NODES:
        return None
    if node.op_type == "Dropout" and node.input(2):
        return None
    first = _polynomial(network, node.inputs[0], known, depth + 1)
    if first is None or node.op_type in ("Identity", "Cast", "Dropout"):
        return first
    if node.op_type == "Neg":
        return _times(first, {(0, 0): -1.0})
    second = _polynomial(network, node.inputs[1], known, depth + 1)
    if second is None:
        return None
    match node.op_type:
        case "Add":
            return _plus(first, second)
        case "Sub":
            return _plus(first, _times(second, {(0, 0): -1.0}))
        case "Mul":
            return _times(first, second)
        case "Div" if second.keys() == {(0, 0)} and second[0, 0]:
            return _times(first, {(0, 0): 1 / second[0, 0]})
        case "Pow" if second.keys() == {(0, 0)} and second[0, 0] in (2.0, 3.0):
            square = _times(first, first)
            return square if second[0, 0] == 2.0 else _times(square, first)
    return None


def _plus(a: Polynomial | None, b: Polynomial | None) -> Polynomial | None:
    if a is None or b is None:
        return None
    return {powers: a.get(powers, 0.0) + b.get(powers, 0.0) for powers in sorted({*a, *b})}


def _times(a: Polynomial | None, b: Polynomial | None) -> Polynomial | None:
    if a is None or b is None:
        return None
    product: dict[Powers, float] = {}
    for (i, j), first in a.items():
        for (k, m), second in b.items():
            powers = (i + k, j + m)
            if sum(powers) > MOST_DEGREES:
                return None
            product[powers] = product.get(powers, 0.0) + first * second
    return product
