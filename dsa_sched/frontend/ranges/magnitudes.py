"""Roots of sums of squares, element by element: what is squared is first divided by the largest of all magnitudes.

    Sqrt(a * a + b * b + e)  -->  4 l * Sqrt((a / 4l)^2 + (b / 4l)^2 + e / (4l)^2), 4 l = Max(|a|, |b|, sqrt(e))

Everything is divided by four first, so that 1 / l is not subnormal for the largest values. Logarithms of such sums
(`logarithms.py`) use this too.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from dsa_sched.frontend.network.chain import Chain
from dsa_sched.frontend.network.draft import rewritten
from dsa_sched.frontend.network.network import FLOATING, Network, Node
from dsa_sched.frontend.network.queries import exponent_of, factor_of, number_of
from dsa_sched.frontend.patterns.mean_patterns import square_of

MOST_TERMS = 8

DECIDED = (
    "kept in range: root of squares",
    "of what is squared over the largest magnitude, so that no square leaves the range of fp16",
)
"""Verdict and reason, for explanations."""


@dataclass(frozen=True, slots=True)
class SquareSum:
    """The sum of coefficient * x * x over all terms (x, coefficient), and of a constant that is not negative."""

    terms: tuple[tuple[str, float], ...]
    constant: float


def scale_roots(network: Network) -> Network:
    """All roots of this form; nodes that nothing reads any more are left to be pruned."""

    def write(chain: Chain, node: Node) -> bool:
        squares = square_sum(network, node.inputs[0]) if _is_root(network, node) else None
        if squares is not None:
            _write(chain, squares)
        return squares is not None

    return rewritten(network, write, tag="ranged", decided=DECIDED)


def _is_root(network: Network, node: Node) -> bool:
    return node.op_type == "Sqrt" or (node.op_type == "Pow" and exponent_of(network, node) == 0.5)


def square_sum(network: Network, name: str) -> SquareSum | None:
    """The squares and positive numbers of which a value is the sum, if the squares are of values of its own shape."""
    shape = network.known_shape(name)
    terms: list[tuple[str, float]] = []
    constant, waiting = 0.0, [(name, 1.0)]
    while waiting:
        current, coefficient = waiting.pop()
        node = network.producer.get(current)
        if (number := number_of(network, current)) is not None and number >= 0:
            constant += coefficient * number
        elif (x := square_of(network, current)) and network.known_shape(x) == shape:
            terms.append((x, coefficient))
        elif node is not None and node.op_type == "Add":
            waiting += [(operand, coefficient) for operand in node.inputs]
        elif (factor := factor_of(network, node)) is not None and factor[1] > 0:
            waiting.append((factor[0], coefficient * factor[1]))
        else:
            return None
        if len(terms) + len(waiting) > MOST_TERMS:
            return None
    floating = all(network.values[x].dtype in FLOATING for x, _ in terms)
    return SquareSum(tuple(reversed(terms)), constant) if terms and shape is not None and floating else None


def _write(chain: Chain, squares: SquareSum) -> None:
    if len(squares.terms) == 1 and squares.constant == 0:
        x, coefficient = squares.terms[0]
        chain.add("Abs", x if coefficient == 1.0 else chain.add("Mul", x, chain.number(sqrt(coefficient))))
        return
    total, largest = write_scaled(chain, squares)
    chain.add("Mul", chain.add("Mul", chain.add("Sqrt", total), largest), chain.number(4.0))


def write_scaled(chain: Chain, squares: SquareSum) -> tuple[str, str]:
    """The sum of squares of all terms over 4 * `largest`, and that: a quarter of the largest magnitude."""
    quarters = [chain.add("Mul", x, chain.number(sqrt(factor) / 4)) for x, factor in squares.terms]
    largest = chain.add("Abs", quarters[0])
    for quarter in quarters[1:]:
        largest = chain.add("Max", largest, chain.add("Abs", quarter))
    root, least = sqrt(squares.constant) / 4, chain.network.rounding.smallest_normal
    largest = chain.add("Max", largest, chain.number(max(root, least)))
    inverse = chain.add("Reciprocal", largest)
    parts = [chain.add("Mul", quarter, inverse) for quarter in quarters]
    if root > 0:  # through 2^-14 / l, because the root alone may be no normal number
        parts.append(chain.add("Mul", chain.add("Mul", inverse, chain.number(least)), chain.number(root / least)))
    total = chain.add("Mul", parts[0], parts[0])
    for part in parts[1:]:
        total = chain.add("Add", total, chain.add("Mul", part, part))
    return total, largest
