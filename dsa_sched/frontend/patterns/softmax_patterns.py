"""A softmax that a file spells out, found again as the operator that it is.

    e = Exp(x - ReduceMax(x))      e / ReduceSum(e)  -->  Softmax(x)

Along one axis, the same for both reductions. Without the maximum it is the same function, and one that overflows later.
"""

from __future__ import annotations

from collections.abc import Iterator

from dsa_sched.frontend.decomposition.norms import reduced_axes
from dsa_sched.frontend.network.network import Network, Node
from dsa_sched.frontend.patterns.pattern_search import Match, made_for, shape_of

__all__ = ["softmax_matches"]


def softmax_matches(network: Network) -> Iterator[Match]:
    for node in network.nodes:
        if node.op_type == "Div":
            yield from _softmax(network, node)


def _softmax(network: Network, end: Node) -> Iterator[Match]:
    e, sum_name = end.inputs
    total, exp = made_for(network, sum_name, "ReduceSum"), network.producer.get(e)
    if total is None or exp is None or exp.op_type != "Exp" or total.inputs[0] != e or e in network.outputs:
        return
    shape, axis = shape_of(network, e), _axis(network, total)
    if not shape or axis is None or shape_of(network, end.outputs[0]) != shape or len(network.readers[e]) != 2:
        return
    if network.opset < 13 and axis != len(shape) - 1:
        return  # until opset 12 a Softmax is along all axes from its own on
    x = _less_maximum(network, exp.inputs[0], axis)
    yield Match(end, lambda chain: chain.add("Softmax", x, shape=shape, settings=(("axis", axis),)))


def _axis(network: Network, node: Node) -> int | None:
    """The axis of a reduction along one, which stays with one element."""
    axes = reduced_axes(network, node) if shape_of(network, node.inputs[0]) else None
    return axes[0] if axes is not None and len(axes) == 1 and node.integer("keepdims", 1) else None


def _less_maximum(network: Network, name: str, axis: int) -> str:
    """x where the value is x - max(x) along the axis, which serves nothing else; else the value itself."""
    node = made_for(network, name, "Sub")
    maximum = network.producer.get(node.inputs[1]) if node is not None else None
    if node is None or maximum is None or maximum.op_type != "ReduceMax" or maximum.inputs[0] != node.inputs[0]:
        return name
    return node.inputs[0] if _axis(network, maximum) == axis else name
