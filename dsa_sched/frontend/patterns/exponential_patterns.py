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

from collections.abc import Callable
from math import log, prod, ulp
from sys import float_info

from dsa_sched.frontend.decomposition.norms import reduced_axes
from dsa_sched.frontend.network.chain import Chain
from dsa_sched.frontend.network.matching import Captured, Pattern, PatternRule, either, matches, number, op, value
from dsa_sched.frontend.network.network import Network

ONE = ""
"""Name that replaces the exponent of 1, which is zero."""

X, Y = value("x"), value("y", computed=False)
EXP_U, EXP_V = op("Exp", value("u")), op("Exp", value("v"))
PAIRS = ((EXP_U, EXP_V), (EXP_U, number(1.0)), (number(1.0), EXP_V))
"""Operands of sums and differences; `u` or `v` is not captured where its exponential is 1."""

NEGATED = either(op("Neg", X), op("Mul", X, number(-1.0)), op("Sub", number(0.0), X))
TOTAL = op("ReduceSum|ReduceMean", op("Exp", X), name="total")
GUARD = number(name="guard", low=ulp(0.0), high=float_info.max)
BELOW_MAXIMUM = op("Sub", X, op("ReduceMax", X))


def _rule(pattern: Pattern, write: Callable[[Chain, str, str, str], None]) -> PatternRule:
    """A rule that writes by u, v and y of a pattern in which two exponentials meet that differ."""

    def apply(chain: Chain, found: Captured) -> None:
        u, v, y = (found.values.get(name, ONE) for name in ("u", "v", "y"))
        shapes = {chain.shape(name) for name in (u, v) if name != ONE} | {chain.shape(chain.node.outputs[0])}
        if u != v and len(shapes) == 1:
            write(chain, u, v, y)

    return PatternRule(pattern, apply)


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
    return next((found.values["x"] for found in matches(network, NEGATED, name)), "")


def _write_tanh(chain: Chain, u: str, v: str, _y: str) -> None:
    chain.add("Tanh", _half_difference(chain, u, v))


def _write_sigmoid(chain: Chain, u: str, v: str, y: str) -> None:
    """Exp(u) / (Exp(u) + Exp(v)), times y if there is one."""
    result = chain.add("Sigmoid", _difference(chain, u, v))
    if y:
        chain.add("Mul", y, result)


def _write_softplus(chain: Chain, u: str, v: str, _y: str = "") -> None:
    """Log(Exp(u) + Exp(v))."""
    if ONE in (u, v):
        chain.add("Softplus", u or v)
        return
    apart = chain.add("Neg", chain.add("Abs", chain.add("Sub", u, v)))
    chain.add("Add", chain.add("Max", u, v), chain.add("Softplus", apart))


def _write_log_of_sum(chain: Chain, found: Captured) -> None:
    """The logarithm of a sum or mean of exponentials, and of a number that is added to it."""
    x, node = found.values["x"], chain.network.producer[found.values["total"]]
    axes = reduced_axes(chain.network, node) if chain.network.known_shape(x) else None
    if not axes or any(matches(chain.network, BELOW_MAXIMUM, x)):  # which never leaves the range
        return
    count = prod(chain.shape(x)[axis] for axis in axes) if node.op_type == "ReduceMean" else 1
    settings = (("axes", axes), ("keepdims", node.integer("keepdims", 1)))
    total = chain.add("ReduceLogSumExp", x, shape=chain.shape(chain.node.outputs[0]), settings=settings)
    if count > 1:
        total = chain.add("Sub", total, chain.number(log(count)))
    if "guard" in found.numbers:
        _write_softplus(chain, total, chain.number(log(found.numbers["guard"])))


def _write_log_softmax(chain: Chain, found: Captured) -> None:
    softmax = chain.network.producer[chain.node.inputs[0]]
    chain.add("LogSoftmax", found.values["x"], settings=softmax.settings)


def _write_log_sigmoid(chain: Chain, found: Captured) -> None:
    chain.add("Neg", chain.add("Softplus", chain.add("Neg", found.values["x"])))


EXPONENTIALS = (
    *(_rule(op("Div", op("Sub", *pair), op("Add", *pair)), _write_tanh) for pair in PAIRS),
    *(_rule(op("Div", pair[0], op("Add", *pair)), _write_sigmoid) for pair in PAIRS),
    _rule(op("Reciprocal", op("Add", number(1.0), EXP_V)), _write_sigmoid),
    _rule(op("Div", Y, op("Add", number(1.0), EXP_V)), _write_sigmoid),
    *(_rule(op("Log", op("Add", *pair)), _write_softplus) for pair in PAIRS[:2]),
    PatternRule(op("Log", op("Softmax", X)), _write_log_softmax),
    PatternRule(op("Log", op("Sigmoid", X)), _write_log_sigmoid),
    PatternRule(op("Log", either(TOTAL, op("Add", TOTAL, GUARD))), _write_log_of_sum),
)
