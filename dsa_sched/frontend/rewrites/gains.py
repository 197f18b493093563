"""Channel-wise scales and shifts before Relu go into the convolutions after it.

    ScaleShift -> Relu -> Conv, padded       -->   Add -> Relu -> Conv     relu(x * s + t) = s * relu(x + t / s)
    ScaleShift -> Relu -> Conv, not padded   -->   Max -> Conv             relu(x + c) = max(x, -c) + c

where all scales are positive: the weights take them, and where nothing is padded the bias takes the product of the
weights and c; with padding, its zeros would change. Three passes of the vector engine become two, or one.

The values between are no longer values of the user's file: they get new names, and origins.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import erf

import numpy as np
import numpy.typing as npt

from dsa_sched.frontend.network.network import SCALE_SHIFT, Array, Network, Node, Origin, Value
from dsa_sched.frontend.network.terms import Term, number

Floats = npt.NDArray[np.float64]

MEAN, VARIANCE = "mean", "variance"
"""Settings of a ScaleShift, if the file has them: mean and variance of its input, by channel."""

LARGEST_SHIFT = 1_024.0
"""Largest ratio of shift to scale. What is added is x and this number, so the sum overflows only where x alone nearly
does; relative to what is left of it, it is rounded as coarsely as x * scale + shift was, whatever the scale.
"""

LARGEST_GROWTH = 2.0
"""Largest growth of the error of a convolution's sums that saving a pass of the vector engine is worth: one bit."""


@dataclass(frozen=True, slots=True)
class _Activation:
    """relu(x * scale + shift), computed by `affine` and `relu`, that the convolutions `products` alone read."""

    affine: Node
    relu: Node
    products: tuple[Node, ...]
    scale: Floats
    shift: Floats
    offset: Floats
    """Shift / scale, rounded: the number added to x before Relu."""

    terms: tuple[Term, Term]
    """Derivation of scale and shift from the file."""


@dataclass(frozen=True, slots=True)
class _Draft:
    """The changes; `nodes` has the nodes that replace a node, by its name."""

    nodes: dict[str, tuple[Node, ...]]
    constants: dict[str, Array]
    values: dict[str, Value]
    origins: dict[str, Origin]
    terms: dict[str, Term]

    def unscaled(self, name: str, scale: Floats, shift: Floats) -> str:
        """A value from which the file's follows by a scale and a shift."""
        ours, known = f"{name}::unscaled", self.origins.get(name)
        of_file = Origin(known.name if known else name, scale, shift, known.part if known else None)
        self.values[ours], self.origins[ours] = self.values[name], of_file
        return ours

    def constant(self, name: str, array: Array, term: Term) -> str:
        self.constants[name], self.terms[name] = array, term
        return name

    def vector(self, name: str, along: str, elements: Floats, term: Term) -> str:
        """A constant with an element for each channel of the value `along`."""
        shape = _by_input(len(self.values[along].shape))
        return self.constant(name, elements.reshape(shape), term.reshape(*shape))


def move_gains(network: Network) -> Network:
    """Move all scales and shifts that can go into convolutions after Relu."""
    draft = _Draft({}, dict(network.constants), dict(network.values), dict(network.origins), dict(network.terms))
    for node in network.nodes:
        found = _activation(network, node)
        if found is not None:
            (_as_maximum if _takes_maximum(network, found) else _as_addition)(network, draft, found)
    nodes = tuple(new for node in network.nodes for new in draft.nodes.get(node.name, (node,)))
    return replace(
        network,
        nodes=nodes,
        constants=draft.constants,
        values=draft.values,
        origins=draft.origins,
        terms=draft.terms,
    )


