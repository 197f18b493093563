"""Operators that are others put together: each becomes a few nodes that there are rules for.

    LayerNormalization  -->  ReduceMean, Sub, Mul, ReduceMean, Add, Sqrt, Reciprocal, Mul, Mul, Add
    Elu                 -->  Relu + alpha * (Exp(Min(x, 0)) - 1)

The definitions are ONNX's own. A node that a function here cannot express (an exponent that is computed) stays as it is
and is refused later, by name. The last node of a chain keeps the node's name and its output's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import pi, sqrt

import numpy as np
import onnx

from dsa_sched.frontend.network import Array, Network, Node, Setting, Value
from dsa_sched.frontend.terms import Term, number

__all__ = ["DECOMPOSED", "decompose"]

Shape = tuple[int, ...]
Settings = tuple[tuple[str, Setting], ...]
SELU_ALPHA, SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875
"""Defaults of Selu's attributes, as ONNX gives them."""


@dataclass
class Chain:
    """The nodes that take the place of one, and the values and constants that they bring."""

    network: Network
    node: Node
    nodes: list[Node] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    terms: dict[str, Term] = field(default_factory=dict)

    def shape(self, name: str) -> Shape:
        return self.values[name].shape if name in self.values else self.network.shape(name)

    def number(self, value: float) -> str:
        return self.array(np.array(value), number(value))

    def array(self, value: Array, term: Term) -> str:
        """A constant, and how it follows from the file."""
        name = f"{self.node.outputs[0]}::constant{len(self.constants)}"
        self.constants[name], self.terms[name] = value, term
        self.values[name] = Value(value.shape, onnx.helper.np_dtype_to_tensor_dtype(value.dtype))
        return name

    def add(
        self, op_type: str, *inputs: str, shape: Shape | None = None, settings: Settings = (), output: str = ""
    ) -> str:
        """One more node; its result has the broadcast shape of its operands unless told otherwise."""
        output = output or f"{self.node.outputs[0]}::{len(self.nodes)}"
        name = f"{self.node.name}::{len(self.nodes)}"
        if shape is None:
            shape = np.broadcast_shapes(*(self.shape(i) for i in inputs))
        self.values[output] = Value(shape, self.network.values[self.node.outputs[0]].dtype)
        self.nodes.append(Node(name, op_type, inputs, (output,), settings))
        return output

    def finished(self) -> tuple[Node, ...]:
        """The nodes, the last of them under the name and with the output of the node that was."""
        return (*self.nodes[:-1], replace(self.nodes[-1], name=self.node.name, outputs=self.node.outputs[:1]))


Rule = Callable[[Chain, Node], bool]
"""Writes the nodes, the result last; False where it cannot, with whatever it wrote thrown away."""


def decompose(network: Network) -> Network:
    """All nodes of the kinds in the table, as far as they can be expressed."""
    nodes: list[Node] = []
    values, constants, terms = dict(network.values), dict(network.constants), dict(network.terms)
    for node in network.nodes:
        rule = DECOMPOSED.get(node.op_type)
        chain = Chain(network, node)
        known = all(name in values or name in constants for name in (*node.inputs, *node.outputs[:1]) if name)
        if rule is None or not known or not rule(chain, node):
            nodes.append(node)
            continue
        nodes += chain.finished()
        values |= chain.values
        constants |= chain.constants
        terms |= chain.terms
    return replace(network, nodes=tuple(nodes), values=values, constants=constants, terms=terms)


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


def _elu(chain: Chain, node: Node) -> bool:
    """gamma * (max(x, 0) + alpha * (exp(min(x, 0) / rate) - 1)): Elu, Selu and Celu."""
    x = node.inputs[0]
    alpha = node.number("alpha", SELU_ALPHA if node.op_type == "Selu" else 1.0)
    gamma = node.number("gamma", SELU_GAMMA) if node.op_type == "Selu" else 1.0
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
    """The approximation by a hyperbolic tangent; the exact one needs an error function."""
    if node.text("approximate", "none") != "tanh":
        return False
    x = node.inputs[0]
    cube = chain.add("Mul", chain.add("Mul", chain.add("Mul", x, x), x), chain.number(0.044715))
    inner = chain.add("Tanh", chain.add("Mul", chain.add("Add", x, cube), chain.number(sqrt(2 / pi))))
    half = chain.add("Mul", chain.add("Add", inner, chain.number(1.0)), chain.number(0.5))
    chain.add("Mul", x, half)
    return True


