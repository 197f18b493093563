"""Layer and root-mean-square norms that a file spells out, found again as the operators that they are.

    d = x - ReduceMean(x)      d / Sqrt(ReduceMean(d * d) + epsilon) * scale + bias  -->  LayerNormalization(x)
                               x / Sqrt(ReduceMean(x * x) + epsilon) * scale         -->  RMSNormalization(x)
    k = scale / Sqrt(ReduceMean(d * d) + epsilon)
    d * k + bias, x * k + (bias - ReduceMean(x) * k)                                 -->  LayerNormalization(x)

Over all axes from one on to the last. The quotient may be a product with a reciprocal, or a power; without a scale it
is one. What lies between serves nothing else: norms whose root is read too are left to `ranges/scaled_sums.py`.
"""

from __future__ import annotations

import numpy as np

from dsa_sched.frontend.decomposition.norms import epsilon_in_range, reduced_axes
from dsa_sched.frontend.network.chain import Chain, Shape
from dsa_sched.frontend.network.matching import Captured, Pattern, PatternRule, either, matches, number, op, value
from dsa_sched.frontend.network.network import Network
from dsa_sched.frontend.network.terms import number as term_number

X, SCALE, BIAS = value("x"), value("scale", computed=False), value("bias", computed=False)
AVERAGE = op("ReduceMean", X, name="average")
CENTRED = op("Sub", X, AVERAGE)


def _root(d: Pattern) -> tuple[Pattern, Pattern]:
    """The root of the mean of the squares of d, and one over it."""
    mean = op("ReduceMean", either(op("Mul", d, d), op("Pow", d, number(2.0))), name="mean")
    power = either(op("Add", mean, number(name="epsilon")), mean)
    root = either(op("Sqrt", power), op("Pow", power, number(0.5)))
    return root, either(op("Reciprocal", root), op("Div", number(1.0), root), op("Pow", power, number(-0.5)))


def _quotient(d: Pattern) -> Pattern:
    root, inverse = _root(d)
    return either(op("Mul", d, inverse), op("Div", d, root))


def _scaled(d: Pattern) -> Pattern:
    return either(op("Mul", _quotient(d), SCALE), op("Mul", d, op("Mul", _root(d)[1], SCALE)))


K = op("Mul", _root(CENTRED)[1], SCALE)
LAYER_NORM = either(
    op("Add", _scaled(CENTRED), BIAS),
    op("Add", op("Mul", X, K), op("Sub", BIAS, op("Mul", AVERAGE, K))),
    _scaled(CENTRED),
    _quotient(CENTRED),
)
RMS_NORM = either(_scaled(X), _quotient(X))


def _write(chain: Chain, found: Captured) -> None:
    network, x = chain.network, found.values["x"]
    shape, axes = chain.shape(x), _last_axes(network, found.values["mean"])
    centred = [found.values["average"]] if "average" in found.values else []
    epsilon = found.numbers.get("epsilon", 0.0)
    if axes is None or not epsilon_in_range(network, epsilon) or chain.shape(chain.node.outputs[0]) != shape:
        return
    if not found.is_closed(network) or any(_last_axes(network, name) != axes for name in centred):
        return
    if not centred and any(_last_axes(network, c.values["average"]) == axes for c in matches(network, CENTRED, x)):
        return  # a layer norm of which a value in between is read too
    wide, vectors = shape[axes[0] :], [found.values[name] for name in ("scale", "bias") if name in found.values]
    if not all(_is_vector(network, name, wide) for name in vectors):
        return
    vectors = vectors or [chain.array(np.ones(wide, np.float32), term_number(1).broadcast(*wide))]
    inputs = [chain.reshaped(name, *wide) for name in vectors]
    settings = (("axis", axes[0] - len(shape)), ("epsilon", epsilon))
    chain.add("LayerNormalization" if centred else "RMSNormalization", x, *inputs, shape=shape, settings=settings)


def _last_axes(network: Network, mean: str) -> Shape | None:
    """The axes of a mean, if they are all from one on to the last and stay with one element."""
    node = network.producer[mean]
    shape = network.known_shape(node.inputs[0])
    axes = reduced_axes(network, node) if shape else None
    if not shape or axes is None or not node.integer("keepdims", 1):
        return None
    return axes if axes == tuple(range(len(shape) - len(axes), len(shape))) else None


def _is_vector(network: Network, name: str, wide: Shape) -> bool:
    """Whether the value has this shape, except for leading axes of one element."""
    shape = network.known_shape(name)
    return shape is not None and shape[len(shape) - len(wide) :] == wide and set(shape[: len(shape) - len(wide)]) <= {1}


NORMS = (PatternRule(LAYER_NORM, _write), PatternRule(RMS_NORM, _write))