def _activation(network: Network, node: Node) -> _Activation | None:
    """The activation that begins with a node, if it is a scale and shift that can move: positive scales, shifts that
    are not large compared with them, and only convolutions as readers of Relu's result.
    """
    if node.op_type != SCALE_SHIFT or node.outputs[0] in network.outputs:
        return None
    scale, shift = (np.asarray(network.constants[name], np.float64).reshape(-1) for name in node.inputs[1:3])
    if not np.all(scale > 0) or not np.all(np.abs(shift) <= LARGEST_SHIFT * scale):
        return None
    readers = network.readers.get(node.outputs[0], ())
    if len(readers) != 1 or readers[0].op_type != "Relu" or readers[0].outputs[0] in network.outputs:
        return None
    data = readers[0].outputs[0]
    products = network.readers.get(data, ())
    if not products or not all(_takes_scales(network, product, data, scale) for product in products):
        return None
    factor, offset = (network.term(name).reshape(-1) for name in node.inputs[1:3])
    held = network.rounding.rounded(shift / scale)
    return _Activation(node, readers[0], products, scale, shift, held, (factor, offset))


def _takes_scales(network: Network, node: Node, data: str, scale: Floats) -> bool:
    """Whether a node is a convolution of `data` whose weights each meet one channel of it, and stay as exact.

    A small scaled weight loses digits below the normal numbers, a large one overflows. The rounded weights act on the
    file's values like weights `rounded / scale`, so the error of these is limited, output by output, to the error of
    rounding normal numbers. Very small scales stay where they are unless their weights hardly count.
    """
    if node.op_type != "Conv" or node.integer("group", 1) != 1 or node.inputs[0] != data:
        return False
    if node.inputs[1] not in network.constants:
        return False
    weights = np.asarray(network.constants[node.inputs[1]], np.float64)
    acting = network.rounding.rounded(_scaled_weights(network, node, scale)) / scale.reshape(_by_input(weights.ndim))
    errors, norms = (np.linalg.norm(found.reshape(len(found), -1), axis=1) for found in (acting - weights, weights))
    return bool(np.all(errors <= network.rounding.unit * norms))


def _takes_maximum(network: Network, found: _Activation) -> bool:
    """Convolutions that pad nothing, whose bias can take more, and whose sums stay nearly as exact.

    Sums are of max(x, -c) then, which is larger than relu(x + c) where c is negative, and each step of a sum in fp16
    errs in proportion to the sum so far. By how much that grows follows from the statistics of x; without them nothing
    is known of it.
    """
    statistics = _statistics(found)
    if statistics is None:
        return False
    mean, variance = statistics
    return all(
        _pads_nothing(product)
        and (not product.input(2) or product.input(2) in network.constants)
        and np.all(np.isfinite(network.rounding.rounded(_bias_behind_maximum(network, found, product))))
        and np.all(
            _errors_of_sums(network, product, mean - found.shift, variance)
            <= LARGEST_GROWTH * _errors_of_sums(network, product, mean, variance)
        )
        for product in found.products
    )


def _pads_nothing(node: Node) -> bool:
    return not any(node.integers("pads", ())) and node.text("auto_pad", "NOTSET") in ("NOTSET", "VALID")


def _statistics(found: _Activation) -> tuple[Floats, Floats] | None:
    """Means and variances, by channel, of Relu's result for a normally distributed x."""
    settings = dict(found.affine.settings)
    if MEAN not in settings or VARIANCE not in settings:
        return None
    mean, variance = (np.array(settings[name], np.float64) for name in (MEAN, VARIANCE))
    middle, width = mean * found.scale + found.shift, np.maximum(np.sqrt(variance) * found.scale, TINY)
    below = np.array([erf(ratio) for ratio in middle / width / np.sqrt(2)]) / 2 + 0.5
    density = np.exp(-((middle / width) ** 2) / 2) / np.sqrt(2 * np.pi)
    first = middle * below + width * density
    second = (middle**2 + width**2) * below + middle * width * density
    return first, np.maximum(second - first**2, 0.0)


TINY = 1e-30


