"""A softmax that a file spells out, found again as the operator that it is.

    e = Exp(x - ReduceMax(x))      e / ReduceSum(e), e * Reciprocal(ReduceSum(e))  -->  Softmax(x)

Both reductions are along the same single axis. Without the maximum it is the same function, and may overflow.
Where no Softmax can be in its place (several axes; an inner axis before operator set 13), the maximum is subtracted. A
number that is added to the sum against divisions by zero does not count where the maximum was subtracted: the sum is 1
at least.
"""

from __future__ import annotations

from collections.abc import Iterator

from dsa_sched.frontend.decomposition.norms import reduced_axes
from dsa_sched.frontend.network.chain import Chain, Shape
from dsa_sched.frontend.network.network import Network, Node
from dsa_sched.frontend.patterns.pattern_search import Match, made_for, number_of

LARGEST_GUARD = 2.0**-12
"""Positive number below which an addition to a sum of fp16 that is at least 1 changes nothing."""


def softmax_matches(network: Network) -> Iterator[Match]:
    for node in network.nodes:
        if node.op_type == "Div":
            yield from _softmax(network, node, *node.inputs)
        elif node.op_type == "Mul":
            for e, inverse in (node.inputs, node.inputs[::-1]):
                made = made_for(network, inverse, "Reciprocal")
                if made is not None:
                    yield from _softmax(network, node, e, made.inputs[0])


def _softmax(network: Network, end: Node, e: str, divisor: str) -> Iterator[Match]:
    exp = network.producer.get(e)
    if exp is None or exp.op_type != "Exp":
        return
    total = _sum(network, divisor, exp)
    shape, axes = network.known_shape(e), _axes(network, total) if total is not None else None
    if not shape or not axes or network.known_shape(end.outputs[0]) != shape:
        return
    x = _less_maximum(network, exp.inputs[0], axes)
    if len(axes) == 1 and (network.opset >= 13 or axes[0] == len(shape) - 1):
        settings = (("axis", axes[0]),)
        yield Match(end, lambda chain: chain.add("Softmax", x, shape=shape, settings=settings))
    elif x == exp.inputs[0]:  # until opset 12 a Softmax is along all axes from its own on
        yield Match(end, lambda chain: _below_maximum(chain, x, axes))


def _sum(network: Network, divisor: str, exp: Node) -> Node | None:
    """The sum of the exponentials that is divided by, or such a sum and a guard."""
    total = network.producer.get(divisor)
    if total is not None and total.op_type == "Add" and made_for(network, exp.inputs[0], "Sub") is not None:
        for name, guard in (total.inputs, total.inputs[::-1]):
            if 0 <= (number_of(network, guard) or -1.0) <= LARGEST_GUARD:
                total = network.producer.get(name)
                axes = _axes(network, total) if total is not None else None
                if axes is None or _less_maximum(network, exp.inputs[0], axes) == exp.inputs[0]:
                    return None
                break
    return total if total is not None and total.op_type == "ReduceSum" and total.inputs[0] == exp.outputs[0] else None


def _below_maximum(chain: Chain, x: str, axes: Shape) -> None:
    kept = tuple(1 if axis in axes else extent for axis, extent in enumerate(chain.shape(x)))
    settings = (("axes", axes), ("keepdims", 1))
    powers = chain.add("Exp", chain.add("Sub", x, chain.add("ReduceMax", x, shape=kept, settings=settings)))
    chain.add("Div", powers, chain.add("ReduceSum", powers, shape=kept, settings=settings))


def _axes(network: Network, node: Node) -> Shape | None:
    """The axes of a reduction, which stay with one element."""
    axes = reduced_axes(network, node) if network.known_shape(node.inputs[0]) else None
    return axes if axes is not None and node.integer("keepdims", 1) else None


def _less_maximum(network: Network, name: str, axes: Shape) -> str:
    """x where the value is x - max(x) along the axes, which serves nothing else; else the value itself."""
    node = made_for(network, name, "Sub")
    maximum = network.producer.get(node.inputs[1]) if node is not None else None
    if node is None or maximum is None or maximum.op_type != "ReduceMax" or maximum.inputs[0] != node.inputs[0]:
        return name
    return node.inputs[0] if _axes(network, maximum) == axes else name
