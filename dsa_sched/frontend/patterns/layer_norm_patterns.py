"""Layer and root-mean-square norms that a file spells out, found again as the operators that they are.

    d = x - ReduceMean(x)      d / Sqrt(ReduceMean(d * d) + epsilon) * scale + bias  -->  LayerNormalization(x)
                               x / Sqrt(ReduceMean(x * x) + epsilon) * scale         -->  RMSNormalization(x)
    k = scale / Sqrt(ReduceMean(d * d) + epsilon)
    d * k + bias, x * k + (bias - ReduceMean(x) * k)                                 -->  LayerNormalization(x)

Over all axes from one on to the last. The quotient may be a product with a reciprocal, or a power; without a scale it
is one. What lies between serves nothing else: norms whose root is read too are left to `ranges/scaled_sums.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dsa_sched.frontend.decomposition.norms import epsilon_in_range, reduced_axes
from dsa_sched.frontend.network.chain import Chain, Shape
from dsa_sched.frontend.network.network import Network, Node
from dsa_sched.frontend.network.terms import number
from dsa_sched.frontend.patterns.pattern_search import Match, exponent_of, made_for, number_of, reader_of


def norm_matches(network: Network) -> Iterator[Match]:
    for node in network.nodes:
        if node.op_type == "ReduceMean" and (found := _norm(network, node)) is not None:
            yield found


def _norm(network: Network, mean: Node) -> Match | None:
    """The norm around a mean of squares."""
    d = _squared(network, mean.inputs[0])
    axes = _last_axes(network, mean)
    if not d or axes is None or network.known_shape(d) != network.known_shape(mean.inputs[0]):
        return None
    root = _root(network, mean)
    if root is None:
        return None
    name, epsilon, inverted = root
    quotient = _inverted_quotient(network, name) if inverted else _quotient(network, name)
    inverse = name if inverted else _inverse(network, name)
    if inverse and (product := _product(network, inverse, network.known_shape(d), axes)) is not None:
        return _scaled_first(network, product, d, axes, epsilon)
    if quotient is None:
        return None
    end, dividend = quotient
    if not _same(network, dividend, d) or network.known_shape(end.outputs[0]) != network.known_shape(d):
        return None
    x, average = _centred(network, d, axes)
    results = {d, dividend, mean.inputs[0], end.outputs[0]}
    if x and not _serve_only(network, {d, dividend, average}, results):
        return None
    return _with_affine(network, end, x or d, axes, epsilon, centred=bool(x))


def _squared(network: Network, name: str) -> str:
    """d of a d * d or d ^ 2 that one node reads."""
    node = made_for(network, name, "Mul", "Pow")
    if node is None:
        return ""
    square = node.inputs[0] == node.inputs[1] if node.op_type == "Mul" else exponent_of(network, node) == 2.0
    return node.inputs[0] if square and node.inputs[0] not in network.constants else ""


def _last_axes(network: Network, mean: Node) -> Shape | None:
    """The axes of a mean, if they are all from one on to the last and stay with one element."""
    shape = network.known_shape(mean.inputs[0])
    axes = reduced_axes(network, mean) if shape else None
    if not shape or axes is None or not mean.integer("keepdims", 1):
        return None
    return axes if axes == tuple(range(len(shape) - len(axes), len(shape))) else None


def _root(network: Network, mean: Node) -> tuple[str, float, bool] | None:
    """The value of sqrt(mean + epsilon), or one over it; epsilon; whether it is one over it."""
    name, epsilon = mean.outputs[0], 0.0
    added = reader_of(network, name, "Add")
    if added is not None:
        other = added.inputs[1] if added.inputs[0] == name else added.inputs[0]
        value = number_of(network, other)
        if value is None or network.known_shape(added.outputs[0]) != network.known_shape(name):
            return None
        name, epsilon = added.outputs[0], value
    if not epsilon_in_range(network, epsilon):
        return None
    root = reader_of(network, name, "Sqrt", "Pow")
    if root is None or root.inputs[0] != name:
        return None
    exponent = 0.5 if root.op_type == "Sqrt" else exponent_of(network, root)
    if exponent not in (0.5, -0.5) or network.known_shape(root.outputs[0]) != network.known_shape(name):
        return None
    return root.outputs[0], epsilon, exponent < 0


def _quotient(network: Network, root: str) -> tuple[Node, str] | None:
    """The node that divides by a root, or multiplies by its reciprocal, and the dividend."""
    node = reader_of(network, root, "Div", "Reciprocal")
    if node is None:
        return None
    if node.op_type == "Div" and node.inputs[1] == root and number_of(network, node.inputs[0]) != 1.0:
        return (node, node.inputs[0]) if node.inputs[0] != root else None
    if node.op_type == "Div" and node.inputs[0] == root:
        return None
    return _inverted_quotient(network, node.outputs[0])


def _inverted_quotient(network: Network, inverse: str) -> tuple[Node, str] | None:
    node = reader_of(network, inverse, "Mul")
    if node is None or node.inputs[0] == node.inputs[1]:
        return None
    return node, node.inputs[1] if node.inputs[0] == inverse else node.inputs[0]


def _inverse(network: Network, root: str) -> str:
    """The value that is one over a root, which nothing else reads; empty where there is none."""
    node = reader_of(network, root, "Div", "Reciprocal")
    if node is None or (
        node.op_type == "Div" and (node.inputs[1] != root or number_of(network, node.inputs[0]) != 1.0)
    ):
        return ""
    return node.outputs[0]


def _product(network: Network, inverse: str, shape: Shape | None, axes: Shape) -> tuple[Node, str] | None:
    """The node that multiplies one over a root by a scale, and that: one number for each place along the axes."""
    node = reader_of(network, inverse, "Mul")
    if node is None or shape is None or node.inputs[0] == node.inputs[1]:
        return None
    scale = node.inputs[1] if node.inputs[0] == inverse else node.inputs[0]
    return (node, scale) if _is_vector(network, scale, shape[axes[0] :]) else None


def _is_vector(network: Network, name: str, wide: Shape) -> bool:
    """Whether the value has this shape, except for leading axes of one element."""
    shape = network.known_shape(name)
    return shape is not None and shape[len(shape) - len(wide) :] == wide and set(shape[: len(shape) - len(wide)]) <= {1}


def _scaled_first(network: Network, product: tuple[Node, str], d: str, axes: Shape, epsilon: float) -> Match | None:
    """The norm whose root and scale are multiplied with each other before the line is."""
    node, scale = product
    x, average = _centred(network, d, axes)
    readers = network.readers.get(node.outputs[0], ())
    if node.outputs[0] in network.outputs or not all(reader.op_type == "Mul" for reader in readers):
        return None
    others = [next((name for name in reader.inputs if name != node.outputs[0]), "") for reader in readers]
    if len(readers) == 1 and _same(network, others[0], d):
        end, bias = readers[0], ""
    elif len(readers) == 2 and x and set(others) == {x, average}:
        found = _keras_end(network, readers[others.index(x)], readers[others.index(average)])
        if found is None or not _is_vector(network, found[1], network.shape(d)[axes[0] :]):
            return None
        end, bias = found
    else:
        return None
    if network.known_shape(end.outputs[0]) != network.known_shape(d):
        return None
    return _with_affine(network, end, x or d, axes, epsilon, centred=bool(x), given=(scale, bias))


def _keras_end(network: Network, line: Node, middle: Node) -> tuple[Node, str] | None:
    """The node x * k + (bias - mean * k), and the bias."""
    end = reader_of(network, line.outputs[0], "Add")
    shift = reader_of(network, middle.outputs[0], "Sub")
    if end is None or shift is None or shift.inputs[1] != middle.outputs[0] or shift.inputs[0] == shift.inputs[1]:
        return None
    if reader_of(network, shift.outputs[0], "Add") is not end:
        return None
    return end, shift.inputs[0]


def _same(network: Network, a: str, b: str) -> bool:
    """Whether both are one value, or differences of the same two: exporters write them twice."""
    first, second = network.producer.get(a), network.producer.get(b)
    return a == b or (
        first is not None and second is not None and first.op_type == second.op_type == "Sub"
        and first.inputs == second.inputs
    )  # fmt: skip


def _centred(network: Network, d: str, axes: Shape) -> tuple[str, str]:
    """The x of which d is x - mean(x) over the same axes, and that mean; empty where it is no such difference."""
    node = network.producer.get(d)
    mean = network.producer.get(node.inputs[1]) if node is not None and node.op_type == "Sub" else None
    if node is None or mean is None or mean.op_type != "ReduceMean" or mean.inputs[0] != node.inputs[0]:
        return "", ""
    return (node.inputs[0], node.inputs[1]) if _last_axes(network, mean) == axes else ("", "")


def _serve_only(network: Network, names: set[str], results: set[str]) -> bool:
    """Whether only nodes that make `results` read these values."""
    readers = (reader for name in names for reader in network.readers[name])
    return not names & set(network.outputs) and all(results & set(reader.outputs) for reader in readers)


def _with_affine(
    network: Network,
    end: Node,
    x: str,
    axes: Shape,
    epsilon: float,
    *,
    centred: bool,
    given: tuple[str, str] = ("", ""),
) -> Match:
    """The norm with the scale and the bias that follow it, as far as they are not given."""
    shape = network.shape(x)
    wide, (scale, bias) = shape[axes[0] :], given
    if not scale and (found := _vector(network, end.outputs[0], "Mul", wide)) is not None:
        end, scale = found
    if scale and not bias and centred and (found := _vector(network, end.outputs[0], "Add", wide)) is not None:
        end, bias = found

    def write(chain: Chain) -> None:
        ones = scale or chain.array(np.ones(wide, np.float32), number(1).broadcast(*wide))
        settings = (("axis", axes[0] - len(shape)), ("epsilon", epsilon))
        inputs = tuple(_flat(chain, name, wide) for name in (ones, bias) if name)
        chain.add("LayerNormalization" if centred else "RMSNormalization", x, *inputs, shape=shape, settings=settings)

    return Match(end, write)


def _flat(chain: Chain, name: str, wide: Shape) -> str:
    """A vector without leading axes."""
    if chain.shape(name) == wide:
        return name
    constant = chain.network.constants.get(name)
    if constant is not None:
        return chain.array(constant.reshape(wide), chain.network.term(name).reshape(*wide))
    return chain.add("Flatten", name, shape=wide)


def _vector(network: Network, name: str, op_type: str, wide: Shape) -> tuple[Node, str] | None:
    """The only reader of a value, which adds to it or multiplies it by a number for each place along the axes of the
    norm, and these numbers.
    """
    node = reader_of(network, name, op_type)
    if node is None or node.inputs[0] == node.inputs[1]:
        return None
    other = node.inputs[1] if node.inputs[0] == name else node.inputs[0]
    same = network.known_shape(node.outputs[0]) == network.known_shape(name)
    return (node, other) if same and _is_vector(network, other, wide) else None