def _average(chain: Chain, x: str, axes: Shape, output: str = "") -> str:
    """The mean over `axes`, which stay with one element."""
    shape = tuple(1 if axis in axes else extent for axis, extent in enumerate(chain.shape(x)))
    return chain.add("ReduceMean", x, shape=shape, settings=(("axes", axes), ("keepdims", 1)), output=output)


def _inverse_root(chain: Chain, x: str, axes: Shape, epsilon: float, output: str = "") -> str:
    """1 / sqrt(mean(x * x) + epsilon)."""
    power = _average(chain, chain.add("Mul", x, x), axes)
    return chain.add("Reciprocal", chain.add("Sqrt", chain.add("Add", power, chain.number(epsilon))), output=output)


def _trailing_axes(chain: Chain, node: Node) -> Shape:
    rank = len(chain.shape(node.inputs[0]))
    return tuple(range(node.integer("axis", -1) % rank, rank)) if rank else ()


def _layer_norm(chain: Chain, node: Node) -> bool:
    """Mean and inverse deviation are outputs too, where the node names them."""
    x, axes = node.inputs[0], _trailing_axes(chain, node)
    names = (*node.outputs[1:], "", "")
    centred = chain.add("Sub", x, _average(chain, x, axes, names[0]))
    inverse = _inverse_root(chain, centred, axes, node.number("epsilon", 1e-5), names[1])
    result = chain.add("Mul", chain.add("Mul", centred, inverse), node.inputs[1])
    if node.input(2):
        chain.add("Add", result, node.input(2))
    return bool(axes)


def _rms_norm(chain: Chain, node: Node) -> bool:
    x, axes = node.inputs[0], _trailing_axes(chain, node)
    inverse = _inverse_root(chain, x, axes, node.number("epsilon", 1e-5))
    chain.add("Mul", chain.add("Mul", x, inverse), node.inputs[1])
    return bool(axes)


def _instance_norm(chain: Chain, node: Node) -> bool:
    """Each channel of each image by itself; scale and bias must be constant."""
    x, rank = node.inputs[0], len(chain.shape(node.inputs[0]))
    vectors = [chain.network.constants.get(name) for name in node.inputs[1:3]]
    known = [vector for vector in vectors if vector is not None]
    if len(known) < 2 or rank < 3:
        return False
    axes = tuple(range(2, rank))
    shape, names = (-1, *(1,) * (rank - 2)), node.inputs[1:3]
    scale, bias = (
        chain.array(vector.reshape(shape), chain.network.term(name).reshape(*shape))
        for name, vector in zip(names, known, strict=True)
    )
    centred = chain.add("Sub", x, _average(chain, x, axes))
    inverse = _inverse_root(chain, centred, axes, node.number("epsilon", 1e-5))
    chain.add("Add", chain.add("Mul", chain.add("Mul", centred, inverse), scale), bias)
    return True


def _rearranged(chain: Chain, x: str, split: Shape, perm: Shape, joined: Shape) -> bool:
    """Axes split, permuted and joined."""
    turned = tuple(split[axis] for axis in perm)
    x = chain.add("Flatten", x, shape=split)  # any view is a Flatten, Reshape or Squeeze; the shape decides
    x = chain.add("Transpose", x, shape=turned, settings=(("perm", perm),))
    chain.add("Flatten", x, shape=joined)
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


DECOMPOSED: Mapping[str, Rule] = {
    "CastLike": _cast_like,
    "Pow": _power,
    "Mean": _mean,
    "ReduceMin": _reduction(("Neg",), "ReduceMax", ("Neg",)),
    "ReduceL1": _reduction(("Abs",), "ReduceSum", ()),
    "ReduceL2": _reduction(("Square",), "ReduceSum", ("Sqrt",)),
    "ReduceSumSquare": _reduction(("Square",), "ReduceSum", ()),
    "Elu": _elu,
    "Selu": _elu,
    "Celu": _elu,
    "PRelu": _prelu,
    "Softsign": _softsign,
    "Swish": _swish,
    "Gelu": _gelu,
    "LayerNormalization": _layer_norm,
    "RMSNormalization": _rms_norm,
    "InstanceNormalization": _instance_norm,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
}
"""What becomes of each; where a rule says no, the node is refused by its own name."""
