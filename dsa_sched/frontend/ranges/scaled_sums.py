"""Sums of squares along lines, and values computed from them, on lines that were scaled by a power of two.

    ReduceMean(x * x) -> Add(e) -> Sqrt -> r     m = ReduceMean(t * t), t = x * s;  r = Sqrt(m + e * s * s) / s
    Div(x, r), Mul(x, Reciprocal(r))             t * (1 / Sqrt(m + e * s * s))
    Log(v), v = the mean                         Log(m) - 2 * Log(s)

A line is the elements along the axes of a sum. s is the power of two that brings its largest magnitude to 64
(`decomposition/norms.py`), so squares neither leave the range nor vanish. A value that follows from the sum is kept as
`coefficient * value / s^power`; s is divided out only where another operator reads the value.
So it does not matter how a file spells the norm, nor whether its mean, variance or deviation is read elsewhere.
Where x is itself y - ReduceMean(y), as in a layer norm of primitive operators, y is centred as in
`decomposition/norms.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import frexp, log, prod, sqrt

import numpy as np

from dsa_sched.frontend.decomposition.norms import (
    average,
    centred_and_scaled,
    epsilon_in_range,
    reduced_axes,
    scaled,
)
from dsa_sched.frontend.network.chain import Chain, Shape
from dsa_sched.frontend.network.draft import Draft
from dsa_sched.frontend.network.matching import matches, op, value
from dsa_sched.frontend.network.network import FLOATING, Network, Node
from dsa_sched.frontend.network.queries import bounds_of, exponent_of, is_alike, number_of
from dsa_sched.frontend.network.terms import number
from dsa_sched.frontend.patterns.mean_patterns import square_of
from partitioner.ir.operators import Trait, onnx_names

SUMS = ("ReduceMean", "ReduceSum", "ReduceSumSquare", "ReduceL2")
CENTRED = op("Sub", value("y"), op("ReduceMean", value("y"), name="mean"))
MOVES = onnx_names(Trait.VIEW)
MOST_STEPS = 24
"""Largest number of steps after a sum within which an epsilon is looked for."""

DECIDED = (
    "kept in range: sum of squares",
    "on lines that are scaled by a power of two, so that no square leaves the range of fp16",
)
"""Verdict and reason, for explanations."""


@dataclass(frozen=True, slots=True)
class _Line:
    """x, whose square is summed along `axes`. `y` is the value of which x is y - mean(y), or an empty name."""

    x: str
    y: str
    axes: Shape


@dataclass(frozen=True, slots=True)
class _Scaled:
    """A value of the file as coefficient * value / factor^power; `spread` is x * factor, with every element of x."""

    line: _Line
    spread: str
    factor: str
    value: str
    power: int
    coefficient: float


def scale_sums(network: Network) -> Network:
    """The network with all sums of squares of this form scaled; nodes that nothing reads any more are left to be
    pruned."""
    draft, known = Draft(network, tag="ranged"), dict[str, _Scaled]()
    for node in network.nodes:
        chain = draft.chain(node)
        found = _source(network, chain, node) or _followed(network, chain, node, known)
        if isinstance(found, _Scaled):
            known[node.outputs[0]] = found
            _write_out(chain, found, network.shape(node.outputs[0]))
        if found is not None:
            draft.put(chain)
            if node.op_type in SUMS:
                draft.decide(node, *DECIDED)
    return draft.finished()


def _source(network: Network, chain: Chain, node: Node) -> _Scaled | None:
    """The scaled sum or mean of squares, or the root of one, that a node computes."""
    if node.op_type not in SUMS:
        return None
    plain = node.op_type in ("ReduceMean", "ReduceSum")
    x = square_of(network, node.inputs[0]) if plain else node.inputs[0]
    shape = network.known_shape(x) if x else None
    axes = reduced_axes(network, node) if shape else None
    if not shape or not axes or x in network.constants or network.values[x].dtype not in FLOATING:
        return None
    line = _Line(x, next(_centred(network, x, axes), ""), axes)
    epsilon = max(_epsilons(network, node), default=0.0)
    if not epsilon_in_range(network, epsilon):
        return None
    if line.y:
        spread, factor = centred_and_scaled(chain, line.y, axes, epsilon)
    else:
        spread, factor = scaled(chain, x, axes, epsilon, centred=False)
    mean, result = average(chain, chain.add("Mul", spread, spread), axes), network.shape(node.outputs[0])
    if chain.shape(mean) != result:
        mean, factor = (chain.add("Flatten", name, shape=result) for name in (mean, factor))
    count = 1.0 if node.op_type == "ReduceMean" else float(prod(shape[axis] for axis in axes))
    if node.op_type == "ReduceL2":
        return _Scaled(line, spread, factor, chain.add("Sqrt", mean), 1, sqrt(count))
    return _Scaled(line, spread, factor, mean, 2, count)


def _centred(network: Network, x: str, axes: Shape) -> Iterator[str]:
    """The y of which x is y - mean(y) over the same axes."""
    for found in matches(network, CENTRED, x):
        mean = network.producer[found.values["mean"]]
        if mean.integer("keepdims", 1) and reduced_axes(network, mean) == axes:
            yield found.values["y"]


# Numbers added to a sum, or that are its lower bound


def _epsilons(network: Network, source: Node) -> Iterator[float]:
    """Numbers added to a mean of squares of this line further on, each as an epsilon of the mean itself."""
    shape, axes = network.shape(source.inputs[0]), reduced_axes(network, source) or ()
    count = 1.0 if source.op_type == "ReduceMean" else float(prod(shape[axis] for axis in axes))
    power = 1 if source.op_type == "ReduceL2" else 2
    yield from _followed_epsilons(network, source.outputs[0], power, sqrt(count) if power == 1 else count, MOST_STEPS)


def _followed_epsilons(network: Network, name: str, power: int, coefficient: float, steps: int) -> Iterator[float]:
    if not steps:
        return
    for node in network.readers.get(name, ()):
        if node.op_type in MOVES | {"Expand", "Relu"} and node.inputs[0] == name:
            yield from _followed_epsilons(network, node.outputs[0], power, coefficient, steps - 1)
        elif (factor := _factor(network, node, name)) is not None:
            yield from _followed_epsilons(network, node.outputs[0], power, coefficient * factor, steps - 1)
        elif (least := _least(network, node, name)) is not None:
            ratio = least[1] / coefficient
            yield ratio if power == 2 else ratio * ratio
            yield from _followed_epsilons(network, node.outputs[0], power, coefficient, steps - 1)
        elif power == 2 and _exponent(network, node) == 0.5:
            yield from _followed_epsilons(network, node.outputs[0], 1, sqrt(coefficient), steps - 1)


def _factor(network: Network, node: Node, name: str) -> float | None:
    """The positive number by which a node multiplies the value."""
    if node.op_type not in ("Mul", "Div") or (node.op_type == "Div" and node.inputs[0] != name):
        return None
    others = [other for other in node.inputs if other != name]
    factor = number_of(network, others[0]) if len(others) == 1 else None
    if factor is None or not np.isfinite(factor) or factor <= 0 or not _same_shape(network, node, name):
        return None
    return 1 / factor if node.op_type == "Div" else factor


def _least(network: Network, node: Node, name: str) -> tuple[str, float] | None:
    """A nonnegative number that is added to the value ("Add") or is its lower bound ("Max")."""
    if not _same_shape(network, node, name):
        return None
    others = [other for other in node.inputs if other and other != name]
    least = number_of(network, others[0]) if len(others) == 1 else None
    match node.op_type:
        case "Add" | "Max" if least is not None:
            kind = node.op_type
        case "Clip" if node.inputs[0] == name and _holds_back_nothing(network, node):
            kind, (low, _) = "Max", bounds_of(network, node)
            least = 0.0 if low == -np.inf else low
        case "Relu":
            kind, least = "Max", 0.0
        case _:
            return None
    return (kind, least) if least is not None and 0 <= least < np.inf else None


def _holds_back_nothing(network: Network, clip: Node) -> bool:
    """Whether the upper bound of a Clip is beyond every number of the stored type."""
    _, high = bounds_of(network, clip)
    return high is not None and high > network.rounding.largest


def _same_shape(network: Network, node: Node, name: str) -> bool:
    return network.known_shape(node.outputs[0]) == network.known_shape(name) is not None


def _exponent(network: Network, node: Node) -> float | None:
    """Exponent of a root, a reciprocal or a power by one number."""
    match node.op_type:
        case "Sqrt":
            return 0.5
        case "Reciprocal":
            return -1.0
        case "Pow":
            return exponent_of(network, node)
    return None


# Values that follow from a scaled sum


def _followed(network: Network, chain: Chain, node: Node, known: dict[str, _Scaled]) -> _Scaled | bool | None:
    """What a node makes of a scaled value: another scaled value; True if its result was written without one; None for
    neither."""
    for name in node.inputs:
        if name in known:
            return _step(network, chain, node, name, known[name]) or _end(network, chain, node, name, known[name])
    return None


def _step(network: Network, chain: Chain, node: Node, name: str, v: _Scaled) -> _Scaled | None:
    if node.op_type in MOVES and node.inputs[0] == name:
        shape = network.shape(node.outputs[0])
        value, factor = (chain.add("Flatten", part, shape=shape) for part in (v.value, v.factor))
        return replace(v, value=value, factor=factor)
    if node.op_type == "Expand" and node.inputs[0] == name:
        return v if len(network.shape(name)) == len(network.shape(node.outputs[0])) else None
    if (factor_by := _factor(network, node, name)) is not None:
        return replace(v, coefficient=v.coefficient * factor_by)
    if v.power > 0 and (least := _least(network, node, name)) is not None:
        return replace(v, value=_at_least(chain, v, *least))
    exponent = _exponent(network, node) if node.inputs[0] == name else None
    if node.op_type == "Div" and node.inputs[1] == name and number_of(network, node.inputs[0]) == 1.0:
        exponent = -1.0 if _same_shape(network, node, name) else None
    if exponent in (0.5, -0.5) and v.power == 2:
        v = replace(v, value=chain.add("Sqrt", v.value), power=1, coefficient=sqrt(v.coefficient))
        exponent = 1.0 if exponent == 0.5 else -1.0
        if exponent == 1.0:
            return v
    if exponent == -1.0 and v.power > 0:
        return replace(v, value=chain.add("Reciprocal", v.value), power=-v.power, coefficient=1 / v.coefficient)
    return None


def _at_least(chain: Chain, v: _Scaled, kind: str, least: float) -> str:
    """The value with `least`, scaled as it is, added to it or as its lower bound. No line becomes a division by
    zero."""
    if least == 0:
        return v.value
    ratio, least_root = least / v.coefficient, chain.network.rounding.smallest
    # The root has half the exponent. It may be subnormal, so its fraction and its power of two are multiplied apart.
    fraction, exponent = frexp(max(sqrt(ratio) if v.power == 2 else ratio, least_root))
    root = chain.add("Mul", chain.add("Mul", v.factor, chain.number(fraction)), chain.number(2.0**exponent))
    held = chain.add("Mul", root, root) if v.power == 2 else root
    return chain.add("Add" if kind == "Add" and ratio >= least_root**v.power else "Max", v.value, held)


def _end(network: Network, chain: Chain, node: Node, name: str, v: _Scaled) -> bool | None:
    """Write a line divided by its own norm, or a logarithm, neither of which needs the scale divided out. True if it
    was written, None for other nodes."""
    match node.op_type:
        case "Div" if node.inputs[1] == name and v.power == 1 and _is_line(network, node.inputs[0], v.line):
            inverse = chain.add("Reciprocal", v.value)
        case "Mul" if v.power == -1 and _is_line(network, _other(node, name), v.line):
            inverse = v.value
        case "Log":
            return _logarithm(chain, v, network.shape(node.outputs[0]))
        case _:
            return None
    shape = network.shape(v.line.x)
    kept = tuple(1 if axis in v.line.axes else extent for axis, extent in enumerate(shape))
    own = chain.shape(v.value)
    if network.shape(node.outputs[0]) != shape or (1,) * (len(shape) - len(own)) + own != kept:
        return None  # without the reduced axes, broadcasting may pair a value with another line than its own
    coefficient = 1 / v.coefficient if v.power == 1 else v.coefficient
    if coefficient != 1.0:
        inverse = chain.add("Mul", inverse, chain.number(coefficient))
    chain.add("Mul", v.spread, inverse, shape=network.shape(node.outputs[0]))
    return True


def _other(node: Node, name: str) -> str:
    return node.inputs[1] if node.inputs[0] == name else node.inputs[0]


def _is_line(network: Network, name: str, line: _Line) -> bool:
    """Whether a value is the line's x, or is computed from the same values in the same way."""
    return is_alike(network, name, line.x)


def _logarithm(chain: Chain, v: _Scaled, shape: Shape) -> bool:
    """Write log(coefficient * value) - power * log(factor)."""
    own = chain.add("Log", v.value)
    of_factor = chain.add("Mul", chain.add("Log", v.factor), chain.number(float(-v.power)))
    total = chain.add("Add", own, of_factor)
    if v.coefficient != 1.0:
        total = chain.add("Add", total, chain.number(log(v.coefficient)))
    chain.add("Flatten", total, shape=shape)
    return True


def _write_out(chain: Chain, v: _Scaled, shape: Shape) -> None:
    """Write the value itself, in steps that leave the range only where the result does."""
    value, rest = v.value, v.coefficient
    if v.power == 1 and rest != 1.0:
        value = chain.add("Mul", value, chain.number(rest))
    for _ in range(abs(v.power)):
        value = chain.add("Div" if v.power > 0 else "Mul", value, v.factor)
        if v.power != 1 and rest != 1.0:
            value = chain.add("Mul", value, chain.number(sqrt(rest) if abs(v.power) == 2 else rest))
    if chain.shape(value) != shape:
        chain.add("Expand", value, chain.array(np.array(shape, np.int64), number(0.0)), shape=shape)
