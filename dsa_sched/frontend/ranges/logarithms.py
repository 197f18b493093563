"""Logarithms and powers with what they are of: functions that are computed as a whole, without fp16 in between.

    Log(x * x + 1e-10)                       -->  Formula(x), steps "square, add 1e-10, log"
    Log(Max(x, 1e-10)), (x + 1e-6) ^ -0.98   -->  Formula(x)
    Log(x * x + y * y + e)                   -->  2 Log(l) + Log((x / l)^2 + (y / l)^2 + e / l^2), l = Max(|x|, |y|)
    Log(x + v), v a vector of small numbers  -->  Log(Max(x + v, 2^-24))

A square of fp16 leaves the range beyond 255 and is zero below 2^-13, and so is a constant below 2^-25: the logarithm
has an ordinary result all the same. Powers have one exponent that is neither whole nor a multiple of 0.5. If something
else also reads a value in between, the steps begin after it.
"""

from __future__ import annotations

from math import log

import numpy as np

from dsa_sched.frontend.network.chain import Chain
from dsa_sched.frontend.network.draft import rewritten
from dsa_sched.frontend.network.network import FORMULA, Network, Node
from dsa_sched.frontend.network.queries import bounds_of, exponent_of, is_computed, number_of, reader_of
from dsa_sched.frontend.ranges.magnitudes import SquareSum, square_sum, write_scaled
from partitioner.ir.formula import Step, formula_text

MOST_STEPS = 16

DECIDED = (
    "kept in range: logarithm or power",
    "with what it is of, so that values in between may leave the range of fp16",
)
"""Verdict and reason, for explanations."""


def whole_logarithms(network: Network) -> Network:
    """All logarithms of this form; nodes that nothing reads any more are left to be pruned."""

    def write(chain: Chain, node: Node) -> bool:
        last = _last_step(network, node)
        known = network.known_shape(node.outputs[0]) is not None
        return last is not None and known and _write(network, chain, node, last)

    return rewritten(network, write, tag="ranged", decided=DECIDED)


def _last_step(network: Network, node: Node) -> Step | None:
    """The logarithm or power that a node computes."""
    if node.op_type == "Log":
        return "log", 0.0
    exponent = exponent_of(network, node) if node.op_type == "Pow" else None
    return ("power", exponent) if exponent is not None and exponent % 0.5 and np.isfinite(exponent) else None


def _write(network: Network, chain: Chain, node: Node, last: Step) -> bool:
    x, steps = _steps_before(network, node)
    if last[0] == "power":
        if steps:
            chain.add(FORMULA, x, settings=(("steps", formula_text((*steps, last))),))
        return bool(steps)
    squares = square_sum(network, node.inputs[0])
    if squares is not None and len(squares.terms) > 1:
        _of_squares(chain, squares)
    elif steps:
        chain.add(FORMULA, x, settings=(("steps", formula_text((*steps, last))),))
    elif _vector_guard(network, node.inputs[0]):
        chain.add("Log", chain.add("Max", node.inputs[0], chain.number(chain.network.rounding.smallest)))
    else:
        return False
    return True


def _of_squares(chain: Chain, squares: SquareSum) -> None:
    """Write the logarithm by the largest of all magnitudes, which is 4 * `largest`."""
    total, largest = write_scaled(chain, squares)
    result = chain.add("Add", chain.add("Log", total), chain.add("Mul", chain.add("Log", largest), chain.number(2.0)))
    result = chain.add("Add", result, chain.number(log(16.0)))
    if squares.constant > 0:
        chain.add("Max", result, chain.number(log(squares.constant)))


def _steps_before(network: Network, end: Node) -> tuple[str, tuple[Step, ...]]:
    """The value from which a chain of functions of one operand leads to a node, and what they do to it."""
    name, steps = end.inputs[0], list[Step]()
    shape = network.known_shape(name)
    while len(steps) < MOST_STEPS:
        node = network.producer.get(name)
        before = _before(network, node) if node is not None and reader_of(network, name) is not None else None
        if before is None or network.known_shape(before[0]) != shape or before[0] in network.constants:
            break
        name = before[0]
        steps[:0] = before[1]
    return name, tuple(steps)


def _before(network: Network, node: Node) -> tuple[str, tuple[Step, ...]] | None:
    """The operand of a function of one operand, and its steps; None for other nodes."""
    x = node.inputs[0]
    match node.op_type:
        case "Abs" | "Neg" | "Sqrt" | "Reciprocal":
            return x, ((node.op_type.lower(), 0.0),)
        case "Relu":
            return x, (("max", 0.0),)
        case "Mul" if x == node.inputs[1]:
            return x, (("square", 0.0),)
        case "Pow":
            return _power(x, exponent_of(network, node))
        case "Clip":
            low, high = bounds_of(network, node)
            if low is None or high is None:
                return None
            return x, tuple(step for step in (("max", low), ("min", high)) if np.isfinite(step[1]))
        case "Add" | "Sub" | "Mul" | "Div" | "Max" | "Min" if len(node.inputs) == 2:
            return _with_number(network, node)
    return None


def _power(x: str, exponent: float | None) -> tuple[str, tuple[Step, ...]] | None:
    steps = {2.0: ("square",), 0.5: ("sqrt",), -1.0: ("reciprocal",), -0.5: ("sqrt", "reciprocal")}
    if exponent is None or not np.isfinite(exponent):
        return None
    if exponent % 0.5:
        return x, (("power", exponent),)
    return (x, tuple((step, 0.0) for step in steps[exponent])) if exponent in steps else None


def _with_number(network: Network, node: Node) -> tuple[str, tuple[Step, ...]] | None:
    first, second = node.inputs
    for x, constant in ((first, second), (second, first)):
        number = number_of(network, constant)
        if number is None or not np.isfinite(number) or not is_computed(network, x):
            continue
        match node.op_type, x == first:
            case ("Add" | "Mul" | "Max" | "Min") as kind, _:
                return x, ((kind.lower(), number),)
            case "Sub", True:
                return x, (("add", -number),)
            case "Sub", False:
                return x, (("neg", 0.0), ("add", number))
            case "Div", True if number:
                return x, (("mul", 1 / number),)
            case "Div", False:
                return x, (("reciprocal", 0.0), ("mul", number))
    return None


def _vector_guard(network: Network, name: str) -> bool:
    """Whether positive numbers are added or are a lower bound, some of which are zero in fp16."""
    node = network.producer.get(name)
    if node is None or node.op_type not in ("Add", "Max"):
        return False
    known = [network.constants[operand] for operand in node.inputs if operand in network.constants]
    if len(known) != 1 or known[0].dtype.kind != "f":
        return False
    guards = known[0].astype(np.float64)
    return bool(((guards > 0) & (guards < network.rounding.smallest)).any())
