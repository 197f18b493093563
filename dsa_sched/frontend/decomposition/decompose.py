"""Operators that are others put together: each becomes a few nodes that there are rules for.

    Softsign  -->  x / (1 + Abs(x))
    Elu       -->  Relu + alpha * (Exp(Min(x, 0)) - 1)

The definitions are ONNX's own; those that divide by a norm are in `norms.py`. A node that a function here cannot
express (an exponent that is computed) stays as it is and is refused later, by name. The last node of a chain keeps the
node's name and its output's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import pi, sqrt

import numpy as np

from dsa_sched.frontend.decomposition import norms
from dsa_sched.frontend.decomposition.attention import (
    ATTENTION,
    ATTENTION_LIMITS,
    ATTENTION_WHOLE,
    CACHED,
    stays_whole,
)
from dsa_sched.frontend.decomposition.constant_gathers import flatten_gather
from dsa_sched.frontend.decomposition.einsum import einsum
from dsa_sched.frontend.decomposition.heads import attending, attending_in_parts, joined_heads
from dsa_sched.frontend.decomposition.resampling import resample
from dsa_sched.frontend.decomposition.rotary import ROTARY, ROTARY_LIMITS, ROTARY_WHOLE
from dsa_sched.frontend.decomposition.running_sums import running_sum
from dsa_sched.frontend.network.chain import Chain, Rule, Shape
from dsa_sched.frontend.network.draft import rewritten
from dsa_sched.frontend.network.network import CACHED_ATTENTION, FLOATING, Network, Node
from partitioner.ir.operators import OPERATORS_BY_NAME
from partitioner.ir.wants import Wants


def decompose(network: Network, whole: frozenset[str] = frozenset(), *, norms_of_lines: bool = False) -> Network:
    """Decompose all nodes of the kinds in the table, as far as they can be expressed, except those that a target wants
    `whole`; with `norms_of_lines`, norms along lines become an operator of ours.
    """
    table = {**DECOMPOSED, **(norms.NORMS_OF_LINES if norms_of_lines else {})}
    return _decomposed(network, lambda node: None if node.op_type in whole else table.get(node.op_type))


def decompose_first(network: Network, whole: frozenset[str] = frozenset()) -> Network:
    """Decompose the operators by which others are spelled out, before anything spelled out is looked for."""
    return _decomposed(network, lambda node: None if node.op_type in whole else FIRST.get(node.op_type))


def decompose_attention(network: Network, wants: Wants) -> Network:
    """Decompose attention and rotary embeddings, which may come out of choices by masks. Those wanted whole get one
    form; what ONNX cannot express as one node is taken apart for every target. Those that are wanted over heads side by
    side become one such operator.
    """
    apart, as_one = {**ATTENTION, **CACHED, **ROTARY}, {**ATTENTION_WHOLE, **ROTARY_WHOLE}
    if wants.attention_width:
        apart["Attention"], apart[CACHED_ATTENTION] = attending(wants), attending_in_parts(wants)

    def rule(node: Node) -> Rule | None:
        return (as_one if node.op_type in wants.whole and stays_whole(node) else apart).get(node.op_type)

    decomposed = _decomposed(network, rule)
    return joined_heads(decomposed) if wants.attention_width else decomposed


def _decomposed(network: Network, rule_of: Callable[[Node], Rule | None]) -> Network:
    def write(chain: Chain, node: Node) -> bool:
        rule = rule_of(node)
        named = filter(None, (*node.inputs, *node.outputs[:1]))
        known = all(chain.network.known_shape(name) is not None for name in named)
        return rule is not None and known and rule(chain, node)

    return rewritten(network, write)


def _cast_like(chain: Chain, node: Node) -> bool:
    like = node.input(1)
    value = chain.network.values.get(like)
    if value is None:
        return False
    chain.add("Cast", node.inputs[0], settings=(("to", value.dtype),))
    return True


def _power(chain: Chain, node: Node) -> bool:
    """The exponents that are products, roots and reciprocals."""
    x, exponent = node.inputs[0], chain.network.constants.get(node.inputs[1])
    if exponent is None or exponent.size != 1 or chain.shape(x) != chain.shape(node.outputs[0]):
        return False
    match float(exponent.reshape(-1)[0]):
        case 1.0:
            chain.add("Identity", x)
        case 2.0:
            chain.add("Mul", x, x)
        case 3.0:
            chain.add("Mul", chain.add("Mul", x, x), x)
        case 0.5:
            chain.add("Sqrt", x)
        case -0.5:
            chain.add("Reciprocal", chain.add("Sqrt", x))
        case -1.0:
            chain.add("Reciprocal", x)
        case _:
            return False
    return True


def _mean(chain: Chain, node: Node) -> bool:
    chain.add("Mul", chain.add("Sum", *node.inputs), chain.number(1 / len(node.inputs)))
    return True


def _reduction(before: Sequence[str], kind: str, after: Sequence[str]) -> Rule:
    """Element by element, then a sum or a maximum, then element by element; `Square` is the product with itself."""

    def rule(chain: Chain, node: Node) -> bool:
        axes = node.input(1) or node.setting("axes", ())
        if not axes and node.integer("noop_with_empty_axes", 0):
            return False
        x, shape = node.inputs[0], chain.shape(node.outputs[0])
        for op_type in before:
            x = chain.add("Mul", x, x) if op_type == "Square" else chain.add(op_type, x)
        x = chain.add(kind, x, *node.inputs[1:], shape=shape, settings=node.settings)
        for op_type in after:
            x = chain.add(op_type, x)
        return True

    return rule


def _log_of_sum(chain: Chain, x: str, axes: Shape) -> tuple[str, str, str]:
    """x less its largest along the axes, that, and the logarithm of the sum of the powers of the first."""
    largest = chain.reduced("ReduceMax", x, axes)
    below = chain.add("Sub", x, largest)
    total = chain.reduced("ReduceSum", chain.add("Exp", below), axes)
    return below, largest, chain.add("Log", total)


def _log_sum_exp(chain: Chain, node: Node) -> bool:
    x = node.inputs[0]
    axes = norms.reduced_axes(chain.network, node)
    if not axes:
        return False
    _, largest, total = _log_of_sum(chain, x, axes)
    result = chain.add("Add", total, largest)
    if chain.shape(node.outputs[0]) != chain.shape(result):
        chain.add("Flatten", result, shape=chain.shape(node.outputs[0]))
    return True


def _log_softmax(chain: Chain, node: Node) -> bool:
    """The difference to the largest, less the logarithm of the sum of powers: no power leaves the range."""
    x, old = node.inputs[0], chain.network.opset < 13
    shape = chain.shape(x)
    axis = node.integer("axis", 1 if old else -1) % max(1, len(shape))
    wide = [later for later in range(axis, len(shape)) if shape[later] > 1] if old else [axis]
    if not shape or len(wide) > 1:
        return False
    axis = (wide or [axis])[0]
    below, _, total = _log_of_sum(chain, x, (axis,))
    chain.add("Sub", below, total)
    return True


def _elu(chain: Chain, node: Node) -> bool:
    """gamma * (max(x, 0) + alpha * (exp(min(x, 0) / rate) - 1)): Elu, Selu and Celu."""
    x = node.inputs[0]
    defaults = OPERATORS_BY_NAME[node.op_type].settings
    numbers = {name: node.number(name, float(default)) for name, default in defaults}
    alpha, gamma = numbers["alpha"], numbers.get("gamma", 1.0)
    below = chain.add("Min", x, chain.number(0.0))
    if node.op_type == "Celu":
        below = chain.add("Mul", below, chain.number(1 / alpha))
    below = chain.add("Sub", chain.add("Exp", below), chain.number(1.0))
    below = chain.add("Mul", below, chain.number(alpha * gamma))
    above = chain.add("Relu", x)
    above = above if gamma == 1.0 else chain.add("Mul", above, chain.number(gamma))
    chain.add("Add", above, below)
    return True


def _prelu(chain: Chain, node: Node) -> bool:
    x, slope = node.inputs[:2]
    constant = chain.network.constants.get(slope)
    if constant is not None and constant.size == 1:
        chain.add("LeakyRelu", x, settings=(("alpha", float(constant.reshape(-1)[0])),))
        return True
    below = chain.add("Mul", chain.add("Min", x, chain.number(0.0)), slope)
    chain.add("Add", chain.add("Relu", x), below)
    return True


def _softsign(chain: Chain, node: Node) -> bool:
    x = node.inputs[0]
    chain.add("Div", x, chain.add("Add", chain.add("Abs", x), chain.number(1.0)))
    return True


def _swish(chain: Chain, node: Node) -> bool:
    x, alpha = node.inputs[0], node.number("alpha", 1.0)
    inner = x if alpha == 1.0 else chain.add("Mul", x, chain.number(alpha))
    chain.add("Mul", x, chain.add("Sigmoid", inner))
    return True


def _gelu(chain: Chain, node: Node) -> bool:
    """x times the normal distribution, by the error function or by the hyperbolic tangent that is near it."""
    x = node.inputs[0]
    if node.text("approximate", "none") == "tanh":
        cube = chain.add("Mul", chain.add("Mul", chain.add("Mul", x, x), x), chain.number(0.044715))
        inner = chain.add("Tanh", chain.add("Mul", chain.add("Add", x, cube), chain.number(sqrt(2 / pi))))
    else:
        inner = chain.add("Erf", chain.add("Mul", x, chain.number(sqrt(0.5))))
    half = chain.add("Mul", chain.add("Add", inner, chain.number(1.0)), chain.number(0.5))
    chain.add("Mul", x, half)
    return True


def _mish(chain: Chain, node: Node) -> bool:
    x = node.inputs[0]
    chain.add("Mul", x, chain.add("Tanh", chain.add("Softplus", x)))
    return True


def _rearranged(chain: Chain, x: str, split: Shape, perm: Shape, joined: Shape) -> bool:
    """Axes split, permuted and joined."""
    x = chain.add("Flatten", x, shape=split)  # any view is a Flatten, Reshape or Squeeze; the shape decides
    chain.add("Flatten", chain.transposed(x, *perm), shape=joined)
    return True


def _depth_to_space(chain: Chain, node: Node) -> bool:
    x, block = node.inputs[0], node.integer("blocksize", 0)
    shape = chain.shape(x)
    if len(shape) != 4 or block < 1 or shape[1] % (block * block):
        return False
    n, c, h, w = shape
    joined = (n, c // block**2, h * block, w * block)
    if node.text("mode", "DCR") == "CRD":
        return _rearranged(chain, x, (n, c // block**2, block, block, h, w), (0, 1, 4, 2, 5, 3), joined)
    return _rearranged(chain, x, (n, block, block, c // block**2, h, w), (0, 3, 4, 1, 5, 2), joined)


def _space_to_depth(chain: Chain, node: Node) -> bool:
    x, block = node.inputs[0], node.integer("blocksize", 0)
    shape = chain.shape(x)
    if len(shape) != 4 or block < 1 or shape[2] % block or shape[3] % block:
        return False
    n, c, h, w = shape
    split, joined = (n, c, h // block, block, w // block, block), (n, c * block**2, h // block, w // block)
    channels_first = node.text("mode", "DCR") == "CRD"
    return _rearranged(chain, x, split, (0, 1, 3, 5, 2, 4) if channels_first else (0, 3, 5, 1, 2, 4), joined)


def _vector_factor(chain: Chain, node: Node) -> bool:
    """Rewrite a factor of one axis as one row or one column, which the result then does not have."""
    a, b = (chain.shape(name) for name in node.inputs[:2])
    if min(len(a), len(b)) != 1:
        return False
    left = chain.reshaped(node.inputs[0], 1, *a) if len(a) == 1 else node.inputs[0]
    right = chain.reshaped(node.inputs[1], *b, 1) if len(b) == 1 else node.inputs[1]
    a, b = chain.shape(left), chain.shape(right)
    y = chain.add("MatMul", left, right, shape=(*np.broadcast_shapes(a[:-2], b[:-2]), a[-2], b[-1]))
    chain.add("Flatten", y, shape=chain.shape(node.outputs[0]))
    return True


def _clip_computed(chain: Chain, node: Node) -> bool:
    """Clip by computed bounds: the larger of value and lower bound, then the smaller of that and the upper bound."""
    bounds = ((op_type, node.input(position)) for position, op_type in ((1, "Max"), (2, "Min")))
    given = [(op_type, name) for op_type, name in bounds if name]
    if chain.network.values[node.outputs[0]].dtype not in FLOATING or not any(
        chain.computed(name) for _, name in given
    ):
        return False
    x = node.inputs[0]
    for op_type, name in given:
        x = chain.add(op_type, x, name)
    return True


FIRST: Mapping[str, Rule] = {
    "Einsum": einsum,
    "CumSum": running_sum,
    "MatMul": _vector_factor,
    "Clip": _clip_computed,
    "GatherElements": flatten_gather,
    "GatherND": flatten_gather,
    "Resize": resample,
    "Upsample": resample,
}
"""Rules of the first decomposition; where one returns False, the operator's own rule is asked."""

