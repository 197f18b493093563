"""Numbers that guard a division or a root against zero, where fp16 would make zero of them.

    y / Max(s, 1e-12), y / Clip(s, 1e-12)    -->  y / Max(s, 2^-14)
    y / (s + 1e-9), s never negative         -->  y / Max(s, 2^-14)
    y / (s + 1e-5), s never negative         -->  y / Max(s + 1e-5, 2^-14)
    y / (s + 1e-9), s of either sign         -->  y / (s + 2^-14 where s is zero)
    y / Sqrt(s + 1e-12)                      -->  y / Sqrt(Max(s, 2^-24))

2^-14 is the smallest normal number of fp16, the smallest whose reciprocal is finite on engines; 2^-24 is the
smallest number of all. Where the guard is raised, results differ as far as the file divides by less
than that. Values that only move between guard and division are followed.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dsa_sched.frontend.network.chain import Chain
from dsa_sched.frontend.network.draft import rewritten
from dsa_sched.frontend.network.network import FLOATING, Network, Node
from dsa_sched.frontend.network.queries import bounds_of, exponent_of, is_computed
from dsa_sched.frontend.patterns.mean_patterns import square_of
from partitioner.ir.operators import REARRANGING, Trait, onnx_names

MOST_NODES = 16

MOVES = onnx_names(*REARRANGING)

DECIDED = (
    "kept in range: guard of a division",
    "raised, since fp16 has no normal number as small",
)
"""Verdict and reason, for explanations."""


def raise_guards(network: Network) -> Network:
    """All guards of divisors raised where fp16 has no number for them."""
    guards = dict(guard for name, root in _divisors(network) for guard in _guards(network, name, root))

    def write(chain: Chain, node: Node) -> bool:
        return node.outputs[0] in guards and _write(network, chain, node, guards[node.outputs[0]])

    return rewritten(network, write, tag="ranged", decided=DECIDED)


def _divisors(network: Network) -> Iterator[tuple[str, bool]]:
    """Every value that is a divisor, and whether its root is."""
    for node in network.nodes:
        match node.op_type:
            case "Div":
                yield node.inputs[1], False
            case "Reciprocal":
                yield node.inputs[0], False
            case "Pow" if (exponent := exponent_of(network, node)) is not None and exponent < 0:
                yield node.inputs[0], exponent >= -0.5


def _guards(network: Network, name: str, root: bool) -> Iterator[tuple[str, float]]:
    """The guards of a divisor, each with the smallest number that it must be."""
    waiting = [(name, root)]
    for _ in range(MOST_NODES):
        if not waiting:
            return
        name, root = waiting.pop()
        node = network.producer.get(name)
        if node is None or network.known_shape(name) is None or network.values[name].dtype not in FLOATING:
            continue
        if node.op_type in MOVES:
            waiting += [(operand, root) for operand in _numbers(network, node)]
        elif node.op_type == "Sqrt":
            waiting.append((node.inputs[0], True))
        elif node.op_type in ("Add", "Max", "Clip"):
            yield name, network.rounding.smallest if root else network.rounding.smallest_normal


def _write(network: Network, chain: Chain, node: Node, least: float) -> bool:
    """The node with its guard raised to `least`; False where it is large enough, or none."""
    found = _guard(network, node)
    if found is None or not 0 < found[1] < least:
        return False
    x, _, largest = found
    no_number = network.rounding.smallest / 2  # a positive number up to this becomes zero
    if node.op_type != "Add" or _is_nonnegative(network, x):
        counts = largest > (no_number if node.op_type == "Add" else least)
        held = chain.add(node.op_type, *node.inputs) if counts else x
        chain.add("Max", held, chain.number(least), shape=network.shape(node.outputs[0]))
    elif largest <= no_number:
        step = network.rounding.largest_power  # its square times the smallest number is more than one
        far = chain.add("Mul", chain.add("Mul", chain.add("Abs", x), chain.number(step)), chain.number(step))
        at_zero = chain.add("Sub", chain.number(1.0), chain.add("Min", far, chain.number(1.0)))
        chain.add("Add", x, chain.add("Mul", at_zero, chain.number(least)))
    else:
        return False
    return True


def _guard(network: Network, node: Node) -> tuple[str, float, float] | None:
    """The value that a node guards, and the smallest and the largest number with which it does so."""
    if node.op_type == "Clip":
        low, high = bounds_of(network, node)
        wide = high is not None and high >= network.rounding.largest
        return (node.inputs[0], low, low) if low is not None and wide else None
    for x, constant in (node.inputs, node.inputs[::-1]) if len(node.inputs) == 2 else ():
        array = network.constants.get(constant)
        same = network.known_shape(x) == network.known_shape(node.outputs[0])
        if array is not None and array.dtype.kind in "fV" and array.size and same and is_computed(network, x):
            guards = array.astype(np.float64)
            return x, float(guards.min()), float(guards.max())
    return None


def _is_nonnegative(network: Network, name: str, steps: int = MOST_NODES) -> bool:
    """Whether a value cannot be negative, by the nodes that make it."""
    constant, node = network.constants.get(name), network.producer.get(name)
    if constant is not None:
        return constant.dtype.kind in "fV" and bool((constant.astype(np.float64) >= 0).all())
    if node is None or not steps:
        return False
    match node.op_type:
        case op_type if op_type in NEVER_NEGATIVE:
            return True
        case "Mul" | "Pow" if square_of(network, name):
            return True
        case "Clip":
            low, _ = bounds_of(network, node)
            return (low is not None and low >= 0) or _is_nonnegative(network, node.inputs[0], steps - 1)
        case "Max":
            return any(_is_nonnegative(network, operand, steps - 1) for operand in node.inputs)
        case op_type if op_type in KEEPS_SIGN:
            numbers = _numbers(network, node)  # none where integers become numbers
            return bool(numbers) and all(_is_nonnegative(network, operand, steps - 1) for operand in numbers)
    return False


def _numbers(network: Network, node: Node) -> list[str]:
    """The operands of a node that are floating-point numbers: not the shape, axes or indices that it may read too."""
    return [
        name
        for name in node.inputs
        if (name in network.constants and network.constants[name].dtype.kind in "fV")
        or (name in network.values and network.values[name].dtype in FLOATING)
    ]


NEVER_NEGATIVE = onnx_names(Trait.NEVER_NEGATIVE)
KEEPS_SIGN = onnx_names(Trait.KEEPS_SIGN) | MOVES
