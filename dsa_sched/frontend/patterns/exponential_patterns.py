"""Functions that a file spells out by exponentials, found again as the operators that they are.

    1 / (1 + Exp(-x)), Exp(x) / (1 + Exp(x))                        -->  Sigmoid(x)
    y / (1 + Exp(-x))                                               -->  y * Sigmoid(x)
    (Exp(x) - Exp(-x)) / (Exp(x) + Exp(-x)), (Exp(2x) - 1) / (...)  -->  Tanh(x)
    Log(1 + Exp(x))                                                 -->  Softplus(x)
    Log(Exp(x) + Exp(y))                                            -->  Max(x, y) + Softplus(-Abs(x - y))
    Log(ReduceSum(Exp(x))), Log(ReduceSum(Exp(x)) + e)              -->  ReduceLogSumExp(x), that and log(e) likewise
    Log(ReduceMean(Exp(x)))                                         -->  ReduceLogSumExp(x) - log(n)
    Log(Softmax(x)), Log(Sigmoid(x))                                -->  LogSoftmax(x), -Softplus(-x)

The exponential of 12 leaves the range of fp16, that of -18 is zero there; none of these functions does either.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, log, prod

from dsa_sched.frontend.decomposition.norms import reduced_axes
from dsa_sched.frontend.network.chain import Chain
from dsa_sched.frontend.network.network import Network, Node
from dsa_sched.frontend.patterns.pattern_search import Match, is_computed, number_of

ONE = ""
"""Name that replaces the exponent of 1, which is zero."""


def exponential_matches(network: Network) -> Iterator[Match]:
    """Every such quotient and logarithm."""
    for node in network.nodes:
        if any(network.known_shape(name) is None for name in (*node.inputs, *node.outputs[:1]) if name):
            continue
        match node.op_type:
            case "Log":
                yield from _logarithm(network, node)
            case "Div":
                yield from _quotient(network, node, node.inputs[0], node.inputs[1])
            case "Reciprocal":
                yield from _quotient(network, node, "", node.inputs[0])


def _exponent(network: Network, name: str) -> str | None:
    """x of a value Exp(x), ONE for the number 1; None for others."""
    if number_of(network, name) == 1.0:
        return ONE
    node = network.producer.get(name)
    return node.inputs[0] if node is not None and node.op_type == "Exp" else None


def _exponents(network: Network, name: str, op_type: str) -> tuple[str, str] | None:
    """u and v of a value Exp(u) + Exp(v), or Exp(u) - Exp(v), of the value's shape; one of them may be ONE."""
    node = network.producer.get(name)
    if node is None or node.op_type != op_type or len(node.inputs) != 2:
        return None
    u, v = (_exponent(network, operand) for operand in node.inputs)
    if u is None or v is None or u == v:
        return None
    alike = all(network.known_shape(x) == network.known_shape(name) for x in (u, v) if x != ONE)
    return (u, v) if alike else None


def _quotient(network: Network, end: Node, dividend: str, divisor: str) -> Iterator[Match]:
    """Sigmoids and hyperbolic tangents; an empty dividend is 1."""
    pair = _exponents(network, divisor, "Add")
    if pair is None or network.known_shape(divisor) != network.known_shape(end.outputs[0]):
        return
    u, v = pair
    if dividend and (above := _exponents(network, dividend, "Sub")) is not None and set(above) == {u, v}:
        first, second = above
        yield Match(end, lambda chain: chain.add("Tanh", _half_difference(chain, first, second)))
        return
    if dividend and (own := _exponent(network, dividend)) in (u, v) and own is not None:
        yield Match(end, lambda chain: chain.add("Sigmoid", _difference(chain, own, v if own == u else u)))
    elif not dividend and ONE in (u, v):
        yield Match(end, lambda chain: chain.add("Sigmoid", _difference(chain, ONE, v if u == ONE else u)))
    elif ONE in (u, v):
        yield Match(end, lambda chain: _times_sigmoid(chain, dividend, _difference(chain, ONE, v if u == ONE else u)))


def _times_sigmoid(chain: Chain, y: str, x: str) -> None:
    chain.add("Mul", y, chain.add("Sigmoid", x))