DECOMPOSED: Mapping[str, Rule] = {
    "CastLike": _cast_like,
    "Pow": _power,
    "Mean": _mean,
    "ReduceMin": _reduction(("Neg",), "ReduceMax", ("Neg",)),
    "ReduceL1": _reduction(("Abs",), "ReduceSum", ()),
    "ReduceSumSquare": _reduction(("Square",), "ReduceSum", ()),
    "ReduceLogSum": _reduction((), "ReduceSum", ("Log",)),
    "ReduceLogSumExp": _log_sum_exp,
    "LogSoftmax": _log_softmax,
    "Elu": _elu,
    "Selu": _elu,
    "Celu": _elu,
    "PRelu": _prelu,
    "Softsign": _softsign,
    "Swish": _swish,
    "Gelu": _gelu,
    "Mish": _mish,
    **norms.NORMS,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
}
"""Rules of the decomposition; where one returns False, the node is refused by its own name."""

TAKEN_APART = frozenset([*DECOMPOSED, *ATTENTION, *ROTARY])
"""All operators that become others, unless a target wants them whole."""

LIMITS: Mapping[str, str] = {
    "CastLike": "the second operand has no known type",
    **dict.fromkeys(
        ("ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"),
        "noop_with_empty_axes and no axes: give it the axes",
    ),
    "LogSoftmax": "over several axes together, as operator sets before 13 define it",
    "LayerNormalization": "the value to normalise must have axes, and epsilon lie between 0 and 2^30",
    "RMSNormalization": "the value to normalise must have axes, and epsilon lie between 0 and 2^30",
    "InstanceNormalization": "there must be a spatial axis, and epsilon lie between 0 and 2^30",
    **ATTENTION_LIMITS,
    **ROTARY_LIMITS,
    "DepthToSpace": "a blocksize that does not divide the channels of an image",
    "SpaceToDepth": "a blocksize that does not divide the extents of an image",
}
"""Text for the user where a function of `DECOMPOSED` returns False."""