def _errors_of_sums(network: Network, product: Node, mean: Floats, variance: Floats) -> Floats:
    """The error, up to a common factor, of a convolution's sums where its inputs have these means and variances: for
    each output the root of the mean square of all sums on the way, in the order in which products are added.
    """
    weights = np.asarray(network.constants[product.inputs[1]], np.float64)
    in_order = np.moveaxis(weights, 1, -1)  # kernel positions, then channels
    flat = (-1, int(np.prod(in_order.shape[1:])))
    means = np.cumsum((in_order * mean).reshape(flat), 1)
    variances = np.cumsum((in_order**2 * variance).reshape(flat), 1)
    return np.asarray(np.sqrt(np.mean(means**2 + variances, axis=1)))


def _as_addition(network: Network, draft: _Draft, found: _Activation) -> None:
    affine, relu, scale = found.affine, found.relu, found.scale
    inner, outer = (draft.unscaled(node.outputs[0], scale, np.zeros_like(scale)) for node in (affine, relu))
    factor, offset = found.terms
    added = draft.vector(f"{affine.name}::shift", inner, found.shift / scale, offset / factor)
    draft.nodes[affine.name] = (Node(affine.name, "Add", (affine.inputs[0], added), (inner,)),)
    draft.nodes[relu.name] = (replace(relu, inputs=(inner,), outputs=(outer,)),)
    for product in found.products:
        weights = draft.constant(f"{product.name}::weight", *_scaled(network, product, found))
        draft.nodes[product.name] = (replace(product, inputs=(outer, weights, *product.inputs[2:])),)


def _as_maximum(network: Network, draft: _Draft, found: _Activation) -> None:
    affine, relu = found.affine, found.relu
    outer = draft.unscaled(relu.outputs[0], found.scale, found.scale * found.offset)
    factor, shift = found.terms
    offset = (shift / factor).rounded(network.rounding.dtype)
    floor = draft.vector(f"{affine.name}::floor", outer, -found.offset, number(0) - offset)
    draft.nodes[affine.name] = (Node(affine.name, "Max", (affine.inputs[0], floor), (outer,)),)
    draft.nodes[relu.name] = ()
    for product in found.products:
        scaled, term = _scaled(network, product, found)
        weights = draft.constant(f"{product.name}::weight", scaled, term)
        made = (term.rounded(network.rounding.dtype) * offset.reshape(*_by_input(scaled.ndim))).sum(
            tuple(range(1, scaled.ndim))
        )
        own = network.term(product.input(2)).reshape(-1) if product.input(2) else number(0)
        bias = draft.constant(f"{product.name}::offset", _bias_behind_maximum(network, found, product), own + made)
        draft.nodes[product.name] = (replace(product, inputs=(outer, weights, bias)),)


def _bias_behind_maximum(network: Network, found: _Activation, product: Node) -> Floats:
    """Bias made of the numbers that the device has, so that the weights' product with -c meets its exact negative
    there, except for the rounding of the bias itself.
    """
    scaled = network.rounding.rounded(_scaled_weights(network, product, found.scale))
    own = np.asarray(network.constants[product.input(2)], np.float64) if product.input(2) else np.zeros(1)
    return np.asarray(own + scaled.reshape(*scaled.shape[:2], -1).sum(2) @ found.offset)


def _scaled(network: Network, product: Node, found: _Activation) -> tuple[Floats, Term]:
    """The weights with the scales in them, and how they follow from the file."""
    scaled = _scaled_weights(network, product, found.scale)
    return scaled, network.term(product.inputs[1]) * found.terms[0].reshape(*_by_input(scaled.ndim))


def _scaled_weights(network: Network, node: Node, scale: Floats) -> Floats:
    weights = np.asarray(network.constants[node.inputs[1]], np.float64)
    return np.asarray(weights * scale.reshape(_by_input(weights.ndim)))


def _by_input(rank: int) -> tuple[int, ...]:
    """Shape in which a vector lies along axis 1: the channels of a value, or the input channels of weights."""
    return (1, -1, *(1,) * (rank - 2))
