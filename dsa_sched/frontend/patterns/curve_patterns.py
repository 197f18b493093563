"""Activations that a file spells out, found again as the operators that they are.

    x * 0.5 * (1 + Erf(x / 1.4142))                      -->  Gelu(x)
    0.5 * x * (1 + Tanh(0.7979 * (x + 0.0447 * x^3)))    -->  Gelu(x, approximate=tanh)
    x * Sigmoid(1.5958 * (x + 0.0447 * x^3))             -->  Gelu(x, approximate=tanh)
    x * Tanh(Softplus(x))                                -->  Mish(x)
    x * Sigmoid(x), x * Sigmoid(1.702 * x)               -->  Swish(x), Swish(x, alpha=1.702)
    x * Clip(x + 3, 0, 6) / 6, x * HardSigmoid(x, 1/6)   -->  HardSwish(x)

Sums, products and powers around the curve are read as a polynomial in x and in the curve's value, so that it does not
matter how a file orders or groups them. Values in between that something else reads stay next to the new operator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import pi, sqrt

import numpy as np

from dsa_sched.frontend.network.chain import Settings
from dsa_sched.frontend.network.matching import Match, either, matches, number, op, value
from dsa_sched.frontend.network.network import Network, Node
from dsa_sched.frontend.network.queries import bounds_of, is_computed, number_of
from partitioner.ir.operators import Trait, onnx_names

Powers = tuple[int, int]
"""Exponents of x and of the curve's value."""
Polynomial = Mapping[Powers, float]

TOLERANCE = 1e-3
"""Relative tolerance of a coefficient: some files have it in fp16."""
MOST_DEGREES = 4
MOST_NODES = 12
"""Largest number of nodes of a polynomial, and between a curve and the end of its operator."""

HALF_OF_BOTH: Polynomial = {(1, 0): 0.5, (1, 1): 0.5}
PRODUCT: Polynomial = {(1, 1): 1.0}


@dataclass(frozen=True, slots=True)
class CurveForm:
    """An operator as `whole`(x, curve(inner(x)))."""

    op_type: str
    settings: Settings
    curve: str
    inner: Polynomial
    whole: Polynomial


FORMS = (
    CurveForm("Gelu", (("approximate", "none"),), "Erf", {(1, 0): sqrt(0.5)}, HALF_OF_BOTH),
    CurveForm(
        "Gelu",
        (("approximate", "tanh"),),
        "Tanh",
        {(1, 0): sqrt(2 / pi), (3, 0): 0.044715 * sqrt(2 / pi)},
        HALF_OF_BOTH,
    ),
    CurveForm(
        "Gelu",
        (("approximate", "tanh"),),
        "Sigmoid",
        {(1, 0): 2 * sqrt(2 / pi), (3, 0): 2 * 0.044715 * sqrt(2 / pi)},
        PRODUCT,
    ),
)

RAMP = either(
    op("HardSigmoid|Clip", value("x")),
    op("Min", either(op("Relu", value("x")), op("Max", value("x"), number(0.0))), number(name="high")),
)


def curve_matches(network: Network) -> Iterator[Match]:
    """Every activation that the network spells out."""
    for node in network.nodes:
        if node.op_type in ("Erf", "Tanh", "Sigmoid"):
            found = next(_ends(network, node), None)
        else:
            found = next(_hard_swish(network, node), None)
        if found is not None:
            yield found


def _ends(network: Network, curve: Node) -> Iterator[Match]:
    """The operator around a curve, for each value that could be its x."""
    inner = network.producer.get(curve.inputs[0])
    if curve.op_type == "Tanh" and inner is not None and inner.op_type == "Softplus":
        yield from _whole(network, curve, "Mish", inner.inputs[0], (), PRODUCT)
    for x in _variables(network, curve.inputs[0]):
        polynomial = _Polynomials(network, {x: (1, 0)}).of(curve.inputs[0])
        for form in FORMS:
            if curve.op_type == form.curve and _alike(polynomial, form.inner):
                yield from _whole(network, curve, form.op_type, x, form.settings, form.whole)
        if curve.op_type == "Sigmoid" and polynomial is not None and polynomial.keys() == {(1, 0)}:
            yield from _whole(network, curve, "Swish", x, (("alpha", polynomial[1, 0]),), PRODUCT)


