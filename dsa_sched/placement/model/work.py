"""Number of operations of an ONNX node, from its shapes alone: one row per operator.

    Conv, 1x64x56x56 out, 3x3 of 64 channels  -->  multiply-accumulates

It is for analytic costs only. Operators without a row count one operation per element of their results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from types import MappingProxyType

from dsa_sched.frontend.network.network import Network, Node
from partitioner.ir.operators import Trait, onnx_names

Shape = tuple[int, ...]


def macs_of(node: Node, network: Network) -> int:
    """Multiply-accumulates, or operations of another kind. Raises ModelError for a shape that is not static."""
    return ROWS.get(node.op_type, _elements)(node, network)


def _shape(node: Node, network: Network, position: int) -> Shape:
    return network.shape(node.inputs[position])


def _out(node: Node, network: Network) -> Shape:
    return network.shape(next(name for name in node.outputs if name))


def _elements(node: Node, network: Network) -> int:
    return sum(prod(network.shape(name)) for name in node.outputs if name and name in network.values)


def _conv(node: Node, network: Network) -> int:
    """Each output is a sum over one filter."""
    return prod(_out(node, network)) * prod(_shape(node, network, 1)[1:])


def _conv_transpose(node: Node, network: Network) -> int:
    """Each input is spread by one filter."""
    return prod(_shape(node, network, 0)) * prod(_shape(node, network, 1)[1:])


def _matmul(node: Node, network: Network) -> int:
    return prod(_out(node, network)) * (_shape(node, network, 0) or (1,))[-1]


def _gemm(node: Node, network: Network) -> int:
    return prod(_out(node, network)) * _shape(node, network, 0)[0 if node.integer("transA", 0) else 1]


def _pool(node: Node, network: Network) -> int:
    return prod(_out(node, network)) * prod(node.integers("kernel_shape", ()))


def _inputs(node: Node, network: Network) -> int:
    """One operation per element read: reductions and normalisations."""
    return prod(_shape(node, network, 0))


def _recurrent(node: Node, network: Network) -> int:
    """Steps x batch x (weights + recurrent weights): a product with each at every step."""
    steps, batch = sorted(_shape(node, network, 0)[:2], reverse=True)  # layout may put either first: a product anyway
    return steps * batch * (prod(_shape(node, network, 1)) + prod(_shape(node, network, 2)))


def _einsum(node: Node, network: Network) -> int:
    """The product of the extents of all labels."""
    terms = node.text("equation", "").replace(" ", "").split("->")[0].split(",")
    extents: dict[str, int] = {}
    for term, name in zip(terms, node.inputs, strict=False):
        if "." in term:
            return _elements(node, network)
        extents.update(zip(term, network.shape(name), strict=False))
    return prod(extents.values())


def _attention(node: Node, network: Network) -> int:
    """Queries times keys, twice: the scores, and the sums of values."""
    queries, keys = _shape(node, network, 0), _shape(node, network, 1)
    return 2 * prod(queries) * keys[-2]


ROWS: Mapping[str, Callable[[Node, Network], int]] = MappingProxyType({
    "Conv": _conv,
    "ConvInteger": _conv,
    "QLinearConv": lambda node, network: prod(_out(node, network)) * prod(_shape(node, network, 3)[1:]),
    "ConvTranspose": _conv_transpose,
    "DeformConv": _conv,
    "MatMul": _matmul,
    "MatMulInteger": _matmul,
    "QLinearMatMul": _matmul,
    "Gemm": _gemm,
    "Einsum": _einsum,
    "Attention": _attention,
    "LSTM": _recurrent,
    "GRU": _recurrent,
    "RNN": _recurrent,
    "MaxPool": _pool,
    "AveragePool": _pool,
    "LpPool": _pool,
    **dict.fromkeys(onnx_names(Trait.REDUCES), _inputs),
    "LRN": lambda node, network: prod(_out(node, network)) * node.integer("size", 1),
    # Mean, variance, subtraction, product: four passes; an exponential, a sum and a division: three.
    "LayerNormalization": lambda node, network: 4 * _inputs(node, network),
    "GroupNormalization": lambda node, network: 4 * _inputs(node, network),
    "InstanceNormalization": lambda node, network: 4 * _inputs(node, network),
    "RMSNormalization": lambda node, network: 3 * _inputs(node, network),
    "Softmax": lambda node, network: 3 * _inputs(node, network),
    "LogSoftmax": lambda node, network: 3 * _inputs(node, network),
    # Views of existing values.
    **dict.fromkeys(onnx_names(Trait.VIEW), lambda _node, _network: 0),
})  # fmt: skip
"""ONNX operator -> operations of a node of it."""