def _difference(chain: Chain, u: str, v: str) -> str:
    """u - v, where ONE is zero."""
    if v == ONE:
        return u
    if u == ONE:
        return _negated(chain.network, v) or chain.add("Neg", v)
    return chain.add("Sub", u, v)


def _half_difference(chain: Chain, u: str, v: str) -> str:
    """(u - v) / 2, which is u where v is its negative."""
    if ONE not in (u, v) and _negated(chain.network, v) == u:
        return u
    if ONE not in (u, v) and _negated(chain.network, u) == v:
        return chain.add("Neg", v)
    return chain.add("Mul", _difference(chain, u, v), chain.number(0.5))


def _negated(network: Network, name: str) -> str:
    """x of a value -x; empty where it is none."""
    node = network.producer.get(name)
    match node.op_type if node is not None else "":
        case "Neg" if node is not None:
            return node.inputs[0]
        case "Mul" if node is not None:
            for x, factor in (node.inputs, node.inputs[::-1]):
                if number_of(network, factor) == -1.0 and is_computed(network, x):
                    return x if network.known_shape(x) == network.known_shape(name) else ""
        case "Sub" if node is not None and number_of(network, node.inputs[0]) == 0.0:
            return node.inputs[1] if network.known_shape(node.inputs[1]) == network.known_shape(name) else ""
    return ""


def _logarithm(network: Network, end: Node) -> Iterator[Match]:
    """Logarithms of sums of exponentials, of a Softmax and of a Sigmoid."""
    name, shape = end.inputs[0], network.shape(end.outputs[0])
    node = network.producer.get(name)
    if node is None:
        return
    if (pair := _exponents(network, name, "Add")) is not None:
        u, v = pair
        yield Match(end, lambda chain: _log_of_two(chain, u, v))
    elif node.op_type == "Softmax":
        yield Match(end, lambda chain: chain.add("LogSoftmax", node.inputs[0], shape=shape, settings=node.settings))
    elif node.op_type == "Sigmoid":
        yield Match(end, lambda chain: chain.add("Neg", chain.add("Softplus", chain.add("Neg", node.inputs[0]))))
    else:
        yield from _log_of_sum(network, end, node)


def _log_of_sum(network: Network, end: Node, node: Node) -> Iterator[Match]:
    """The logarithm of a sum or mean of exponentials, and a number that is added to it."""
    guard = 0.0
    if node.op_type == "Add":
        for name, constant in (node.inputs, node.inputs[::-1]):
            made, number = network.producer.get(name), number_of(network, constant)
            if made is not None and number is not None and 0 < number < inf:
                node, guard = made, number
                break
    x = _exponent(network, node.inputs[0]) if node.op_type in ("ReduceSum", "ReduceMean") else None
    axes = reduced_axes(network, node) if x and network.shape(x) else None
    if not x or not axes or _is_below_maximum(network, x):
        return
    count = prod(network.shape(x)[axis] for axis in axes) if node.op_type == "ReduceMean" else 1
    settings = (("axes", axes), ("keepdims", node.integer("keepdims", 1)))
    shape = network.shape(end.outputs[0])

    def write(chain: Chain) -> None:
        total = chain.add("ReduceLogSumExp", x, shape=shape, settings=settings)
        if count > 1:
            total = chain.add("Sub", total, chain.number(log(count)))
        if guard:
            _log_of_two(chain, total, chain.number(log(guard)))

    yield Match(end, write)


def _is_below_maximum(network: Network, name: str) -> bool:
    """Whether the value is x - max(x), whose exponential never leaves the range."""
    node = network.producer.get(name)
    if node is None or node.op_type != "Sub":
        return False
    largest = network.producer.get(node.inputs[1])
    return largest is not None and largest.op_type == "ReduceMax" and largest.inputs[0] == node.inputs[0]


def _log_of_two(chain: Chain, u: str, v: str) -> None:
    if ONE in (u, v):
        chain.add("Softplus", u or v)
        return
    apart = chain.add("Neg", chain.add("Abs", chain.add("Sub", u, v)))
    chain.add("Add", chain.add("Max", u, v), chain.add("Softplus", apart))
