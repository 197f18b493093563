"""A softmax that a file spells out, found again as the operator that it is.

    e = Exp(x - ReduceMax(x))      e / ReduceSum(e), e * Reciprocal(ReduceSum(e))  -->  Softmax(x)

Both reductions are along the same single axis. Without the maximum it is the same function, and may overflow.
Where no Softmax can be in its place (several axes; an inner axis before operator set 13), the maximum is subtracted. A
number that is added to the sum against divisions by zero does not count where the maximum was subtracted: the sum is 1
at least.
"""

from __future__ import annotations

from dsa_sched.frontend.decomposition.norms import reduced_axes
from dsa_sched.frontend.network.chain import Chain, Shape
from dsa_sched.frontend.network.matching import Captured, PatternRule, either, matches, number, op, value
from dsa_sched.frontend.network.network import Network
from dsa_sched.frontend.network.queries import reader_of

LARGEST_GUARD = 2.0**-12
"""Positive number below which an addition to a sum of fp16 that is at least 1 changes nothing."""

EXPONENTIAL = op("Exp", value("exponent"), name="e")
TOTAL = op("ReduceSum", EXPONENTIAL, name="total")
DIVISOR = either(TOTAL, op("Add", TOTAL, number(name="guard", low=0.0, high=LARGEST_GUARD)))
SOFTMAX = either(op("Div", EXPONENTIAL, DIVISOR), op("Mul", EXPONENTIAL, op("Reciprocal", DIVISOR)))
BELOW_MAXIMUM = op("Sub", value("x"), op("ReduceMax", value("x"), name="maximum"))


def _write(chain: Chain, found: Captured) -> None:
    network, exponent = chain.network, found.values["exponent"]
    shape, axes = network.known_shape(exponent), _axes(network, found.values["total"])
    if not shape or not axes or chain.shape(chain.node.outputs[0]) != shape:
        return
    x = _less_maximum(network, exponent, axes)
    if x == exponent and "guard" in found.numbers:
        return
    if len(axes) == 1 and (network.opset >= 13 or axes[0] == len(shape) - 1):
        chain.add("Softmax", x, shape=shape, settings=(("axis", axes[0]),))
    elif x == exponent:  # until opset 12 a Softmax is along all axes from its own on
        powers = chain.add("Exp", chain.add("Sub", x, chain.reduced("ReduceMax", x, axes)))
        chain.add("Div", powers, chain.reduced("ReduceSum", powers, axes))


def _axes(network: Network, reduced: str) -> Shape | None:
    """The axes of a reduction, which stay with one element."""
    node = network.producer[reduced]
    axes = reduced_axes(network, node) if network.known_shape(node.inputs[0]) else None
    return axes if axes is not None and node.integer("keepdims", 1) else None


def _less_maximum(network: Network, name: str, axes: Shape) -> str:
    """x where the value is x - max(x) along the axes, which serves nothing else; else the value itself."""
    for found in matches(network, BELOW_MAXIMUM, name):
        if reader_of(network, name) is not None and _axes(network, found.values["maximum"]) == axes:
            return found.values["x"]
    return name


SOFTMAXES = (PatternRule(SOFTMAX, _write),)
