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

from dsa_sched.frontend.network.draft import Draft
from dsa_sched.frontend.network.network import SCALE_SHIFT, Network, Node, Origin
from dsa_sched.frontend.network.terms import number
from dsa_sched.frontend.network.traced import TracedArray

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
    scale: TracedArray
    shift: TracedArray
    offset: TracedArray
    """Shift / scale, rounded: the number added to x before Relu."""


def move_gains(network: Network) -> Network:
    """Move all scales and shifts that can go into convolutions after Relu."""
    draft = Draft(network)
    for node in network.nodes:
        found = _activation(network, node)
        if found is not None:
            (_as_maximum if _takes_maximum(network, found) else _as_addition)(network, draft, found)
    return draft.finished()


def _unscaled(draft: Draft, name: str, scale: Floats, shift: Floats) -> str:
    """A value from which the file's follows by a scale and a shift."""
    known = draft.network.origins.get(name)
    of_file = Origin(known.name if known else name, scale, shift, known.part if known else None)
    return draft.value(f"{name}::unscaled", draft.network.values[name], of_file)


def _vector(draft: Draft, name: str, along: str, elements: TracedArray) -> str:
    """A constant with an element for each channel of the value `along`."""
    return draft.store(name, elements.reshape(*_by_input(len(draft.network.shape(along)))))


def _activation(network: Network, node: Node) -> _Activation | None:
    """The activation that begins with a node, if it is a scale and shift that can move: positive scales, shifts that
    are not large compared with them, and only convolutions as readers of Relu's result.
    """
    if node.op_type != SCALE_SHIFT or node.outputs[0] in network.outputs:
        return None
    scale, shift = (network.traced(name).reshape(-1) for name in node.inputs[1:3])
    if not np.all(scale.float64 > 0) or not np.all(np.abs(shift.float64) <= LARGEST_SHIFT * scale.float64):
        return None
    readers = network.readers.get(node.outputs[0], ())
    if len(readers) != 1 or readers[0].op_type != "Relu" or readers[0].outputs[0] in network.outputs:
        return None
    data = readers[0].outputs[0]
    products = network.readers.get(data, ())
    if not products or not all(_takes_scales(network, product, data, scale.float64) for product in products):
        return None
    return _Activation(node, readers[0], products, scale, shift, (shift / scale).rounded(network.rounding))


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
    along = scale.reshape(_by_input(weights.ndim))
    acting = network.rounding.rounded(weights * along) / along
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
        and np.all(np.isfinite(network.rounding.rounded(_bias_after_maximum(network, found, product))))
        and np.all(
            _errors_of_sums(network, product, mean - found.shift.float64, variance)
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
    scale, shift = found.scale.float64, found.shift.float64
    middle, width = mean * scale + shift, np.maximum(np.sqrt(variance) * scale, TINY)
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


def _as_addition(network: Network, draft: Draft, found: _Activation) -> None:
    affine, relu, scale = found.affine, found.relu, found.scale.float64
    inner, outer = (_unscaled(draft, node.outputs[0], scale, np.zeros_like(scale)) for node in (affine, relu))
    added = _vector(draft, f"{affine.name}::shift", inner, found.shift / found.scale)
    draft.exchange(affine, Node(affine.name, "Add", (affine.inputs[0], added), (inner,)))
    draft.exchange(relu, replace(relu, inputs=(inner,), outputs=(outer,)))
    for product in found.products:
        weights = draft.store(f"{product.name}::weight", _scaled(network, product, found))
        draft.exchange(product, replace(product, inputs=(outer, weights, *product.inputs[2:])))


def _as_maximum(network: Network, draft: Draft, found: _Activation) -> None:
    affine, relu = found.affine, found.relu
    scale = found.scale.float64
    outer = _unscaled(draft, relu.outputs[0], scale, scale * found.offset.float64)
    floor = _vector(draft, f"{affine.name}::floor", outer, -found.offset)
    draft.exchange(affine, Node(affine.name, "Max", (affine.inputs[0], floor), (outer,)))
    draft.exchange(relu)
    for product in found.products:
        scaled = _scaled(network, product, found)
        weights, rank = draft.store(f"{product.name}::weight", scaled), len(scaled.shape)
        stored = scaled.term.rounded(network.rounding.dtype)
        made = (stored * found.offset.term.reshape(*_by_input(rank))).sum(tuple(range(1, rank)))
        own = network.term(product.input(2)).reshape(-1) if product.input(2) else number(0)
        numbers = TracedArray(_bias_after_maximum(network, found, product), own + made)
        bias = draft.store(f"{product.name}::offset", numbers)
        draft.exchange(product, replace(product, inputs=(outer, weights, bias)))


def _bias_after_maximum(network: Network, found: _Activation, product: Node) -> Floats:
    """Bias made of the numbers that the device has, so that the weights' product with -c meets its exact negative
    there, except for the rounding of the bias itself.
    """
    scaled = network.rounding.rounded(_scaled(network, product, found).float64)
    own = np.asarray(network.constants[product.input(2)], np.float64) if product.input(2) else np.zeros(1)
    return np.asarray(own + scaled.reshape(*scaled.shape[:2], -1).sum(2) @ found.offset.float64)


def _scaled(network: Network, product: Node, found: _Activation) -> TracedArray:
    """The weights with the scales in them."""
    weights = network.traced(product.inputs[1])
    return weights * found.scale.reshape(*_by_input(len(weights.shape)))


def _by_input(rank: int) -> tuple[int, ...]:
    """Shape in which a vector lies along axis 1: the channels of a value, or the input channels of weights."""
    return (1, -1, *(1,) * (rank - 2))