def _hard_swish(network: Network, curve: Node) -> Iterator[Match]:
    """The operator around a ramp from 0 to `high` whose inner part is x / 6 + 1/2, divided by `high`."""
    ramp = _ramp(network, curve)
    if ramp is None:
        return
    name, slope, middle, high = ramp
    for x in _variables(network, name):
        polynomial = _Polynomials(network, {x: (1, 0)}).of(name)
        if polynomial is None or not polynomial.keys() <= {(1, 0), (0, 0)}:
            continue
        steepness, offset = slope * polynomial.get((1, 0), 0.0), slope * polynomial.get((0, 0), 0.0) + middle
        if _alike({(1, 0): steepness / high, (0, 0): offset / high}, {(1, 0): 1 / 6, (0, 0): 0.5}):
            yield from _whole(network, curve, "HardSwish", x, (), {(1, 1): 1 / high})


def _ramp(network: Network, node: Node) -> tuple[str, float, float, float] | None:
    """x, a, b and c of a node that computes a * x + b, held between 0 and c > 0."""
    for found in matches(network, RAMP, node.outputs[0]):
        x, high = found.values["x"], found.numbers.get("high")
        if node.op_type == "HardSigmoid":
            return x, node.number("alpha", 0.2), node.number("beta", 0.5), 1.0
        if node.op_type == "Clip":
            low, high = bounds_of(network, node)
            high = high if low == 0 else None
        return (x, 1.0, 0.0, high) if high and 0 < high < np.inf else None
    return None


def _whole(
    network: Network, curve: Node, op_type: str, x: str, settings: Settings, wanted: Polynomial
) -> Iterator[Match]:
    for end in _climbed(network, curve, x, wanted):
        yield Match(end, lambda chain: chain.add(op_type, x, shape=network.shape(x), settings=settings))


def _climbed(network: Network, curve: Node, x: str, wanted: Polynomial) -> Iterator[Node]:
    """The node after a curve whose value is the wanted polynomial in x and the curve's value."""
    node, seen = curve, {x: (1, 0), curve.outputs[0]: (0, 1)}
    for _ in range(MOST_NODES):
        readers = network.readers.get(node.outputs[0], ())
        if len(readers) != 1 or node.outputs[0] in network.outputs:
            return
        node = readers[0]
        polynomial = _Polynomials(network, seen).of(node.outputs[0])
        if polynomial is None:
            return
        if _alike(polynomial, wanted) and network.known_shape(node.outputs[0]) == network.known_shape(x) is not None:
            yield node
            return


def _variables(network: Network, name: str) -> Iterator[str]:
    """Values that an expression of sums, products and powers may be of, the nearest first."""
    waiting, seen = [name], dict.fromkeys([name])
    for current in waiting:
        if len(seen) > MOST_NODES:
            return
        yield current
        node = network.producer.get(current)
        if node is not None and node.op_type in ARITHMETIC:
            more = [operand for operand in node.inputs if is_computed(network, operand) and operand not in seen]
            seen |= dict.fromkeys(more)
            waiting += more


def _alike(polynomial: Polynomial | None, wanted: Polynomial) -> bool:
    return (
        polynomial is not None
        and polynomial.keys() == wanted.keys()
        and all(abs(polynomial[powers] - value) <= TOLERANCE * abs(value) for powers, value in wanted.items())
    )


PASSED = onnx_names(Trait.ELEMENTWISE | Trait.VIEW) | {"Cast"}
ARITHMETIC = PASSED | {"Add", "Sub", "Mul", "Div", "Neg", "Pow"}


@dataclass
class _Polynomials:
    """Values as polynomials of known values, each computed once."""

    network: Network
    known: Mapping[str, Powers]
    found: dict[str, Polynomial | None] = field(default_factory=dict)

    def of(self, name: str, depth: int = 0) -> Polynomial | None:
        """None where it is none, or one of too many terms or nodes."""
        if name not in self.found:
            self.found[name] = self._of(name, depth)
        return self.found[name]

    def _of(self, name: str, depth: int) -> Polynomial | None:
        if name in self.known:
            return {self.known[name]: 1.0}
        if name in self.network.constants:
            value = number_of(self.network, name)
            return {(0, 0): value} if value is not None and np.isfinite(value) else None
        node = self.network.producer.get(name)
        if node is None or node.op_type not in ARITHMETIC or depth > MOST_NODES:
            return None
        if node.op_type == "Dropout" and node.input(2):
            return None
        first = self.of(node.inputs[0], depth + 1)
        if first is None or node.op_type in PASSED:
            return first
        if node.op_type == "Neg":
            return _times(first, {(0, 0): -1.0})
        second = self.of(node.inputs[1], depth + 1)
        return None if second is None else _combined(node.op_type, first, second)


def _combined(op_type: str, first: Polynomial, second: Polynomial) -> Polynomial | None:
    match op_type:
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
