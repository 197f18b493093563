"""Steps through a network, from a value to the nodes that make and read it, and to the numbers that they have."""

from __future__ import annotations

import numpy as np

from dsa_sched.frontend.network.network import Network, Node

MOST_ALIKE = 4
"""Largest depth, in nodes, to which two values are compared."""


def reader_of(network: Network, name: str, *op_types: str) -> Node | None:
    """The only node that reads a value, if it is of these types; None for outputs of the network."""
    readers = network.readers.get(name, ())
    alone = len(readers) == 1 and name not in network.outputs
    return readers[0] if alone and (not op_types or readers[0].op_type in op_types) else None


def made_for(network: Network, name: str, *op_types: str) -> Node | None:
    """The node of these types that makes a value which one node alone reads."""
    made = network.producer.get(name)
    return made if made is not None and made.op_type in op_types and reader_of(network, name) is not None else None


def number_of(network: Network, name: str) -> float | None:
    """A constant of one floating-point number; None for everything else."""
    array = network.constants.get(name)
    return float(array.reshape(-1)[0]) if array is not None and array.size == 1 and array.dtype.kind in "fV" else None


def exponent_of(network: Network, node: Node) -> float | None:
    """The one number that a Pow raises to, of any type; None where it is computed, or of several numbers."""
    array = network.constants.get(node.inputs[1])
    return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None


def bounds_of(network: Network, clip: Node) -> tuple[float | None, float | None]:
    """Lower and upper bound of a Clip, infinite where it has none; None for one that is computed."""
    low = number_of(network, clip.input(1)) if clip.input(1) else clip.number("min", -np.inf)
    high = number_of(network, clip.input(2)) if clip.input(2) else clip.number("max", np.inf)
    return low, high


def is_alike(network: Network, a: str, b: str, depth: int = MOST_ALIKE) -> bool:
    """Whether two values are one, or made of the same by the same nodes: exporters write some of them twice."""
    if a == b:
        return True
    if a in network.constants or b in network.constants:
        both = network.constants.get(a), network.constants.get(b)
        return both[0] is not None and both[1] is not None and np.array_equal(both[0], both[1])
    first, second = network.producer.get(a), network.producer.get(b)
    if first is None or second is None or not depth:
        return False
    same = first.op_type == second.op_type and first.settings == second.settings
    if not same or len(first.inputs) != len(second.inputs) or len(first.outputs) + len(second.outputs) != 2:
        return False
    return all(is_alike(network, one, other, depth - 1) for one, other in zip(first.inputs, second.inputs, strict=True))


def factor_of(network: Network, node: Node | None) -> tuple[str, float] | None:
    """x and c where the node is x * c or x / c, c one finite number that is not zero and gives x no more axes."""
    if node is None or node.op_type not in ("Mul", "Div") or len(node.inputs) != 2:
        return None
    first, second = node.inputs
    for x, constant in ((first, second),) if node.op_type == "Div" else ((first, second), (second, first)):
        value = number_of(network, constant)
        if value and np.isfinite(value) and network.known_shape(x) == network.known_shape(node.outputs[0]) is not None:
            return x, 1 / value if node.op_type == "Div" else value
    return None


def is_computed(network: Network, name: str) -> bool:
    return name in network.values and name not in network.constants
